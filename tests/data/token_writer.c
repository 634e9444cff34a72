/* Token files for tests, made independently of the Python tool. */
#include "tests/data/token_writer.h"

#include <ftw.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/data/crc32.h"

void put_u16(uint8_t *at, uint32_t value)
{
  at[0] = (uint8_t)value;
  at[1] = (uint8_t)(value >> 8);
}

void put_u32(uint8_t *at, uint32_t value)
{
  put_u16(at, value);
  put_u16(at + 2, value >> 16);
}

void put_u64(uint8_t *at, uint64_t value)
{
  put_u32(at, (uint32_t)value);
  put_u32(at + 4, (uint32_t)(value >> 32));
}

static size_t align64(size_t n)
{
  return (n + 63) / 64 * 64;
}

void token_file_reseal(uint8_t *image)
{
  put_u32(image + 252, pen_crc32(0, image, 252));
}

uint8_t *token_file_image(const struct token_file *f, size_t *ret_bytes)
{
  size_t token_bytes = f->n_tokens * f->token_bytes;
  size_t loss = align64(256 + token_bytes);
  size_t loss_bytes = f->trained ? (f->n_tokens + 7) / 8 : 0;
  size_t borders = align64(loss + loss_bytes), total = borders + (f->n_docs + 1) * 8;
  uint64_t n_trained = f->trained ? 0 : f->n_tokens;
  uint8_t *image = calloc(1, total);

  if (!image)
    abort();
  for (uint64_t i = 0; i < f->n_tokens; i++) {
    (f->token_bytes == 2 ? put_u16 : put_u32)(image + 256 + i * f->token_bytes, f->ids[i]);
    if (f->trained && f->trained[i]) {
      image[loss + i / 8] |= (uint8_t)(1 << i % 8);
      n_trained++;
    }
  }
  for (uint64_t i = 0; i <= f->n_docs; i++)
    put_u64(image + borders + 8 * i, f->borders[i]);
  memcpy(image, "PENTOKEN", 8);
  put_u32(image + 8, 1);
  put_u32(image + 12, 256);
  put_u32(image + 16, f->token_bytes);
  put_u32(image + 20, (f->records ? 1 : 0) | (f->trained ? 2 : 0));
  put_u64(image + 24, f->n_tokens);
  put_u64(image + 32, f->n_docs);
  put_u64(image + 40, n_trained);
  put_u32(image + 48, f->vocab_size);
  put_u64(image + 56, 1);
  put_u64(image + 64, 2);
  put_u64(image + 72, UINT64_MAX);
  if (f->sha256)
    memcpy(image + 80, f->sha256, 32);
  put_u32(image + 112, pen_crc32(0, image + 256, token_bytes));
  put_u32(image + 116, pen_crc32(0, image + loss, loss_bytes));
  put_u32(image + 120, pen_crc32(0, image + borders, (f->n_docs + 1) * 8));
  put_u64(image + 128, total);
  token_file_reseal(image);
  *ret_bytes = total;
  return image;
}

static char folder[64];

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
  return remove(path);
}

static void folder_remove(void)
{
  nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

const char *test_path(const char *name)
{
  static char paths[16][PATH_MAX];
  static unsigned next;
  char *path = paths[next++ % 16];

  if (!folder[0]) {
    strcpy(folder, "/tmp/penstock-test-data-XXXXXX");
    if (!mkdtemp(folder))
      abort();
    atexit(folder_remove);
  }
  snprintf(path, PATH_MAX, "%s/%s", folder, name);
  return path;
}

const char *test_file(const char *name, const void *bytes, size_t n_bytes)
{
  const char *path = test_path(name);
  FILE *file = fopen(path, "wb");

  if (!file || fwrite(bytes, 1, n_bytes, file) != n_bytes || fclose(file))
    abort();
  return path;
}

uint64_t data_seed(void)
{
  const char *text = getenv("PEN_SEED");
  uint64_t seed = text ? strtoull(text, NULL, 0) : 20240601;

  printf("# PEN_SEED=%" PRIu64 "\n", seed);
  return seed;
}

uint64_t test_random(uint64_t *state)
{
  uint64_t x = *state += UINT64_C(0x9e3779b97f4a7c15);

  x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
  return x ^ x >> 31;
}
