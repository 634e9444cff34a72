/* CRC-32C: known vectors, table against instruction, and joining. */
#include "io/crc32c.h"
#include "tests/test.h"

/* RFC 3720, B.4, and the check value of the CRC catalogues. */
static void test_vectors(void **state)
{
  unsigned char b[48];
  assert_int_equal(pen_crc32c(0, "123456789", 9), 0xe3069283);
  assert_int_equal(pen_crc32c_table(0, "123456789", 9), 0xe3069283);
  assert_int_equal(pen_crc32c(0, "", 0), 0);
  memset(b, 0, 32);
  assert_int_equal(pen_crc32c(0, b, 32), 0x8a9136aa);
  memset(b, 0xff, 32);
  assert_int_equal(pen_crc32c(0, b, 32), 0x62a8ab43);
  for (int i = 0; i < 32; i++)
    b[i] = (unsigned char)i;
  assert_int_equal(pen_crc32c(0, b, 32), 0x46dd794e);
  for (int i = 0; i < 32; i++)
    b[i] = (unsigned char)(31 - i);
  assert_int_equal(pen_crc32c(0, b, 32), 0x113fdb5c);
}

static void fill(unsigned char *p, size_t n, uint64_t seed)
{
  for (size_t i = 0; i < n; i++) {
    seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
    p[i] = (unsigned char)(seed >> 56);
  }
}

/* Around every border of the three interleaved runs, at every misalignment. */
static void test_table_equals_instruction(void **state)
{
  static unsigned char b[3 * 12288 + 64];
  static const size_t lengths[] = {0,     1,     7,     8,     9,     63,
                                   4095,  4096,  12287, 12288, 12289, 24575,
                                   24576, 24577, 36864, 36871};
  fill(b, sizeof b, test_seed(1));
  for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
    for (size_t at = 0; at < 9; at++) {
      uint32_t start = (uint32_t)(i * 2654435761u);
      assert_int_equal(pen_crc32c(start, b + at, lengths[i]),
                       pen_crc32c_table(start, b + at, lengths[i]));
    }
}

static void test_pieces(void **state)
{
  static unsigned char b[20000];
  fill(b, sizeof b, test_seed(2));
  uint32_t whole = pen_crc32c(0, b, sizeof b);
  for (size_t cut = 0; cut <= sizeof b; cut += 1237) {
    uint32_t first = pen_crc32c(0, b, cut);
    uint32_t second = pen_crc32c(0, b + cut, sizeof b - cut);
    assert_int_equal(pen_crc32c(first, b + cut, sizeof b - cut), whole);
    assert_int_equal(pen_crc32c_combine(first, second, sizeof b - cut), whole);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_vectors),
      cmocka_unit_test(test_table_equals_instruction),
      cmocka_unit_test(test_pieces),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
