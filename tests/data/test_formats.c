/* Other programs' token files, and bytes: read, recognised, refused. */
#include "tests/data/test.h"
#include "tests/data/token_writer.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/data/tokens.h"

static int open_as(const char *path, enum pen_tokens_format format, uint32_t vocab_size,
                   struct pen_tokens **ret)
{
  struct pen_tokens_options options = { .format = format, .vocab_size = vocab_size };

  return pen_tokens_open(path, &options, ret);
}

/* Opens `path`, which must be of `format` and hold exactly ids[n]. */
static struct pen_tokens *holds(const char *path, enum pen_tokens_format ask,
                                enum pen_tokens_format format, const uint32_t *ids, size_t n)
{
  struct pen_tokens *tokens;
  uint32_t got[256];
  uint8_t trained[256];

  assert_done(open_as(path, ask, 0, &tokens));
  assert_int_equal(pen_tokens_info(tokens)->format, format);
  assert_int_equal(pen_tokens_info(tokens)->n_tokens, n);
  assert_done(pen_tokens_read(tokens, 0, n, got, trained));
  assert_memory_equal(got, ids, n * sizeof *ids);
  for (size_t i = 0; i < n; i++)
    assert_int_equal(trained[i], 1);
  assert_done(pen_tokens_verify(tokens));
  return tokens;
}

static void plain_numbers(void **state)
{
  const uint32_t small[] = { 7, 65535, 0 }, large[] = { 7, 70000, 0x7ffffffe };
  uint8_t u16[6], u32[12];
  struct pen_tokens *tokens;

  for (size_t i = 0; i < 3; i++) {
    put_u16(u16 + 2 * i, small[i]);
    put_u32(u32 + 4 * i, large[i]);
  }
  tokens = holds(test_file("a.bin", u16, 6), PEN_TOKENS_AUTO, PEN_TOKENS_U16, small, 3);
  pen_tokens_close(&tokens);
  tokens = holds(test_file("a.u16", u16, 6), PEN_TOKENS_AUTO, PEN_TOKENS_U16, small, 3);
  pen_tokens_close(&tokens);
  tokens = holds(test_file("a.u32", u32, 12), PEN_TOKENS_AUTO, PEN_TOKENS_U32, large, 3);
  pen_tokens_close(&tokens);
  tokens = holds(test_file("b.bin", u32, 12), PEN_TOKENS_U32, PEN_TOKENS_U32, large, 3);
  pen_tokens_close(&tokens);
  /* a vocabulary that two bytes cannot hold makes a plain .bin uint32 */
  assert_done(open_as(test_path("b.bin"), PEN_TOKENS_AUTO, 0x7fffffff, &tokens));
  assert_int_equal(pen_tokens_info(tokens)->format, PEN_TOKENS_U32);
  pen_tokens_close(&tokens);

  assert_refused(open_as(test_file("odd.bin", u16, 5), PEN_TOKENS_AUTO, 0, &tokens),
                 PEN_ESHORT, "5 bytes");
  assert_refused(open_as(test_file("odd.u32", u32, 11), PEN_TOKENS_AUTO, 0, &tokens),
                 PEN_ESHORT, "11 bytes");
  assert_refused(open_as(test_file("none.bin", u32, 0), PEN_TOKENS_AUTO, 0, &tokens),
                 PEN_EFORMAT, "no tokens");
}

static void plain_ids_above_the_vocabulary(void **state)
{
  uint8_t u16[6] = { 1, 0, 2, 0, 100, 0 };
  uint32_t ids[3];
  struct pen_tokens *tokens;

  assert_done(open_as(test_file("v.bin", u16, 6), PEN_TOKENS_AUTO, 100, &tokens));
  assert_refused(pen_tokens_read(tokens, 1, 2, ids, NULL), PEN_EFORMAT, "token 2");
  pen_tokens_close(&tokens);
}

