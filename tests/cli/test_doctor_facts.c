/* What doctor says on made-up /sys and /proc: links, heat, GPUs without a driver's
 * library, and who refuses io_uring. */
#include "src/cli/doctor.h"

#include <errno.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "tests/bench/fake_sys.h"

static struct pen_doctor doctor;

static void start(void)
{
  memset(&doctor, 0, sizeof doctor);
  doctor.sys = fake_sys();
  doctor.proc = test_tmp("proc");
}

/* The one fact of that name. */
static const struct pen_doctor_fact *fact(const char *name)
{
  const struct pen_doctor_fact *found = NULL;
  for (size_t i = 0; i < doctor.n_facts; i++)
    if (strcmp(doctor.facts[i].name, name) == 0) {
      if (found)
        fail_msg("%s is told twice", name);
      found = &doctor.facts[i];
    }
  if (!found)
    fail_msg("%s is not told", name);
  return found;
}

static void hold(const char *name, enum pen_doctor_level level, const char *words)
{
  const struct pen_doctor_fact *f = fact(name);
  if (f->level != level || !strstr(f->text, words))
    fail_msg("%s: %s: %s; not \"%s\"", pen_doctor_level_name(f->level), name,
             f->text, words);
  assert_int_equal(f->advice[0] != '\0', level != PEN_DOCTOR_OK);
}

/* ---- drives ---- */

#define PORT "devices/pci0000:00/0000:00:06.0/0000:01:00.0/"
#define NVME PORT "nvme/nvme0/"

/* The drive below the test's folder is this one. */
static void make_drive(const char *speed, const char *width, const char *heat)
{
  struct stat st;
  char block[64];
  assert_int_equal(stat(test_tmpdir(), &st), 0);
  snprintf(block, sizeof block, "dev/block/%u:%u", major(st.st_dev),
           minor(st.st_dev));
  fake_attribute(NVME "nvme0n1/queue/rotational", "0");
  fake_attribute(NVME "nvme0n1/device/model", "Fast 990");
  fake_link(block, NVME "nvme0n1");
  fake_attribute(PORT "current_link_speed", speed);
  fake_attribute(PORT "max_link_speed", "16.0 GT/s PCIe");
  fake_attribute(PORT "current_link_width", width);
  fake_attribute(PORT "max_link_width", "4");
  fake_attribute(NVME "hwmon1/temp1_input", heat);
  fake_attribute(NVME "hwmon1/temp1_max", "81850");
}

static void test_a_drive_at_its_best(void **state)
{
  make_drive("16.0 GT/s PCIe", "4", "40000");
  start();
  pen_doctor_drive(&doctor, test_tmpdir());
  hold("drive", PEN_DOCTOR_OK, "nvme0n1, Fast 990");
  hold("drive link", PEN_DOCTOR_OK, "nvme0n1, PCIe 4.0 x4");
  hold("drive heat", PEN_DOCTOR_OK, "at 40 degrees C, slows down above 82");
  fact("reflink");
}

static void test_a_drive_held_back(void **state)
{
  make_drive("8.0 GT/s PCIe", "2", "78000");
  start();
  pen_doctor_drive(&doctor, test_tmpdir());
  hold("drive link", PEN_DOCTOR_DEGRADED, "PCIe 3.0 x2 of 4.0 x4");
  hold("drive heat", PEN_DOCTOR_DEGRADED, "at 78 degrees C");
}

/* ---- GPUs ---- */

#define GPU "devices/pci0000:00/0000:00:01.0/0000:02:00.0/"

static void make_gpu(const char *vendor, const char *class, const char *speed,
                     const char *width)
{
  fake_attribute(GPU "vendor", vendor);
  fake_attribute(GPU "class", class);
  fake_attribute(GPU "current_link_speed", speed);
  fake_attribute(GPU "max_link_speed", "16.0 GT/s PCIe");
  fake_attribute(GPU "current_link_width", width);
  fake_attribute(GPU "max_link_width", "16");
  fake_link("bus/pci/devices/0000:02:00.0", GPU);
}

