/* workload_micro.c: the micro-batches of a step, and the rows of the embedding that
 * they take.
 *
 * Called from the main thread between steps.  Disadvantage: batches are copied, 16
 * bytes a token. */
#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "src/model/compute.h"
#include "src/model/rope.h"
#include "src/model/workload.h"

static int check_tokens(const struct pen_model *m,
                        const struct pen_model_micro *batch)
{
  size_t vocab = m->params->config.vocab_size;
  size_t positions = pen_compute_positions(&m->params->config, &m->options);
  if (!batch->n_tokens || batch->n_tokens > m->options.max_tokens)
    return pen_error_set(PEN_EMISMATCH,
                         "a micro-batch of %zu tokens where 1 to %zu fit",
                         batch->n_tokens, m->options.max_tokens);
  for (size_t t = 0; t < batch->n_tokens; t++) {
    int64_t target = batch->targets ? batch->targets[t] : -1;
    if (batch->ids[t] >= vocab || target >= (int64_t)vocab)
      return pen_error_set(PEN_EMISMATCH,
                           "token %zu has id %" PRIu32 " and target %" PRId64
                           ", but the vocabulary has %zu",
                           t, batch->ids[t], target, vocab);
    if (batch->positions[t] >= positions)
      return pen_error_set(PEN_EMISMATCH,
                           "token %zu is at position %" PRIu32 " of %zu", t,
                           batch->positions[t], positions);
  }
  return 0;
}

static int check_documents(const struct pen_model_micro *batch)
{
  bool good = batch->n_docs && batch->doc_begin[0] == 0 &&
              batch->doc_begin[batch->n_docs] == batch->n_tokens;
  for (size_t i = 0; good && i < batch->n_docs; i++)
    good = batch->doc_begin[i] < batch->doc_begin[i + 1];
  if (!good)
    return pen_error_set(PEN_EMISMATCH,
                         "%zu documents do not tile %zu tokens in order",
                         batch->n_docs, batch->n_tokens);
  return 0;
}

static int check_cached(const struct pen_model *m,
                        const struct pen_model_micro *batch)
{
  size_t first = batch->positions[0], n = batch->n_tokens;
  bool good = batch->n_docs == 1 && first + n <= m->options.cache_tokens;
  for (size_t t = 0; good && t < n; t++)
    good = batch->positions[t] == first + t;
  if (!good)
    return pen_error_set(PEN_EMISMATCH,
                         "%zu tokens from position %zu on cannot join a cache "
                         "of %zu", n, first, m->options.cache_tokens);
  return 0;
}

static int choose_rows(struct pen_model *m, struct pen_compute_micro *b,
                       const struct pen_model_micro *batch,
                       enum pen_model_logits logits)
{
  size_t rows = logits == PEN_LOGITS_ALL    ? batch->n_tokens
                : logits == PEN_LOGITS_LAST ? batch->n_docs
                                            : 0;
  if (rows > m->options.max_logit_rows)
    return pen_error_set(PEN_EMISMATCH,
                         "%zu rows of logits where at most %zu were planned",
                         rows, m->options.max_logit_rows);
  for (size_t i = 0; i < rows; i++)
    b->logit_rows[i] = logits == PEN_LOGITS_ALL ? (uint32_t)i
                                                : batch->doc_begin[i + 1] - 1;
  b->n_logit_rows = rows;
  return 0;
}

/* What each of the document's tokens sees and how it is turned.  One that grows
 * over the cache is as long as that may hold. */
static void set_document(const struct pen_model *m, struct pen_compute_micro *b,
                         const struct pen_model_micro *batch, size_t doc)
{
  const struct pen_model_config *c = &m->params->config;
  size_t begin = batch->doc_begin[doc], end = batch->doc_begin[doc + 1];
  size_t length = batch->cached ? m->options.cache_tokens : end - begin;
  size_t row = pen_rope_first_row(&c->rope, pen_compute_positions(c, &m->options), length);
  for (size_t t = begin; t < end; t++) {
    bool slides = c->sliding_window && t - begin >= c->sliding_window;
    b->positions[t] = (uint32_t)(row + batch->positions[t]);
    b->first_key[t] = (uint32_t)begin;
    b->first_in_window[t] =
        (uint32_t)(slides ? t + 1 - c->sliding_window : begin);
  }
}

/* The rows that the micro-batch's tokens take, among the step's. */
static void take_rows(struct pen_model *m, size_t micro)
{
  struct pen_compute_rows *rows = &m->rows;
  struct pen_compute_micro *b = &m->micros[micro];
  for (; micro == 0 && rows->n > 0; rows->n--)
    rows->places[rows->ids[rows->n - 1]] = 0;
  for (size_t t = 0; t < b->tokens; t++) {
    uint32_t *place = &rows->places[b->ids[t]];
    if (*place == 0) {
      rows->ids[rows->n++] = b->ids[t];
      *place = (uint32_t)rows->n;
    }
    b->places[t] = *place - 1;
  }
}

int pen_model_set_micro(struct pen_model *model, size_t micro,
                        const struct pen_model_micro *batch,
                        enum pen_model_logits logits)
{
  if (micro >= model->options.max_micros)
    return pen_error_set(PEN_EMISMATCH,
                         "micro-batch %zu where a step has at most %zu", micro,
                         model->options.max_micros);
  struct pen_compute_micro *b = &model->micros[micro];
  size_t n = batch->n_tokens;
  int r = check_tokens(model, batch);
  if (!r)
    r = check_documents(batch);
  if (!r && batch->cached)
    r = check_cached(model, batch);
  if (!r)
    r = choose_rows(model, b, batch, logits);
  if (r)
    return r;
  b->tokens = n;
  b->cached = batch->cached;
  b->cache_first = batch->positions[0];
  memcpy(b->ids, batch->ids, n * sizeof *b->ids);
  take_rows(model, micro);
  b->n_targets = 0;
  for (size_t t = 0; t < n; t++) {
    b->targets[t] = batch->targets ? batch->targets[t] : -1;
    b->n_targets += b->targets[t] >= 0;
  }
  for (size_t i = 0; i < batch->n_docs; i++)
    set_document(model, b, batch, i);
  return 0;
}

size_t pen_model_logit_rows(const struct pen_model *model, size_t micro)
{
  return model->micros[micro].n_logit_rows;
}
