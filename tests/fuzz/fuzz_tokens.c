/* fuzz_tokens.c: token files of any bytes, in every format that is read.
 *
 * The first byte says by which name the rest is found: a .pent, a .bin (llm.c's
 * or plain numbers), a .u32, or Megatron's pair, whose index then is as long as
 * the second byte says in pairs of bytes.  Of a .pent the checksums of header and
 * borders are made right again where the second byte is odd, so that mutations
 * get past them.  Beyond not crashing: a failure has a text, borders rise from 0
 * to the number of tokens, and what was verified can be read, all of it. */
#include "src/data/tokens.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "src/data/bytes.h"
#include "src/data/crc32.h"
#include "tests/fuzz/fuzz.h"

#define MOST_BYTES ((size_t)1 << 16)
#define HEADER_BYTES 256

static const char *const names[] = {"f.pent", "f.bin", "f.u32", "g.bin"};
enum { PENT, BIN, U32, PAIR, N_NAMES };
static char folder[] = "/tmp/penstock-fuzz-XXXXXX";

static void forget(void)
{
  char path[64];
  for (size_t i = 0; i < N_NAMES; i++) {
    snprintf(path, sizeof path, "%s/%s", folder, names[i]);
    unlink(path);
  }
  snprintf(path, sizeof path, "%s/g.idx", folder);
  unlink(path);
  rmdir(folder);
}

static void put(const char *name, const uint8_t *bytes, size_t n)
{
  char path[64];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  FILE *f = fopen(path, "wb");
  if (!f || (n && fwrite(bytes, 1, n, f) != n) || fclose(f))
    abort();
}

/* Checksums of borders and header, where the header says that they are. */
static void seal(uint8_t *file, size_t n)
{
  uint64_t n_docs;
  if (n < HEADER_BYTES)
    return;
  memcpy(&n_docs, file + 32, sizeof n_docs); /* little-endian machines only fuzz */
  if (n_docs < n / 8) {
    uint64_t bytes = 8 * (n_docs + 1);
    uint32_t crc = bytes <= n ? pen_crc32(0, file + n - bytes, bytes) : 0;
    memcpy(file + 120, &crc, sizeof crc);
  }
  uint32_t crc = pen_crc32(0, file, HEADER_BYTES - 4);
  memcpy(file + HEADER_BYTES - 4, &crc, sizeof crc);
}

static void make_files(int name, uint8_t second, const uint8_t *data, size_t n)
{
  static uint8_t copy[MOST_BYTES];
  memcpy(copy, data, n);
  if (name == PENT && second & 1)
    seal(copy, n);
  size_t index = name == PAIR ? 2 * (size_t)second : 0;
  index = index < n ? index : n;
  if (name == PAIR)
    put("g.idx", copy, index);
  put(names[name], copy + index, n - index);
}

static void check_borders(const struct pen_tokens *tokens)
{
  const struct pen_tokens_info *info = pen_tokens_info(tokens);
  uint64_t before = 0, border = 0;
  for (uint64_t d = 0; d <= info->n_docs; d++) {
    if (pen_tokens_borders(tokens, d, 1, &border))
      fuzz_fail("%s", pen_error_text());
    if (border < before || (d == 0 && border))
      fuzz_fail("border %llu is %llu after %llu", (unsigned long long)d, (unsigned long long)border,
                (unsigned long long)before);
    before = border;
  }
  if (border != info->n_tokens)
    fuzz_fail("the last border is %llu of %llu", (unsigned long long)border,
              (unsigned long long)info->n_tokens);
}

static void check_tokens(struct pen_tokens *tokens, uint32_t vocab)
{
  static uint32_t ids[1 << 10];
  static uint8_t trained[1 << 10];
  size_t room = sizeof ids / sizeof *ids;
  uint64_t all = pen_tokens_info(tokens)->n_tokens;
  int whole = pen_tokens_verify(tokens);
  pen_error_clear();
  for (uint64_t at = 0; at < all; at += room) {
    size_t n = all - at < room ? (size_t)(all - at) : room;
    int rc = pen_tokens_read(tokens, at, n, ids, trained);
    if (whole == 0 && rc)
      fuzz_fail("verified, yet: %s", pen_error_text());
    for (size_t i = 0; rc == 0 && i < n; i++)
      if (ids[i] >= vocab || trained[i] > 1)
        fuzz_fail("id %u of %u, flag %u", ids[i], vocab, trained[i]);
    pen_error_clear();
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
  static bool made;
  if (n_bytes < 2 || n_bytes - 2 > MOST_BYTES)
    return 0;
  if (!made && (!mkdtemp(folder) || atexit(forget)))
    abort();
  made = true;
  int name = data[0] % N_NAMES;
  char path[64];
  make_files(name, data[1], data + 2, n_bytes - 2);
  snprintf(path, sizeof path, "%s/%s", folder, names[name]);
  struct pen_tokens_options options = {.vocab_size = 1000};
  struct pen_tokens *tokens = NULL;
  int rc = pen_tokens_open(path, &options, &tokens);
  if ((rc != 0) != (*pen_error_text() != '\0') || (rc != 0) != !tokens)
    fuzz_fail("code %d with the text \"%s\"", rc, pen_error_text());
  if (tokens) {
    check_borders(tokens);
    check_tokens(tokens, options.vocab_size);
  }
  pen_error_clear();
  pen_tokens_close(&tokens);
  return 0;
}