static void llmc_both_kinds(void **state)
{
  const uint32_t small[] = { 50256, 1, 2, 3 }, large[] = { 128000, 1, 2, 3 };
  uint8_t file[1024 + 16] = { 0 };
  struct pen_tokens *tokens;

  put_u32(file, 20240520);
  put_u32(file + 4, 1);
  put_u32(file + 8, 4);
  for (size_t i = 0; i < 4; i++)
    put_u16(file + 1024 + 2 * i, small[i]);
  tokens = holds(test_file("gpt2.bin", file, 1024 + 8), PEN_TOKENS_AUTO, PEN_TOKENS_LLMC,
                 small, 4);
  pen_tokens_close(&tokens);
  assert_refused(open_as(test_file("s.bin", file, 1024 + 7), PEN_TOKENS_AUTO, 0, &tokens),
                 PEN_ESHORT, "1032");
  assert_refused(open_as(test_file("l.bin", file, 1024 + 9), PEN_TOKENS_AUTO, 0, &tokens),
                 PEN_EFORMAT, "1032");
  assert_refused(open_as(test_file("h.bin", file, 1000), PEN_TOKENS_AUTO, 0, &tokens),
                 PEN_ESHORT, "1000 bytes");
  put_u32(file + 8, 0x80000004);
  assert_refused(open_as(test_file("n.bin", file, 1024 + 8), PEN_TOKENS_AUTO, 0, &tokens),
                 PEN_ESHORT, "2147483652 tokens");

  put_u32(file, 20240801);
  put_u32(file + 8, 4);
  assert_refused(open_as(test_file("w.bin", file, 1024 + 16), PEN_TOKENS_AUTO, 0, &tokens),
                 PEN_EUNSUPPORTED, "version 1");
  put_u32(file + 4, 7);
  for (size_t i = 0; i < 4; i++)
    put_u32(file + 1024 + 4 * i, large[i]);
  tokens = holds(test_file("llama3.bin", file, 1024 + 16), PEN_TOKENS_AUTO, PEN_TOKENS_LLMC,
                 large, 4);
  pen_tokens_close(&tokens);
}

/* Three pieces of 2, 3 and 1 tokens; documents: pieces 0-1, none, piece 2. */
static size_t megatron_index(uint8_t *index, uint8_t type, uint32_t width)
{
  const uint32_t lengths[] = { 2, 3, 1 };
  const uint64_t documents[] = { 0, 2, 2, 3 };
  uint64_t pointer = 0;

  memcpy(index, "MMIDIDX\0\0", 9);
  put_u64(index + 9, 1);
  index[17] = type;
  put_u64(index + 18, 3);
  put_u64(index + 26, 4);
  for (size_t i = 0; i < 3; i++) {
    put_u32(index + 34 + 4 * i, lengths[i]);
    put_u64(index + 46 + 8 * i, pointer);
    pointer += lengths[i] * width;
  }
  for (size_t i = 0; i < 4; i++)
    put_u64(index + 70 + 8 * i, documents[i]);
  return 102;
}

static void megatron_pairs(void **state)
{
  const uint32_t ids[] = { 10, 11, 12, 13, 14, 15 };
  const uint64_t expected[] = { 0, 5, 5, 6 };
  const struct { uint8_t type, width; } kinds[] = { { 1, 1 }, { 4, 4 }, { 8, 2 } };
  uint8_t index[128], data[24];
  uint64_t borders[4];
  struct pen_tokens *tokens;

  for (size_t k = 0; k < 3; k++) {
    memset(data, 0, sizeof data);
    for (size_t i = 0; i < 6; i++)
      data[i * kinds[k].width] = (uint8_t)ids[i];
    test_file("m.idx", index, megatron_index(index, kinds[k].type, kinds[k].width));
    tokens = holds(test_file("m.bin", data, 6 * kinds[k].width), PEN_TOKENS_AUTO,
                   PEN_TOKENS_MEGATRON, ids, 6);
    assert_int_equal(pen_tokens_info(tokens)->n_docs, 3);
    assert_done(pen_tokens_borders(tokens, 0, 4, borders));
    assert_memory_equal(borders, expected, sizeof expected);
    pen_tokens_close(&tokens);
  }
}

static void megatron_broken(int code, const char *part, size_t at, uint64_t value,
                            size_t width, size_t n_index, size_t n_data)
{
  uint8_t index[128], data[24] = { 0 };
  struct pen_tokens *tokens;

  megatron_index(index, 8, 2);
  if (width == 1)
    index[at] = (uint8_t)value;
  else if (width == 4)
    put_u32(index + at, (uint32_t)value);
  else if (width == 8)
    put_u64(index + at, value);
  test_file("x.idx", index, n_index);
  assert_refused(open_as(test_file("x.bin", data, n_data), PEN_TOKENS_AUTO, 0, &tokens),
                 code, part);
}

