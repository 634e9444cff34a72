/* batch.h: one micro-batch without padding: sequences one behind the other,
 * with their borders, positions and targets. */
#ifndef PEN_SRC_DATA_BATCH_H
#define PEN_SRC_DATA_BATCH_H

#include <stddef.h>
#include <stdint.h>

#include "src/data/sequences.h"

#define PEN_BATCH_NO_TARGET (-1)

struct pen_batch {
  size_t n_tokens;     /* T, of this fill */
  size_t n_docs;       /* sequences in it; attention never crosses them */
  size_t n_targets;    /* targets that are not PEN_BATCH_NO_TARGET */
  uint32_t *ids;       /* [T] */
  uint32_t *positions; /* [T], from 0 in each sequence */
  int32_t *targets;    /* [T], the next token's id where it is trained */
  uint32_t *doc_begin; /* [n_docs+1], doc_begin[0] = 0, doc_begin[n_docs] = T */

  size_t max_tokens, max_docs; /* what it was made for */
  uint32_t *window;            /* scratch, [longest sequence + 1] */
  uint8_t *trained;            /* scratch, likewise */
  size_t max_window;
  void *memory;                /* holds all of the above */
};

/* Bytes one batch of this size takes, for the plan. */
size_t pen_batch_bytes(size_t max_rows, struct pen_sequences_limits limits);

/* Allocates for the worst case: max_rows rows that each hold what the limits
 * allow, fewer than 2^32 tokens in all (-PEN_ENOFIT).  The caller owns it until
 * pen_batch_free. */
int pen_batch_create(size_t max_rows, struct pen_sequences_limits limits,
                     struct pen_batch **ret_batch);
void pen_batch_free(struct pen_batch **batch);

/* Reads the sequences of rows[0 .. n-1] (n at most max_rows) into the batch, in
 * that order.  Allocates nothing.  Errors as pen_tokens_read; the batch is empty
 * then. */
int pen_batch_fill(struct pen_batch *batch, const struct pen_sequences *sequences,
                   const uint64_t *rows, size_t n);

#endif
