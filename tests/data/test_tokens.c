/* The .pent format: every value comes back, every kind of damage is refused. */
#include "tests/data/test.h"
#include "tests/data/token_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "src/data/tokens.h"

#define N_TOKENS 10007
#define N_DOCS 3

static uint32_t ids[N_TOKENS];
static uint8_t trained[N_TOKENS];
static const uint64_t borders[] = { 0, 17, 17, N_TOKENS };
static const uint8_t hash[32] = { 1, 2, 3 };

static struct token_file sample(uint32_t token_bytes)
{
  return (struct token_file){ .token_bytes = token_bytes,
    .vocab_size = token_bytes == 2 ? 60000 : 200000, .records = true, .n_tokens = N_TOKENS,
    .n_docs = N_DOCS, .ids = ids, .trained = trained, .borders = borders, .sha256 = hash };
}

static int fill(void **state)
{
  uint64_t random = data_seed();

  for (size_t i = 0; i < N_TOKENS; i++) {
    ids[i] = (uint32_t)(test_random(&random) % 60000);
    trained[i] = test_random(&random) & 1;
  }
  return 0;
}

static int open_plain(const char *path, struct pen_tokens **ret)
{
  return pen_tokens_open(path, &(struct pen_tokens_options){ 0 }, ret);
}

static void every_token_comes_back(void **state)
{
  uint64_t random = data_seed();

  for (uint32_t width = 2; width <= 4; width += 2) {
    struct token_file file = sample(width);
    struct pen_tokens *tokens;
    uint32_t got[N_TOKENS];
    uint8_t got_trained[N_TOKENS];
    uint64_t got_borders[N_DOCS + 1];
    size_t n_bytes;
    if (width == 4)
      ids[5] = 199999;
    uint8_t *image = token_file_image(&file, &n_bytes);
    assert_done(open_plain(test_file("a.pent", image, n_bytes), &tokens));
    free(image);
    const struct pen_tokens_info *info = pen_tokens_info(tokens);
    assert_int_equal(info->format, PEN_TOKENS_PEN);
    assert_int_equal(info->token_bytes, width);
    assert_int_equal(info->n_tokens, N_TOKENS);
    assert_int_equal(info->n_docs, N_DOCS);
    assert_int_equal(info->bos_id, 1);
    assert_int_equal(info->eos_id, 2);
    assert_int_equal(info->pad_id, -1);
    assert_true(info->records && info->has_loss && info->has_tokenizer);
    assert_memory_equal(info->tokenizer_sha256, hash, 32);
    assert_done(pen_tokens_verify(tokens));
    assert_done(pen_tokens_borders(tokens, 0, N_DOCS + 1, got_borders));
    assert_memory_equal(got_borders, borders, sizeof borders);
    for (int i = 0; i < 50; i++) {
      uint64_t begin = i ? test_random(&random) % N_TOKENS : 0;
      size_t n = i ? test_random(&random) % (N_TOKENS - begin + 1) : N_TOKENS;
      assert_done(pen_tokens_read(tokens, begin, n, got, got_trained));
      assert_memory_equal(got, ids + begin, n * sizeof *got);
      assert_memory_equal(got_trained, trained + begin, n);
    }
    assert_refused(pen_tokens_read(tokens, N_TOKENS, 1, got, NULL), EINVAL, "10007");
    assert_refused(pen_tokens_read(tokens, UINT64_MAX, 2, got, NULL), EINVAL, "10007");
    pen_tokens_close(&tokens);
    assert_null(tokens);
    ids[5] = 5;
  }
}

static void another_tokenizer_is_refused(void **state)
{
  struct token_file file = sample(2);
  struct pen_tokens *tokens;
  uint8_t other[32] = { 9 };
  size_t n_bytes;
  uint8_t *image = token_file_image(&file, &n_bytes);
  const char *path = test_file("a.pent", image, n_bytes);
  struct pen_tokens_options options = { .tokenizer_sha256 = other };

  free(image);
  assert_refused(pen_tokens_open(path, &options, &tokens), PEN_EMISMATCH, "another tokenizer");
  options = (struct pen_tokens_options){ .tokenizer_sha256 = hash, .vocab_size = 60000 };
  assert_done(pen_tokens_open(path, &options, &tokens));
  pen_tokens_close(&tokens);
  options.vocab_size = 59999;
  assert_refused(pen_tokens_open(path, &options, &tokens), PEN_EMISMATCH, "60000");
  /* a file of bytes says so by having no tokenizer's hash */
  file.sha256 = NULL;
  image = token_file_image(&file, &n_bytes);
  path = test_file("a.pent", image, n_bytes);
  free(image);
  options.vocab_size = 60000;
  assert_refused(pen_tokens_open(path, &options, &tokens), PEN_EMISMATCH, "holds bytes");
  options.tokenizer_sha256 = NULL;
  assert_done(pen_tokens_open(path, &options, &tokens));
  pen_tokens_close(&tokens);
}

