/* What is read from /sys of a drive, on trees like those of real machines. */
#include "src/bench/disk.h"

#include <math.h>
#include <sys/sysmacros.h>

#include "tests/bench/fake_sys.h"

#define PORT "devices/pci0000:00/0000:00:06.0/"
#define NVME PORT "0000:01:00.0/nvme/nvme0/"

static struct pen_disk disk;

static void link_attributes(const char *speed, const char *width)
{
  fake_attribute(PORT "0000:01:00.0/current_link_speed", speed);
  fake_attribute(PORT "0000:01:00.0/max_link_speed", "16.0 GT/s PCIe");
  fake_attribute(PORT "0000:01:00.0/current_link_width", width);
  fake_attribute(PORT "0000:01:00.0/max_link_width", "4");
}

/* An NVMe drive with two partitions, its sensor where kernels since 5.5 put
 * it. */
static void make_nvme(void)
{
  fake_attribute(NVME "nvme0n1/queue/rotational", "0");
  fake_attribute(NVME "nvme0n1/device/model", "Fast 990   ");
  fake_attribute(NVME "nvme0n1/nvme0n1p2/partition", "2");
  fake_link("dev/block/259:2", NVME "nvme0n1/nvme0n1p2");
  fake_link("dev/block/259:0", NVME "nvme0n1");
  fake_attribute(NVME "hwmon3/temp1_input", "45850");
  fake_attribute(NVME "hwmon3/temp1_max", "81850");
  fake_attribute(NVME "hwmon3/temp1_alarm", "0");
  link_attributes("8.0 GT/s PCIe", "2");
}

static void test_partition(void **state)
{
  struct pen_disk_heat heat;
  make_nvme();
  assert_true(pen_disk_find(fake_sys(), makedev(259, 2), &disk));
  assert_string_equal(disk.name, "nvme0n1");
  assert_string_equal(disk.model, "Fast 990");
  assert_false(disk.turns);
  pen_disk_heat(&disk, &heat);
  assert_true(fabs(heat.celsius - 45.85) < 1e-9);
  assert_true(fabs(heat.limit - 81.85) < 1e-9);
  assert_false(heat.alarm);
  fake_attribute(NVME "hwmon3/temp1_alarm", "1");
  pen_disk_heat(&disk, &heat);
  assert_true(heat.alarm);
  assert_true(pen_disk_find(fake_sys(), makedev(259, 0), &disk));
  assert_string_equal(disk.name, "nvme0n1");
}

static void test_links(void **state)
{
  struct pen_disk_link link;
  char text[PEN_DISK_LINK_TEXT_BYTES];
  make_nvme();
  assert_true(pen_disk_find(fake_sys(), makedev(259, 0), &disk));
  assert_true(pen_disk_link(disk.folder, &link));
  assert_false(pen_disk_link_is_full(&link));
  pen_disk_link_text(&link, text);
  assert_string_equal(text, "PCIe 3.0 x2 of 4.0 x4");
  link_attributes("16.0 GT/s PCIe", "4");
  assert_true(pen_disk_link(disk.folder, &link));
  assert_true(pen_disk_link_is_full(&link));
  pen_disk_link_text(&link, text);
  assert_string_equal(text, "PCIe 4.0 x4");
  link_attributes("16.0 GT/s PCIe", "2");
  assert_true(pen_disk_link(disk.folder, &link));
  assert_false(pen_disk_link_is_full(&link));
  link_attributes("16.0 GT/s PCIe", "0"); /* no link */
  assert_false(pen_disk_link(disk.folder, &link));
  link_attributes("Unknown", "4");
  assert_false(pen_disk_link(disk.folder, &link));
}

/* Disk of platters on SATA, its sensor by drivetemp, no PCI attributes. */
static void test_sata(void **state)
{
  struct pen_disk_link link;
  struct pen_disk_heat heat;
#define SATA "devices/pci0000:00/0000:00:17.0/ata1/host0/target0:0:0/0:0:0:0/"
  fake_attribute(SATA "block/sda/queue/rotational", "1");
  fake_attribute(SATA "block/sda/device/model", "Slow 5400");
  fake_attribute(SATA "hwmon/hwmon0/temp1_input", "31000");
  fake_link("dev/block/8:0", SATA "block/sda");
  assert_true(pen_disk_find(fake_sys(), makedev(8, 0), &disk));
  assert_true(disk.turns);
  pen_disk_heat(&disk, &heat);
  assert_true(heat.celsius == 31 && isnan(heat.limit) && !heat.alarm);
  assert_false(pen_disk_link(disk.folder, &link));
}

static void test_volumes(void **state)
{
  make_nvme();
  fake_attribute("devices/virtual/block/dm-0/queue/rotational", "0");
  fake_link("devices/virtual/block/dm-0/slaves/nvme0n1p2",
            NVME "nvme0n1/nvme0n1p2");
  fake_link("dev/block/253:0", "devices/virtual/block/dm-0");
  assert_true(pen_disk_find(fake_sys(), makedev(253, 0), &disk));
  assert_string_equal(disk.name, "nvme0n1");
  fake_attribute("devices/virtual/block/md0/queue/rotational", "0");
  fake_link("devices/virtual/block/md0/slaves/nvme0n1", NVME "nvme0n1");
  fake_link("devices/virtual/block/md0/slaves/other", NVME "nvme0n1");
  fake_link("dev/block/9:0", "devices/virtual/block/md0");
  assert_true(pen_disk_find(fake_sys(), makedev(9, 0), &disk));
  assert_string_equal(disk.name, "md0"); /* over several: itself */
}

/* A virtual disk shows neither model nor sensor nor link; overlays nothing. */
static void test_little_is_shown(void **state)
{
  struct pen_disk_heat heat;
  fake_attribute("devices/virtio0/block/vda/queue/rotational", "1");
  fake_link("dev/block/254:0", "devices/virtio0/block/vda");
  assert_true(pen_disk_find(fake_sys(), makedev(254, 0), &disk));
  assert_string_equal(disk.model, "");
  pen_disk_heat(&disk, &heat);
  assert_true(isnan(heat.celsius));
  assert_false(pen_disk_find(fake_sys(), makedev(0, 77), &disk));
  assert_false(pen_disk_find(test_tmp("absent"), makedev(254, 0), &disk));
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_partition), cmocka_unit_test(test_links),
    cmocka_unit_test(test_sata),      cmocka_unit_test(test_volumes),
    cmocka_unit_test(test_little_is_shown),
  };
  return cmocka_run_group_tests_name("disk", tests, NULL, NULL);
}
