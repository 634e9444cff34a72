/* Described machines: each part lands where it belongs, and what cannot be is
 * refused with what to do. */
#include "tests/test.h"

#include "offload/describe.h"
#include "offload/gpus.h"

static struct pen_machine desktop(void)
{
  struct pen_machine m;
  pen_machine_desktop(&m);
  return m;
}

static void test_catalogue(void **state)
{
  const struct pen_gpu *gpu;
  size_t n = 0;
  for (; (gpu = pen_gpu_at(n)); n++) {
    assert_ptr_equal(pen_gpu_find(gpu->name), gpu); /* no name twice */
    assert_ptr_equal(pen_gpu_find(gpu->label), gpu);
    /* Products outrun vector units, and those memory, on all. */
    assert_true(gpu->bf16 > gpu->fp32 && gpu->fp32 > 5 * gpu->memory);
    assert_in_range((uint64_t)(gpu->bytes / 1e9), 8, 300);
    assert_in_range(gpu->pcie_generation, 3, 6);
  }
  assert_true(n > 20);
  assert_ptr_equal(pen_gpu_find("RTX 4090"), pen_gpu_find("rtx-4090"));
  assert_null(pen_gpu_find("rtx409"));
  assert_null(pen_gpu_find(""));
}

static void test_parts(void **state)
{
  struct pen_machine m = desktop(), before;
  struct pen_machine_parts none = {0};
  m.products[2].fp32_all = 3e11;
  before = m;
  assert_false(pen_machine_parts_given(&none));
  test_ok(pen_machine_describe(&none, &m));
  assert_memory_equal(&m, &before, sizeof m);

  struct pen_machine_parts parts = {
      .gpu = "rtx4090", .ram_bytes = 1 << 20, .cores = 32, .memory_rate = 9e10,
      .n_drives = 3, .drive_read = 7e9, .drive_write = 5e9};
  assert_true(pen_machine_parts_given(&parts));
  test_ok(pen_machine_describe(&parts, &m));
  assert_string_equal(m.device, "GeForce RTX 4090");
  assert_true(pen_machine_has_device(&m));
  assert_true(m.device_bf16 == 165.2e12);
  /* 16 lanes of 16 GT/s: 31.5 GB/s, of which 0.8 are reached. */
  assert_true(m.upload > 25e9 && m.upload < 25.3e9 && m.download == m.upload);
  assert_true(m.ram_bytes == 1 << 20);
  assert_int_equal(m.cores, 32);
  assert_true(m.products[0].bf16_all == 2 * before.products[0].bf16_all);
  assert_true(m.products[2].fp32_all == 2 * before.products[2].fp32_all);
  assert_true(m.products[0].bf16_core == before.products[0].bf16_core);
  assert_true(m.dram_read == 9e10 && m.dram_update == 9e10);
  assert_int_equal(m.n_drives, 3);
  assert_true(m.drives[2].read == 7e9 && m.drives[2].write == 5e9);

  parts = (struct pen_machine_parts){.gpu_flops = 1e14, .pcie = "3x8"};
  test_ok(pen_machine_describe(&parts, &m));
  assert_true(m.device_bf16 == 1e14);
  assert_true(m.upload < 6.4e9 && m.upload > 6.2e9);
  parts = (struct pen_machine_parts){.gpu = "none"};
  test_ok(pen_machine_describe(&parts, &m));
  assert_false(pen_machine_has_device(&m));
}

/* A measured drive several times over, or with another rate. */
static void test_drives_of_a_profile(void **state)
{
  struct pen_machine m = desktop();
  m.n_drives = 1;
  m.drives[0] = (struct pen_machine_drive){
      .path = "/a", .read = 3e9, .write = 2e9, .mixed = 2.2e9, .sync_s = 1};
  struct pen_machine_parts parts = {.n_drives = 2};
  test_ok(pen_machine_describe(&parts, &m));
  assert_int_equal(m.n_drives, 2);
  assert_true(m.drives[1].read == 3e9 && m.drives[1].mixed == 2.2e9);
  assert_string_equal(m.drives[1].path, "");
  parts = (struct pen_machine_parts){.drive_write = 4e9};
  test_ok(pen_machine_describe(&parts, &m));
  assert_true(m.drives[0].write == 4e9 && m.drives[0].read == 3e9);
  assert_true(m.drives[0].mixed == 0); /* not measured with this rate */
}

static void refuses(struct pen_machine_parts parts, const char *text)
{
  struct pen_machine m = desktop();
  test_fails(pen_machine_describe(&parts, &m), PEN_EUSAGE, text);
}

static void test_refusals(void **state)
{
  refuses((struct pen_machine_parts){.gpu = "voodoo2"}, "rtx4090");
  refuses((struct pen_machine_parts){.gpu = "l4", .pcie = "4x3"}, "4x16");
  refuses((struct pen_machine_parts){.gpu = "l4", .pcie = "2x16"}, "3 to 6");
  refuses((struct pen_machine_parts){.gpu = "l4", .pcie = "4x16x"}, "4x16");
  refuses((struct pen_machine_parts){.pcie = "4x16"}, "there is none");
  refuses((struct pen_machine_parts){.gpu_flops = 1e12}, "--gpu NAME");
  refuses((struct pen_machine_parts){.n_drives = 1}, "--drive-read");
  refuses((struct pen_machine_parts){.n_drives = 99, .drive_read = 1,
                                     .drive_write = 1}, "at most 16");
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_catalogue),
      cmocka_unit_test(test_parts),
      cmocka_unit_test(test_drives_of_a_profile),
      cmocka_unit_test(test_refusals),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