/* One change to a good file and what must come of it. */
static void broken(void (*change)(uint8_t *image, size_t *n_bytes), bool reseal, int code,
                   const char *part)
{
  struct token_file file = sample(2);
  struct pen_tokens *tokens;
  size_t n_bytes;
  uint8_t *image = token_file_image(&file, &n_bytes);

  image = realloc(image, n_bytes + 8);
  memset(image + n_bytes, 0, 8);
  change(image, &n_bytes);
  if (reseal)
    token_file_reseal(image);
  assert_refused(open_plain(test_file("b.pent", image, n_bytes), &tokens), code, part);
  free(image);
}

static void one_byte_short(uint8_t *image, size_t *n) { *n -= 1; }
static void one_byte_long(uint8_t *image, size_t *n) { *n += 1; }
static void header_only_half(uint8_t *image, size_t *n) { *n = 128; }
static void empty(uint8_t *image, size_t *n) { *n = 0; }
static void magic(uint8_t *image, size_t *n) { image[0] = 'X'; }
static void version(uint8_t *image, size_t *n) { put_u32(image + 8, 2); }
static void header_bit(uint8_t *image, size_t *n) { image[30] ^= 1; }
static void width_three(uint8_t *image, size_t *n) { put_u32(image + 16, 3); }
static void unknown_flag(uint8_t *image, size_t *n) { image[20] |= 16; }
static void one_token_more(uint8_t *image, size_t *n) { put_u64(image + 24, N_TOKENS + 64); }
static void tokens_overflow(uint8_t *image, size_t *n) { put_u64(image + 24, UINT64_MAX / 2 + 2); }
static void docs_overflow(uint8_t *image, size_t *n) { put_u64(image + 32, UINT64_MAX); }
static void no_docs(uint8_t *image, size_t *n) { put_u64(image + 32, 0); }
static void trained_too_many(uint8_t *image, size_t *n) { put_u64(image + 40, N_TOKENS + 1); }
static void no_vocabulary(uint8_t *image, size_t *n) { put_u32(image + 48, 0); }

/* The counts and the stated size agree with each other, not with the file. */
static void all_counts_too_large(uint8_t *image, size_t *n)
{
  put_u64(image + 24, N_TOKENS + 32);
  put_u64(image + 128, *n + 64);
}

static void border_falls(uint8_t *image, size_t *n) { put_u64(image + *n - 16, 16); }
static void border_past_end(uint8_t *image, size_t *n) { put_u64(image + *n - 8, N_TOKENS + 1); }
static void border_not_zero(uint8_t *image, size_t *n) { put_u64(image + *n - 32, 1); }
static void border_moved(uint8_t *image, size_t *n) { put_u64(image + *n - 16, 18); }

static void damage_is_refused(void **state)
{
  broken(one_byte_short, true, PEN_ESHORT, "10007 tokens");
  broken(one_byte_long, true, PEN_EFORMAT, "10007 tokens");
  broken(header_only_half, false, PEN_ESHORT, "128 bytes");
  broken(empty, false, PEN_ESHORT, "0 bytes");
  broken(magic, true, PEN_EFORMAT, "PENTOKEN");
  broken(version, true, PEN_EUNSUPPORTED, "version 2");
  broken(header_bit, false, PEN_ECORRUPT, "checksum");
  broken(width_three, true, PEN_EFORMAT, "3 bytes");
  broken(unknown_flag, true, PEN_EUNSUPPORTED, "flags");
  broken(one_token_more, true, PEN_EFORMAT, "does not");
  broken(tokens_overflow, true, PEN_EFORMAT, "does not");
  broken(docs_overflow, true, PEN_EFORMAT, "does not");
  broken(no_docs, true, PEN_EFORMAT, "0 documents");
  broken(trained_too_many, true, PEN_EFORMAT, "10008");
  broken(no_vocabulary, true, PEN_EFORMAT, "vocabulary of 0");
  broken(all_counts_too_large, true, PEN_ESHORT, "10039 tokens");
  broken(border_falls, true, PEN_EFORMAT, "border 2");
  broken(border_past_end, true, PEN_EFORMAT, "border 3");
  broken(border_not_zero, true, PEN_EFORMAT, "border 0");
  broken(border_moved, true, PEN_ECORRUPT, "borders");
}

