/* Filling micro-batches from a token file.
 *
 * A batch belongs to one thread at a time; several batches may be filled from
 * the same sequences at once.  Invariant: targets[i] is ids[i+1] of the same
 * sequence or PEN_BATCH_NO_TARGET, by the position's own loss flag and never by
 * the value of an id, so that an end token that doubles as padding is trained.
 *
 * Disadvantage: reads synchronously, one or two preads per sequence. */
#include "src/data/batch.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/error.h"

/* Sizes of the parts of a batch's memory; false: they overflow. */
static bool batch_bytes(size_t max_rows, struct pen_sequences_limits limits, size_t *ret_bytes)
{
  size_t n_tokens, n_docs, per_token = 2 * sizeof(uint32_t) + sizeof(int32_t);
  size_t tokens, borders, window = ((size_t)limits.n_inputs + 1) * (sizeof(uint32_t) + 1);

  if (__builtin_mul_overflow(max_rows, (size_t)limits.n_inputs, &n_tokens) ||
      __builtin_mul_overflow(max_rows, (size_t)limits.n_sequences, &n_docs) ||
      n_tokens > UINT32_MAX || n_docs >= UINT32_MAX || /* places are uint32_t */
      __builtin_mul_overflow(n_tokens, per_token, &tokens) ||
      __builtin_mul_overflow(n_docs + 1, sizeof(uint32_t), &borders) ||
      __builtin_add_overflow(tokens, borders, &tokens) ||
      __builtin_add_overflow(tokens, window, &tokens))
    return false;
  *ret_bytes = tokens;
  return true;
}

size_t pen_batch_bytes(size_t max_rows, struct pen_sequences_limits limits)
{
  size_t n_bytes;

  return batch_bytes(max_rows, limits, &n_bytes) ? n_bytes + sizeof(struct pen_batch) : SIZE_MAX;
}

int pen_batch_create(size_t max_rows, struct pen_sequences_limits limits,
                     struct pen_batch **ret_batch)
{
  size_t n_bytes;

  if (!batch_bytes(max_rows, limits, &n_bytes))
    return pen_error_set(PEN_ENOFIT, "a micro-batch of %zu rows of %u tokens: more than "
                         "4294967295 tokens", max_rows, limits.n_inputs);
  struct pen_batch *b = calloc(1, sizeof *b);
  void *memory = malloc(n_bytes);
  if (!b || !memory) {
    free(b);
    free(memory);
    return pen_error_set(-ENOMEM, "cannot allocate a micro-batch of %zu rows of %u tokens "
                         "(%zu bytes)", max_rows, limits.n_inputs, n_bytes);
  }
  b->memory = memory;
  b->max_docs = max_rows * limits.n_sequences;
  b->max_tokens = max_rows * limits.n_inputs;
  b->max_window = (size_t)limits.n_inputs + 1;
  b->doc_begin = memory;
  b->ids = b->doc_begin + b->max_docs + 1;
  b->positions = b->ids + b->max_tokens;
  b->targets = (int32_t *)(b->positions + b->max_tokens);
  b->window = (uint32_t *)(b->targets + b->max_tokens);
  b->trained = (uint8_t *)(b->window + b->max_window);
  b->doc_begin[0] = 0;
  *ret_batch = b;
  return 0;
}

void pen_batch_free(struct pen_batch **batch)
{
  if (!*batch)
    return;
  free((*batch)->memory);
  free(*batch);
  *batch = NULL;
}

/* Appends one sequence behind the `n_tokens` and `n_docs` that are there. */
static int sequence_append(struct pen_batch *b, const struct pen_tokens *tokens,
                           const struct pen_sequence *sequence)
{
  size_t n_inputs = sequence->n_tokens - 1;
  int r;

  if (sequence->n_tokens > b->max_window || b->n_docs == b->max_docs ||
      n_inputs > b->max_tokens - b->n_tokens)
    return pen_error_set(-EINVAL, "sequence %zu of %zu tokens in a micro-batch made for %zu "
                         "of %zu", b->n_docs, n_inputs, b->max_docs, b->max_window - 1);
  r = pen_tokens_read(tokens, sequence->begin, sequence->n_tokens, b->window, b->trained);
  if (r < 0)
    return r;
  for (size_t i = 0; i < n_inputs; i++) {
    size_t at = b->n_tokens + i;
    b->ids[at] = b->window[i];
    b->positions[at] = (uint32_t)i;
    b->targets[at] = b->trained[i + 1] ? (int32_t)b->window[i + 1] : PEN_BATCH_NO_TARGET;
    b->n_targets += b->trained[i + 1];
  }
  b->n_tokens += n_inputs;
  b->n_docs++;
  b->doc_begin[b->n_docs] = (uint32_t)b->n_tokens;
  return 0;
}

static int row_append(struct pen_batch *b, const struct pen_sequences *sequences, uint64_t row)
{
  uint64_t n = pen_sequences_row_size(sequences, row);
  int r = 0;

  for (uint64_t i = 0; r == 0 && i < n; i++)
    r = sequence_append(b, pen_sequences_tokens(sequences),
                        pen_sequences_at(sequences, pen_sequences_in_row(sequences, row, i)));
  return r;
}

int pen_batch_fill(struct pen_batch *batch, const struct pen_sequences *sequences,
                   const uint64_t *rows, size_t n)
{
  batch->n_tokens = batch->n_docs = batch->n_targets = 0;
  for (size_t i = 0; i < n; i++) {
    int r = row_append(batch, sequences, rows[i]);
    if (r < 0) {
      batch->n_tokens = batch->n_docs = batch->n_targets = 0;
      return r;
    }
  }
  return 0;
}
