/* token_writer.h: writes token files for tests, whole or broken on purpose. */
#ifndef PEN_TESTS_DATA_TOKEN_WRITER_H
#define PEN_TESTS_DATA_TOKEN_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What a .pent file is to hold.  `trained` NULL: no loss bits. */
struct token_file {
  uint32_t token_bytes, vocab_size;
  bool records;
  uint64_t n_tokens, n_docs;
  const uint32_t *ids;      /* [n_tokens] */
  const uint8_t *trained;   /* [n_tokens] or NULL */
  const uint64_t *borders;  /* [n_docs+1] */
  const uint8_t *sha256;    /* [32] or NULL */
};

/* The bytes of the file, malloc'ed; the caller frees. */
uint8_t *token_file_image(const struct token_file *file, size_t *ret_bytes);
/* Makes the header's checksum right again after a test has changed it. */
void token_file_reseal(uint8_t *image);

/* Writes bytes to `name` in a temporary directory of this process, which is
 * removed at exit; returns its path (static, valid until the 16th next call). */
const char *test_file(const char *name, const void *bytes, size_t n_bytes);
/* A path in that directory. */
const char *test_path(const char *name);

void put_u16(uint8_t *at, uint32_t value);
void put_u32(uint8_t *at, uint32_t value);
void put_u64(uint8_t *at, uint64_t value);

/* Pseudo-random numbers of a test; the seed is PEN_SEED or a fixed one and is
 * printed by test_seed. */
uint64_t data_seed(void);
uint64_t test_random(uint64_t *state);

#endif
