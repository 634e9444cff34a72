/* sha256.h: SHA-256 (FIPS 180-4), by which a token file names its tokenizer. */
#ifndef PEN_SRC_DATA_SHA256_H
#define PEN_SRC_DATA_SHA256_H

#include <stddef.h>
#include <stdint.h>

#define PEN_SHA256_BYTES 32

struct pen_sha256 {
  uint32_t state[8];
  uint64_t n_bytes;
  uint8_t block[64];
};

void pen_sha256_begin(struct pen_sha256 *sha);
void pen_sha256_add(struct pen_sha256 *sha, const void *bytes, size_t n_bytes);
/* Writes the digest; `sha` is used up (begin again before the next add). */
void pen_sha256_end(struct pen_sha256 *sha, uint8_t ret_digest[PEN_SHA256_BYTES]);

/* Adds the whole contents of the file at `path`.  Negative errno on failure,
 * with the text set. */
int pen_sha256_add_file(struct pen_sha256 *sha, const char *path);

/* Lower-case hexadecimal of a digest, with the final 0 byte. */
void pen_sha256_hex(const uint8_t digest[PEN_SHA256_BYTES],
                    char ret_hex[2 * PEN_SHA256_BYTES + 1]);

#endif
