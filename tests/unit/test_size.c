/* Byte counts: no wrap, and the text forms. */
#include "base/size.h"

#include "base/rng.h"
#include "tests/test.h"

static void test_arithmetic(void **state)
{
  size_t n = 5;
  assert_true(pen_size_add(SIZE_MAX - 1, 1, &n));
  assert_true(n == SIZE_MAX);
  assert_false(pen_size_add(SIZE_MAX, 1, &n));
  assert_true(n == SIZE_MAX); /* untouched */
  assert_true(pen_size_mul(SIZE_MAX / 2, 2, &n));
  assert_false(pen_size_mul(SIZE_MAX / 2 + 1, 2, &n));
  assert_true(pen_size_round_up(4097, 4096, &n));
  assert_int_equal(n, 8192);
  assert_true(pen_size_round_up(0, 4096, &n));
  assert_int_equal(n, 0);
  assert_true(pen_size_round_up(10, 7, &n));
  assert_int_equal(n, 14);
  assert_false(pen_size_round_up(SIZE_MAX, 4096, &n));
  uint64_t u = 0;
  assert_true(pen_size_round_up_u64(UINT64_MAX - 4095, 4096, &u));
  assert_false(pen_size_round_up_u64(UINT64_MAX - 4094, 4096, &u));
  assert_false(pen_size_mul_u64((uint64_t)1 << 32, (uint64_t)1 << 32, &u));
  assert_false(pen_size_add_u64(UINT64_MAX, 1, &u));
}

static void test_parse(void **state)
{
  static const struct {
    const char *text;
    uint64_t bytes;
  } good[] = {
    { "0", 0 },           { "4096", 4096 },
    { "24GiB", 24 * PEN_GIB },
    { "800GB", 800000000000u },
    { "1.5GiB", 3 * PEN_GIB / 2 },
    { " 1.5 gib", 3 * PEN_GIB / 2 },
    { "64MiB", 64 * PEN_MIB }, { "2TB", 2000000000000u },
    { "1TiB", (uint64_t)1 << 40 }, { ".5kB", 500 },
    { "3KiB", 3072 },     { "7B", 7 },
    { "0.001KiB", 1 },    { "1.0", 1 },
    { "18446744073709551615", UINT64_MAX },
  };
  for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
    uint64_t bytes = 1;
    test_ok(pen_size_parse(good[i].text, &bytes));
    if (bytes != good[i].bytes)
      fail_msg("%s gave %llu", good[i].text, (unsigned long long)bytes);
  }
}

static void test_parse_refuses(void **state)
{
  static const char *const bad[] = {
    "", "GiB", "-1", "1e9", "12 parsecs", "18446744073709551616", ".", "1.5",
    "16777216TiB", "99999999999999999999GiB", "1GiBx", "0x10", "1,5GiB",
  };
  uint64_t bytes = 42;
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
    test_fails(pen_size_parse(bad[i], &bytes), PEN_EUSAGE, bad[i]);
  assert_int_equal(bytes, 42);
}

static void check_format(uint64_t n_bytes, const char *text)
{
  char got[PEN_SIZE_TEXT_BYTES];
  pen_size_format(n_bytes, got);
  assert_string_equal(got, text);
}

static void test_format(void **state)
{
  check_format(0, "0 B");
  check_format(1023, "1023 B");
  check_format(1024, "1.00 KiB");
  check_format(3 * PEN_GIB / 2, "1.50 GiB");
  check_format(10 * PEN_MIB, "10.0 MiB");
  check_format(512 * PEN_MIB, "512 MiB");
  check_format(1023 * PEN_MIB, "1.00 GiB");
  check_format(UINT64_MAX, "16.0 EiB");
}

static void test_exact_form_reads_back(void **state)
{
  uint64_t seed = test_seed(1);
  char text[PEN_SIZE_TEXT_BYTES + 8];
  for (uint64_t i = 0; i < 20000; i++) {
    uint64_t n = pen_rng_u64(seed, 0, i) >> (i % 64), back;
    if (i % 3 == 0)
      n = n / PEN_MIB * PEN_MIB;
    pen_size_format_exact(n, text);
    test_ok(pen_size_parse(text, &back));
    assert_true(back == n);
  }
  pen_size_format_exact(24 * PEN_GIB, text);
  assert_string_equal(text, "24GiB");
  pen_size_format_exact(UINT64_MAX, text);
  assert_string_equal(text, "18446744073709551615");
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_arithmetic),
    cmocka_unit_test(test_parse),
    cmocka_unit_test(test_parse_refuses),
    cmocka_unit_test(test_format),
    cmocka_unit_test(test_exact_form_reads_back),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