/* Any one bit of the file: refused at open or by verify, except in the padding
 * between sections, which nothing reads. */
static void any_flipped_bit_is_found(void **state)
{
  const uint64_t few_borders[] = { 0, 3, 9 };
  struct token_file file = { .token_bytes = 2, .vocab_size = 65535, .n_tokens = 9, .n_docs = 2,
                             .ids = ids, .trained = trained, .borders = few_borders };
  size_t n_bytes;
  uint8_t *image = token_file_image(&file, &n_bytes);

  assert_int_equal(n_bytes, 256 + 64 + 64 + 24);
  const char *path = test_file("c.pent", image, n_bytes);
  int fd = open(path, O_WRONLY);
  assert_true(fd >= 0);
  for (size_t bit = 0; bit < n_bytes * 8; bit++) {
    struct pen_tokens *tokens;
    size_t byte = bit / 8;
    uint8_t flipped = image[byte] ^ (uint8_t)(1 << bit % 8);
    assert_int_equal(pwrite(fd, &flipped, 1, (off_t)byte), 1);
    pen_error_clear();
    int r = open_plain(path, &tokens);
    if (r == 0) {
      r = pen_tokens_verify(tokens);
      pen_tokens_close(&tokens);
    }
    bool padding = (byte >= 256 + 18 && byte < 320) || (byte >= 320 + 2 && byte < 384);
    if ((r == 0) != padding)
      fail_msg("bit %zu: %s", bit, r ? pen_error_text() : "not found");
    assert_int_equal(pwrite(fd, &image[byte], 1, (off_t)byte), 1);
  }
  close(fd);
  free(image);
  pen_error_clear();
}

static void id_outside_vocabulary_is_named(void **state)
{
  struct token_file file = sample(2);
  struct pen_tokens *tokens;
  uint32_t got[N_TOKENS];
  size_t n_bytes;

  ids[9001] = 60000;
  uint8_t *image = token_file_image(&file, &n_bytes);
  assert_done(open_plain(test_file("d.pent", image, n_bytes), &tokens));
  assert_done(pen_tokens_read(tokens, 0, 9001, got, NULL));
  assert_refused(pen_tokens_read(tokens, 0, N_TOKENS, got, NULL), PEN_EFORMAT,
                 "token 9001");
  assert_refused(pen_tokens_verify(tokens), PEN_EFORMAT, "60000");
  pen_tokens_close(&tokens);
  free(image);
  ids[9001] = 0;
}

static void file_cut_while_open_is_noticed(void **state)
{
  struct token_file file = sample(2);
  struct pen_tokens *tokens;
  uint32_t got[N_TOKENS];
  size_t n_bytes;
  uint8_t *image = token_file_image(&file, &n_bytes);
  const char *path = test_file("e.pent", image, n_bytes);

  assert_done(open_plain(path, &tokens));
  test_file("e.pent", image, 1000);
  assert_refused(pen_tokens_read(tokens, 0, N_TOKENS, got, NULL), PEN_ESHORT, "byte 1000");
  pen_tokens_close(&tokens);
  free(image);
}

static void tokenizer_hash_of_directory(void **state)
{
  uint8_t got[PEN_SHA256_BYTES], abc[PEN_SHA256_BYTES];
  struct pen_sha256 sha;
  bool found = true;
  const char *dir = test_path(".");

  pen_sha256_begin(&sha);
  pen_sha256_add(&sha, "abc", 3);
  pen_sha256_end(&sha, abc);
  assert_done(pen_tokens_hash_tokenizer(dir, got, &found));
  assert_false(found);
  test_file("vocab.json", "a", 1);
  assert_done(pen_tokens_hash_tokenizer(dir, got, &found));
  assert_false(found);
  test_file("merges.txt", "bc", 2);
  assert_done(pen_tokens_hash_tokenizer(dir, got, &found));
  assert_true(found);
  assert_memory_equal(got, abc, sizeof abc);
  test_file("tokenizer.json", "abcd", 4);
  assert_done(pen_tokens_hash_tokenizer(dir, got, &found));
  assert_memory_not_equal(got, abc, sizeof abc);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_token_comes_back),
    cmocka_unit_test(another_tokenizer_is_refused),
    cmocka_unit_test(damage_is_refused),
    cmocka_unit_test(any_flipped_bit_is_found),
    cmocka_unit_test(id_outside_vocabulary_is_named),
    cmocka_unit_test(file_cut_while_open_is_noticed),
    cmocka_unit_test(tokenizer_hash_of_directory),
  };
  return cmocka_run_group_tests(tests, fill, NULL);
}