static void megatron_damage(void **state)
{
  megatron_broken(PEN_ESHORT, "11 bytes", 0, 0, 0, 102, 11);
  megatron_broken(PEN_EFORMAT, "13 bytes", 0, 0, 0, 102, 13);
  megatron_broken(PEN_ESHORT, "101 bytes", 0, 0, 0, 101, 12);
  megatron_broken(PEN_EFORMAT, "103 bytes", 0, 0, 0, 103, 12);
  megatron_broken(PEN_ESHORT, "20 bytes", 0, 0, 0, 20, 12);
  megatron_broken(PEN_EFORMAT, "version 1", 9, 2, 8, 102, 12);
  megatron_broken(PEN_EUNSUPPORTED, "type 5", 17, 5, 1, 102, 12);
  megatron_broken(PEN_EUNSUPPORTED, "type 200", 17, 200, 1, 102, 12);
  megatron_broken(PEN_EFORMAT, "pieces", 18, UINT64_MAX, 8, 102, 12);
  megatron_broken(PEN_ESHORT, "4 pieces", 18, 4, 8, 102, 12);
  megatron_broken(PEN_EFORMAT, "indices", 26, UINT64_MAX / 8 + 2, 8, 102, 12);
  megatron_broken(PEN_EFORMAT, "piece 1", 38, 0xffffffff, 4, 102, 12);
  megatron_broken(PEN_ESHORT, "piece 1", 38, 0x7fffffff, 4, 102, 12);
  megatron_broken(PEN_EFORMAT, "piece 1", 54, 3, 8, 102, 12);
  megatron_broken(PEN_EFORMAT, "index 1", 78, 4, 8, 102, 12);
  megatron_broken(PEN_EFORMAT, "index 3", 94, 2, 8, 102, 12);
  megatron_broken(PEN_EFORMAT, "index 0", 70, 1, 8, 102, 12);
}

static void bytes_of_a_text(void **state)
{
  const uint32_t ids[] = { 'H', 'i', 10, 0xc3, 0xa4 };
  struct pen_tokens *tokens = holds(test_file("a.txt", "Hi\n\xc3\xa4", 5), PEN_TOKENS_AUTO,
                                    PEN_TOKENS_BYTES, ids, 5);
  uint8_t hash[32] = { 1 };
  struct pen_tokens_options options = { .tokenizer_sha256 = hash };

  assert_int_equal(pen_tokens_info(tokens)->vocab_size, 256);
  pen_tokens_close(&tokens);
  assert_refused(pen_tokens_open(test_path("a.txt"), &options, &tokens), PEN_EMISMATCH,
                 "penstock-prepare");
  assert_refused(open_as(test_path("a.txt"), PEN_TOKENS_AUTO, 255, &tokens), PEN_EMISMATCH,
                 "255");
}

static void bytes_of_a_directory(void **state)
{
  /* b.txt, sub/a.c; not: hidden, binary, empty, link */
  const uint32_t ids[] = { 'b', 'b', 'b', 'a', 'a' };
  const uint64_t expected[] = { 0, 3, 5 };
  uint64_t borders[3];
  struct pen_tokens *tokens;
  uint32_t got[5];

  assert_int_equal(mkdir(test_path("tree"), 0777), 0);
  assert_refused(open_as(test_path("tree"), PEN_TOKENS_AUTO, 0, &tokens), PEN_EFORMAT,
                 "no text file");
  assert_int_equal(mkdir(test_path("tree/sub"), 0777), 0);
  assert_int_equal(mkdir(test_path("tree/.git"), 0777), 0);
  test_file("tree/sub/a.c", "aa", 2);
  test_file("tree/b.txt", "bbb", 3);
  test_file("tree/.hidden", "hhh", 3);
  test_file("tree/.git/x", "ggg", 3);
  test_file("tree/binary", "x\0y", 3);
  test_file("tree/empty", "", 0);
  assert_int_equal(symlink("b.txt", test_path("tree/link")), 0);
  tokens = holds(test_path("tree"), PEN_TOKENS_AUTO, PEN_TOKENS_BYTES, ids, 5);
  assert_int_equal(pen_tokens_info(tokens)->n_docs, 2);
  assert_done(pen_tokens_borders(tokens, 0, 3, borders));
  assert_memory_equal(borders, expected, sizeof expected);
  assert_done(pen_tokens_read(tokens, 2, 2, got, NULL));
  assert_int_equal(got[0], 'b');
  assert_int_equal(got[1], 'a');
  test_file("tree/b.txt", "bb", 2);
  assert_refused(pen_tokens_read(tokens, 0, 5, got, NULL), PEN_ESHORT, "byte 2");
  pen_tokens_close(&tokens);
  assert_refused(open_as(test_path("tree"), PEN_TOKENS_LLMC, 0, &tokens), PEN_EUSAGE,
                 "directory");
}

static void missing_file_is_named(void **state)
{
  struct pen_tokens *tokens;
  enum pen_tokens_format format;

  assert_refused(open_as("/nonexistent/data.txt", PEN_TOKENS_AUTO, 0, &tokens), ENOENT,
                 "/nonexistent/data.txt");
  assert_refused(pen_tokens_detect("/nonexistent/data.txt", 0, &format), ENOENT,
                 "/nonexistent/data.txt");
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(plain_numbers),
    cmocka_unit_test(plain_ids_above_the_vocabulary),
    cmocka_unit_test(llmc_both_kinds),
    cmocka_unit_test(megatron_pairs),
    cmocka_unit_test(megatron_damage),
    cmocka_unit_test(bytes_of_a_text),
    cmocka_unit_test(bytes_of_a_directory),
    cmocka_unit_test(missing_file_is_named),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
