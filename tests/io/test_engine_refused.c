/* What a machine may refuse, and what is done instead: each in a child process
 * that has been denied something.  Cases A14, A16, A17, A21, E14. */
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "io/store.h"
#include "tests/io/engine_test.h"

#define SKIPPED 77

/* Runs `body` in a child; it returns NULL, or why it could not be tried
 * ("skip: ...") or what went wrong. */
static void in_child(const char *(*body)(void))
{
  char text[512] = "";
  int ends[2], status;
  assert_int_equal(pipe(ends), 0);
  pid_t child = test_fork();
  if (child == 0) {
    const char *wrong = body();
    if (wrong && write(ends[1], wrong, strlen(wrong)) < 0)
      _exit(2);
    _exit(wrong ? strncmp(wrong, "skip: ", 6) ? 1 : SKIPPED : 0);
  }
  close(ends[1]);
  ssize_t n = read(ends[0], text, sizeof text - 1);
  text[n > 0 ? n : 0] = '\0';
  close(ends[0]);
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status));
  if (WEXITSTATUS(status) == SKIPPED)
    test_skip("%s", text + 6);
  if (WEXITSTATUS(status))
    fail_msg("%s", text);
}

static const char *text_of(const char *what)
{
  static char text[512];
  snprintf(text, sizeof text, "%s: %.400s", what, pen_error_text());
  return text;
}

/* Writes and reads 8 MiB; NULL when all is well. */
static const char *move_some(struct bench *b, void *buffer)
{
  pattern_fill(buffer, 8 << 20, 5);
  if (bench_move(b, true, buffer, 8 << 20, 0))
    return text_of("write");
  memset(buffer, 0, 8 << 20);
  if (bench_move(b, false, buffer, 8 << 20, 0))
    return text_of("read");
  for (size_t i = 0; i < (8 << 20) / 8; i++)
    if (((uint64_t *)buffer)[i] != (i + 5) * UINT64_C(0x9e3779b97f4a7c15))
      return "the bytes differ";
  return NULL;
}

/* All io_uring_setup calls fail with `code` from now on. */
static const char *deny_uring(int code)
{
  struct sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)code),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  struct sock_fprog program = {4, filter};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
      prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
    return "skip: seccomp filters are not permitted here";
  return NULL;
}

static const char *uring_denied(int code, const char *expected)
{
  struct bench b;
  const char *wrong = deny_uring(code);
  if (wrong)
    return wrong;
  char *buffer = test_buffer(8 << 20);
  const char *path = test_tmp("denied");
  int refused = bench_open_at(&b, "uring", path, 8 << 20, NULL);
  if (code != ENOSYS && strstr(pen_error_text(), "this build has no io_uring"))
    return "skip: this build has no io_uring";
  if (refused != -code || !strstr(pen_error_text(), expected))
    return text_of("uring by name must be refused");
  pen_error_clear();
  bench_close(&b);
  if (bench_open_at(&b, "auto", path, 8 << 20, NULL))
    return text_of("auto");
  const char *note = pen_transfer_queue_note(b.queue);
  if (!strstr(note, "auto: threads, since ") || !strstr(note, expected))
    return note;
  wrong = move_some(&b, buffer);
  bench_close(&b);
  return wrong;
}

static const char *uring_eperm(void)
{
  return uring_denied(EPERM, "Operation not permitted");
}

static const char *uring_enosys(void)
{
  return uring_denied(ENOSYS, "Function not implemented");
}

static void test_uring_not_permitted(void **state) { in_child(uring_eperm); }
static void test_uring_not_there(void **state) { in_child(uring_enosys); }

/* Registration of more than `ulimit -l` is refused to an ordinary user. */
static const char *memlock(void)
{
  struct bench b;
  struct rlimit limit = {65536, 65536};
  struct pen_engine_region region = {test_buffer(8 << 20), 8 << 20};
  const char *path = test_tmp("memlock");
  int fd = open(path, O_CREAT | O_RDWR, 0666);
  if (fd < 0 || fchmod(fd, 0666) || chmod(test_tmpdir(), 0777) ||
      setrlimit(RLIMIT_MEMLOCK, &limit))
    return "skip: the limit of locked memory cannot be lowered";
  if (geteuid() == 0 && (setgid(65534) || setuid(65534)))
    return "skip: root's rights cannot be given up";
  int code = bench_open_at(&b, "uring", path, 8 << 20, &region);
  if (code == -EPERM || code == -ENOSYS)
    return "skip: io_uring is not permitted here";
  if (code)
    return text_of("uring");
  const char *note = pen_transfer_queue_note(b.queue);
  if (!strstr(note, "buffers not registered: 8388608 bytes needed") ||
      !strstr(note, "65536"))
    return note;
  const char *wrong = move_some(&b, region.base);
  bench_close(&b);
  return wrong;
}

static void test_memlock_limit(void **state) { in_child(memlock); }

/* A mount of our own, seen by nobody else. */
static const char *mount_alone(const char *what, const char *type,
                               const char *path, const char *options)
{
  bool root = geteuid() == 0;
  if (unshare(root ? CLONE_NEWNS : CLONE_NEWUSER | CLONE_NEWNS) ||
      mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
      (mkdir(path, 0777) && errno != EEXIST) ||
      mount(what, path, type, 0, options))
    return "skip: mounting is not permitted here";
  return NULL;
}

