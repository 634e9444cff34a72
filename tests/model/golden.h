/* golden.h: the fixture models of tests/fixtures/models and what float64 says of
 * them. */
#ifndef PEN_TESTS_MODEL_GOLDEN_H
#define PEN_TESTS_MODEL_GOLDEN_H

#include "io/safetensors.h"
#include "tests/model/driver.h"

#define GOLDEN_TOKENS_MAX 64
#define GOLDEN_MICROS_MAX 8

/* Their names; ended by NULL. */
extern const char *const golden_models[];

struct golden {
  struct pen_safetensors *file;
  size_t n_tokens, n_micros;
  uint32_t ids[GOLDEN_TOKENS_MAX], doc_begin[GOLDEN_TOKENS_MAX];
  uint32_t micro_begin[GOLDEN_MICROS_MAX];
  int32_t targets[GOLDEN_TOKENS_MAX];
};

void golden_open(struct golden *g, const char *name);
void golden_close(struct golden *g);

/* A model directory's path, until the next call. */
const char *golden_path(const char *name);

/* Reads all of a tensor; returns its elements, 0 when there is none. */
size_t golden_read(const struct golden *g, const char *name, void *out,
                   size_t max_bytes);

/* One thread, the reference product, all logits. */
struct driver_options golden_options(enum pen_elem elem);

/* Sets the micro-batch's documents, counted from its own first token, which is
 * returned. */
size_t golden_set(struct driver *d, const struct golden *g, size_t micro);

#endif