static bool is_told(const char *name)
{
  bool found = false;
  for (size_t i = 0; i < doctor.n_facts; i++)
    found |= strcmp(doctor.facts[i].name, name) == 0;
  return found;
}

static void test_gpus_by_sys(void **state)
{
  make_gpu("0x10de", "0x030000", "16.0 GT/s PCIe", "8");
  start();
  pen_doctor_gpu(&doctor);
  if (is_told("GPU power"))
    test_skip("a real driver answers here");
  hold("NVML", PEN_DOCTOR_DEGRADED, "libnvidia-ml.so.1");
  hold("GPU link", PEN_DOCTOR_DEGRADED,
       "NVIDIA device 0000:02:00.0: PCIe 4.0 x8 of 4.0 x16");
  make_gpu("0x10de", "0x030200", "2.5 GT/s PCIe", "16"); /* at rest */
  start();
  pen_doctor_gpu(&doctor);
  hold("GPU link", PEN_DOCTOR_OK, "PCIe 1.0 x16 of 4.0 x16 (at rest");
  make_gpu("0x10de", "0x040300", "16.0 GT/s PCIe", "8"); /* its sound */
  start();
  pen_doctor_gpu(&doctor);
  assert_false(is_told("GPU link") || is_told("NVML"));
  make_gpu("0x8086", "0x030000", "16.0 GT/s PCIe", "8"); /* another's */
  start();
  pen_doctor_gpu(&doctor);
  assert_false(is_told("GPU link") || is_told("NVML"));
}

/* ---- io_uring ---- */

static void make_proc(const char *sysctl, const char *status)
{
  char path[3 * PATH_MAX];
  snprintf(path, sizeof path, "%s/proc/sys/kernel/io_uring_disabled",
           test_tmpdir());
  fake_make_folders(path);
  test_write_file(path, sysctl, strlen(sysctl));
  snprintf(path, sizeof path, "%s/proc/self/status", test_tmpdir());
  fake_make_folders(path);
  test_write_file(path, status, strlen(status));
}

#define USER "CapEff:\t0000000000000000\n"
#define ADMIN "CapEff:\t00000000a82425fb\n" /* with bit 21 */
#define FREE "Seccomp:\t0\n"
#define FILTER "Seccomp:\t2\n"

static void test_who_refuses_io_uring(void **state)
{
  static const struct {
    int code;
    const char *sysctl, *status, *words;
  } rows[] = {
    {EPERM, "2\n", ADMIN FREE, "by sysctl kernel.io_uring_disabled=2;"},
    {EPERM, "2\n", USER FILTER, "by sysctl kernel.io_uring_disabled=2;"},
    {EPERM, "1\n", USER FREE, "by sysctl kernel.io_uring_disabled=1;"},
    {EPERM, "1\n", USER FILTER, "by sysctl kernel.io_uring_disabled=1 or by a seccomp"},
    {EPERM, "1\n", ADMIN FILTER, "refused (EPERM) by a seccomp filter"},
    {EPERM, "0\n", USER FILTER, "refused (EPERM) by a seccomp filter"},
    {EPERM, "0\n", USER FREE, "not to be had (EPERM)"},
    {ENOSYS, "2\n", USER FILTER, "refused (ENOSYS) by a seccomp filter"},
    {ENOSYS, "0\n", USER FILTER, "refused (ENOSYS) by a seccomp filter"},
    {ENOSYS, "0\n", USER FREE, "not to be had (ENOSYS): this kernel has none"},
    {EACCES, "0\n", USER FREE, "not to be had (Permission denied)"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    make_proc(rows[i].sysctl, rows[i].status);
    start();
    pen_doctor_uring_refused(&doctor, rows[i].code);
    hold("io_uring", PEN_DOCTOR_DEGRADED, rows[i].words);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_a_drive_at_its_best),
    cmocka_unit_test(test_a_drive_held_back),
    cmocka_unit_test(test_gpus_by_sys),
    cmocka_unit_test(test_who_refuses_io_uring),
  };
  return cmocka_run_group_tests_name("doctor-facts", tests, NULL, NULL);
}