/* A file system in memory: works, with one warning. */
static const char *in_memory(const char *type)
{
  struct bench b;
  char path[PATH_MAX];
  snprintf(path, sizeof path, "%s", test_tmp("mounted"));
  const char *wrong = mount_alone("none", type, path, "size=64m");
  if (wrong)
    return wrong;
  strcat(path, "/file");
  if (bench_open_at(&b, "threads", path, 8 << 20, NULL))
    return text_of("open");
  if (!strstr(b.file->note, type) || !strstr(b.file->note, "no measure"))
    return b.file->note;
  wrong = move_some(&b, test_buffer(8 << 20));
  bench_close(&b);
  return wrong;
}

static const char *on_tmpfs(void) { return in_memory("tmpfs"); }
static const char *on_ramfs(void) { return in_memory("ramfs"); }
static void test_tmpfs(void **state) { in_child(on_tmpfs); }
/* ramfs refuses O_DIRECT: the way through a buffered file. */
static void test_ramfs(void **state) { in_child(on_ramfs); }

/* A store that does not fit is refused with the numbers, and nothing stays. */
static const char *no_space(void)
{
  char path[PATH_MAX];
  snprintf(path, sizeof path, "%s", test_tmp("small"));
  const char *wrong = mount_alone("none", "tmpfs", path, "size=1m");
  if (wrong)
    return wrong;
  const char *dir = path;
  struct pen_store_options o = {.dirs = &dir, .n_dirs = 1,
                                .engine = &pen_engine_threads,
                                .tile_bytes = 65536, .n_tiles = 10,
                                .n_extents = 20};
  struct pen_store *store = NULL;
  if (pen_store_create(&o, false, &store) != -PEN_ENOFIT)
    return text_of("a store of 1.3 MB in 1 MiB");
  if (!strstr(pen_error_text(), "needs 1331200 bytes") ||
      !strstr(pen_error_text(), "1048576 are free") ||
      !strstr(pen_error_text(), path))
    return text_of("the text lacks a number");
  pen_error_clear();
  strcat(path, "/penstock-state.data");
  if (access(path, F_OK) == 0)
    return "the refused store left its file";
  *strrchr(path, '/') = '\0';
  o.n_tiles = 5;
  o.n_extents = 10;
  if (pen_store_create(&o, false, &store))
    return text_of("a store of 0.7 MB in 1 MiB");
  pen_store_close(&store);
  return NULL;
}

static void test_no_space(void **state) { in_child(no_space); }

/* A drive of 4096-byte sectors, where 512-byte direct I/O is refused. */
static const char *large_sectors(void)
{
  struct bench b;
  char command[3 * PATH_MAX + 256], device[64] = "", path[PATH_MAX];
  if (geteuid() != 0)
    return "skip: only root makes loop devices";
  snprintf(path, sizeof path, "%s", test_tmp("image"));
  snprintf(command, sizeof command,
           "truncate -s 48M %s && mkfs.ext4 -q -F -b 4096 %s && "
           "losetup --show -f --sector-size 4096 %s", path, path, path);
  FILE *p = popen(command, "r");
  if (!p || !fgets(device, sizeof device, p) || pclose(p))
    return "skip: no loop device with 4096-byte sectors could be made";
  device[strcspn(device, "\n")] = '\0';
  snprintf(path, sizeof path, "%s", test_tmp("mounted"));
  const char *wrong = mount_alone(device, "ext4", path, NULL);
  snprintf(command, sizeof command, "losetup -d %s", device);
  if (system(command)) /* goes when the mount goes */
    return "the loop device cannot be detached";
  if (wrong)
    return wrong;
  strcat(path, "/file");
  if (bench_open_at(&b, "auto", path, 8 << 20, NULL))
    return text_of("open");
  char *buffer = test_buffer(8 << 20);
  wrong = b.file->direct ? move_some(&b, buffer) : "the file is not direct";
  if (!wrong && b.engine->read_at(b.file, buffer, 512, 512) >= 0)
    wrong = "skip: this drive takes 512 bytes, so nothing is shown";
  bench_close(&b);
  return wrong;
}

static void test_large_sectors(void **state) { in_child(large_sectors); }

/* A region above the kernel's limit for one buffer is registered in parts. */
static void test_region_above_1_gib(void **state)
{
  if (sysconf(_SC_AVPHYS_PAGES) < (4L << 30) / sysconf(_SC_PAGESIZE))
    test_skip("less than 4 GiB of memory are free");
  struct bench b;
  size_t n = PEN_ENGINE_REGION_BYTES_MAX + (16 << 20);
  struct pen_engine_region region = {
      mmap(NULL, n, PROT_READ | PROT_WRITE,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0), n};
  assert_true(region.base != MAP_FAILED);
  int code = bench_open_at(&b, "uring", test_tmp("file"), 16 << 20, &region);
  if (code == -EPERM || code == -ENOSYS || code == -ENOMEM)
    test_skip("io_uring: %s", pen_error_text());
  test_ok(code);
  if (!strstr(pen_transfer_queue_note(b.queue), "1090519040 bytes of buffers"))
    test_skip("%s", pen_transfer_queue_note(b.queue));
  /* Across the border of the two parts. */
  assert_null(move_some(&b, (char *)region.base + PEN_ENGINE_REGION_BYTES_MAX -
                                (4 << 20) - 4096));
  bench_close(&b);
  munmap(region.base, n);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_uring_not_permitted),
      cmocka_unit_test(test_uring_not_there),
      cmocka_unit_test(test_memlock_limit),
      cmocka_unit_test(test_tmpfs),
      cmocka_unit_test(test_ramfs),
      cmocka_unit_test(test_no_space),
      cmocka_unit_test(test_large_sectors),
      cmocka_unit_test(test_region_above_1_gib),
  };
  test_tmpdir();
  return cmocka_run_group_tests(tests, NULL, NULL);
}
