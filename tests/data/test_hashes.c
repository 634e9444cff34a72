/* CRC-32 and SHA-256 against published check values, whole and in parts. */
#include "tests/data/test.h"
#include "tests/data/token_writer.h"

#include "src/data/crc32.h"
#include "src/data/sha256.h"

static void crc_check_value(void **state)
{
  assert_int_equal(pen_crc32(0, "123456789", 9), 0xCBF43926);
  assert_int_equal(pen_crc32(0, "", 0), 0);
}

/* Bit by bit, as the polynomial defines it. */
static uint32_t crc_slow(const uint8_t *bytes, size_t n)
{
  uint32_t crc = ~0u;

  for (size_t i = 0; i < n; i++) {
    crc ^= bytes[i];
    for (int bit = 0; bit < 8; bit++)
      crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320u : 0);
  }
  return ~crc;
}

static void crc_any_length_and_cut(void **state)
{
  uint64_t random = data_seed();
  uint8_t bytes[200];

  for (size_t i = 0; i < sizeof bytes; i++)
    bytes[i] = (uint8_t)test_random(&random);
  for (size_t n = 0; n <= sizeof bytes; n++) {
    size_t cut = n ? test_random(&random) % n : 0;
    uint32_t expected = crc_slow(bytes, n);
    assert_int_equal(pen_crc32(0, bytes, n), expected);
    assert_int_equal(pen_crc32(pen_crc32(0, bytes, cut), bytes + cut, n - cut), expected);
  }
}

static void sha_is(const char *text, size_t repeat, size_t piece, const char *expected)
{
  struct pen_sha256 sha;
  uint8_t digest[PEN_SHA256_BYTES];
  char hex[2 * PEN_SHA256_BYTES + 1];

  pen_sha256_begin(&sha);
  for (size_t i = 0; i < repeat; i++)
    for (size_t at = 0; at < strlen(text); at += piece)
      pen_sha256_add(&sha, text + at,
                     strlen(text) - at < piece ? strlen(text) - at : piece);
  pen_sha256_end(&sha, digest);
  pen_sha256_hex(digest, hex);
  assert_string_equal(hex, expected);
}

/* The examples of FIPS 180-4's companion document. */
static void sha_published(void **state)
{
  const char *two_blocks = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";

  sha_is("abc", 1, 3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  sha_is("", 1, 1, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  for (size_t piece = 1; piece < 57; piece++)
    sha_is(two_blocks, 1, piece,
           "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  sha_is("aaaaaaaaaa", 100000, 7,
         "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

static void sha_of_file(void **state)
{
  struct pen_sha256 sha;
  uint8_t digest[PEN_SHA256_BYTES];
  char hex[2 * PEN_SHA256_BYTES + 1];

  pen_sha256_begin(&sha);
  assert_done(pen_sha256_add_file(&sha, test_file("abc", "abc", 3)));
  pen_sha256_end(&sha, digest);
  pen_sha256_hex(digest, hex);
  assert_string_equal(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(crc_check_value),
    cmocka_unit_test(crc_any_length_and_cut),
    cmocka_unit_test(sha_published),
    cmocka_unit_test(sha_of_file),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
