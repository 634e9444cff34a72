/* Profiles: what is written is read back to the bit, and what cannot be a
 * machine is refused with the key named. */
#include "tests/test.h"

#include "offload/machine.h"
#include "tests/tmpdir.h"

static struct pen_machine every_field(void)
{
  return (struct pen_machine){
      .name = "a \"machine\"",
      .cores = 7,
      .products = {{1e11 / 3, 2e11 / 3, 5e11 / 7, 6e11 / 7},
                   {1e11 / 6, 2e11 / 6, 5e11 / 9, 6e11 / 9},
                   {1e11 / 7, 2e11 / 7, 5e11 / 11, 6e11 / 11}},
      .dram_read = 1e10 / 3, .dram_write = 1e10 / 7,
      .dram_update = 1e10 / 9, .upload = 1e10 / 11, .download = 1e10 / 13,
      .adam_core = {1e9 / 3, 2e9 / 3, 5e8, 1e8}, .ram_bytes = 64e9, .device = "a GPU",
      .device_fp32 = 1e13 / 3, .device_bf16 = 1e14 / 3,
      .device_memory = 1e12 / 3, .device_bytes = 24e9,
      .n_drives = 2,
      .drives = {{.path = "/a", .read = 7e9 / 3, .write = 5e9 / 3,
                  .mixed = 6e9 / 7, .latency_s = 1e-4 / 3, .sync_s = 1e-3 / 7},
                 {.read = 1, .write = 2}}};
}

static void test_round_trip(void **state)
{
  struct pen_machine m = every_field(), read;
  const char *path = test_tmp("machine.json");
  memset(&read, 0xff, sizeof read);
  test_ok(pen_machine_save(&m, path));
  test_ok(pen_machine_load(path, &read));
  assert_memory_equal(&m, &read, sizeof m);
}

static void refuses(const char *text, const char *part)
{
  struct pen_json *json = NULL;
  struct pen_machine m;
  test_ok(pen_json_parse(text, strlen(text), "profile", &json));
  test_fails(pen_machine_parse(json, &m), PEN_EFORMAT, part);
  pen_json_free(&json);
}

static void test_refusals(void **state)
{
  refuses("{}", "version");
  refuses("{\"version\":2,\"cores\":1}", "run penstock bench");
  refuses("{\"version\":1}", "cores");
  refuses("{\"version\":1,\"cores\":0}", "cores");
  refuses("{\"version\":1,\"cores\":1,\"fp32_flops\":-1}", "fp32_flops");
  refuses("{\"version\":1,\"cores\":1,\"fp32_flop\":1}", "fp32_flop");
  refuses("{\"version\":1,\"cores\":1,\"drives\":[{\"reads\":1}]}", "reads");
  refuses("{\"version\":1,\"cores\":1,\"drives\":[{\"sync_s\":-1}]}", "sync_s");
  refuses("{\"version\":1,\"cores\":1,\"drives\":{}}", "drives");
  refuses("{\"version\":1,\"cores\":1,\"drives\":[null]}", "an object with its rates");
  refuses("{\"version\":1,\"cores\":1,\"drives\":[[7]]}", "an object with its rates");
  refuses("{\"version\":1,\"cores\":1,\"drives\":[{},{},{},{},{},{},{},{},{},"
          "{},{},{},{},{},{},{},{}]}", "more than 16");
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_round_trip),
      cmocka_unit_test(test_refusals),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
