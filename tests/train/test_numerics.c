/* Frozen numerics: read back the same, hashed by every field, and an option that
 * asks for others is refused by its name. */
#include "tests/test.h"

#include "src/train/numerics.h"

static struct pen_numerics sample(void)
{
  return (struct pen_numerics){.version = PEN_NUMERICS_VERSION,
                               .elem = PEN_ELEM_BF16,
                               .state = &pen_state_fp32,
                               .gemm = "openblas",
                               .gemm_variant = "0.3.21 Haswell",
                               .max_length = 512,
                               .batch_sequences = 8,
                               .accumulation = 4,
                               .head_rows = 2048,
                               .seed = 42,
                               .data_fingerprint = 0xfedcba98u};
}

static void round_trip(struct pen_numerics a)
{
  struct pen_numerics b;
  struct pen_json_writer w;
  struct pen_json *json;
  const char *text;
  size_t n;
  pen_json_writer_init(&w, NULL, 0, true);
  pen_json_begin_object(&w, NULL);
  pen_numerics_write(&a, &w);
  pen_json_end_object(&w);
  test_ok(pen_json_finish(&w, &text, &n));
  test_ok(pen_json_parse(text, n, "test", &json));
  test_ok(pen_numerics_read(json, pen_json_root(json), &b));
  assert_true(pen_numerics_hash(&a) == pen_numerics_hash(&b));
  assert_string_equal(b.gemm_variant, a.gemm_variant);
  assert_int_equal(b.data_fingerprint, a.data_fingerprint);
  assert_int_equal(b.packing, a.packing);
  pen_json_free(&json);
  pen_json_writer_done(&w);
}

static void test_round_trip(void **state)
{
  (void)state;
  struct pen_numerics packed = sample();
  packed.packing = true;
  round_trip(sample());
  round_trip(packed);
}

static void test_every_field_is_hashed(void **state)
{
  (void)state;
  struct pen_numerics base = sample(), v[10];
  uint64_t hash = pen_numerics_hash(&base);
  for (int i = 0; i < 10; i++)
    v[i] = base;
  v[0].elem = PEN_ELEM_F32;
  strcpy(v[1].gemm, "onednn");
  strcpy(v[2].gemm_variant, "0.3.21 SkylakeX");
  v[3].max_length++;
  v[4].batch_sequences++;
  v[5].accumulation++;
  v[6].head_rows++;
  v[7].seed++;
  v[8].data_fingerprint++;
  v[9].packing = true;
  for (int i = 0; i < 10; i++)
    if (pen_numerics_hash(&v[i]) == hash)
      fail_msg("field %d is not in the hash", i);
}

static void test_other_numerics_are_refused_by_name(void **state)
{
  (void)state;
  struct pen_numerics run = sample();
  struct pen_train_settings same = {.model = {.gemm = "openblas",
                                              .elem = PEN_ELEM_BF16},
                                    .max_length = 512,
                                    .batch_sequences = 8,
                                    .accumulation = 4,
                                    .seed = 42,
                                    .gave_max_length = true,
                                    .gave_batch = true,
                                    .gave_accumulation = true,
                                    .gave_dtype = true,
                                    .gave_gemm = true,
                                    .gave_seed = true};
  test_ok(pen_numerics_check(&run, &same));
  struct pen_train_settings s = same;
  s.max_length = 256;
  test_fails(pen_numerics_check(&run, &s), PEN_EMISMATCH, "--max-length 256");
  s.gave_max_length = false; /* a default is no wish */
  test_ok(pen_numerics_check(&run, &s));
  s = same;
  s.batch_sequences = 1;
  test_fails(pen_numerics_check(&run, &s), PEN_EMISMATCH,
             "--per-device-train-batch-size 1");
  s = same;
  s.packing = s.gave_packing = true;
  test_fails(pen_numerics_check(&run, &s), PEN_EMISMATCH, "--packing true");
  s.gave_packing = false;
  test_ok(pen_numerics_check(&run, &s));
  s = same;
  s.accumulation = 1;
  test_fails(pen_numerics_check(&run, &s), PEN_EMISMATCH,
             "--gradient-accumulation-steps 1");
  s = same;
  s.seed = 1;
  test_fails(pen_numerics_check(&run, &s), PEN_EMISMATCH, "--seed 1");
  s = same;
  s.model.elem = PEN_ELEM_F32;
  test_fails(pen_numerics_check(&run, &s), PEN_EMISMATCH, "--dtype fp32");
  s = same;
  s.model.gemm = "reference";
  test_fails(pen_numerics_check(&run, &s), PEN_EMISMATCH, "--gemm reference");
  s.model.gemm = "auto";
  test_ok(pen_numerics_check(&run, &s));
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_round_trip),
      cmocka_unit_test(test_every_field_is_hashed),
      cmocka_unit_test(test_other_numerics_are_refused_by_name),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
