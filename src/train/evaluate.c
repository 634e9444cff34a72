/* evaluate.c: forward steps over all sequences, in file order.
 *
 * Main thread.  Disadvantage: the next batch is read only when the last one is
 * done. */
#include "src/train/evaluate.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "base/error.h"
#include "io/safetensors_write.h"
#include "src/data/order.h"
#include "src/train/dataset.h"
#include "src/train/inference.h"

/* The document that sequences are added to. */
struct pending {
  struct pen_evaluate_document document;
  uint64_t end; /* token behind it; 0: before the first */
};

struct evaluation {
  const struct pen_evaluate_settings *set;
  struct pen_dataset data;
  struct pen_order order;
  struct pen_batch *batch;
  uint64_t *ids;
  struct pen_inference inference;
  struct pen_run_result result;
  struct pen_safetensors_writer *dump;
  struct pending pending;
  /* Of a step of single sequences; [batch_sequences] each: */
  double *losses;
  struct pen_evaluate_document *counts;
};

static int open_data(struct evaluation *e)
{
  const struct pen_evaluate_settings *s = e->set;
  struct pen_sequences_options cut = {
      .max_length = s->max_length, .refuse_truncation = s->refuse_truncation,
      .name = s->data_name};
  int rc = pen_dataset_open(s->data, s->model.dir, &cut, &e->data);
  if (rc < 0)
    return rc;
  e->order = (struct pen_order){
      .n_sequences = pen_sequences_n_rows(e->data.sequences),
      .batch_sequences = s->batch_sequences,
      .accumulation = 1};
  if (e->order.batch_sequences > e->order.n_sequences)
    e->order.batch_sequences = e->order.n_sequences;
  return pen_order_check(&e->order);
}

static int open_session(struct evaluation *e)
{
  uint32_t longest = pen_sequences_longest_inputs(e->data.sequences);
  size_t batch = e->order.batch_sequences;
  size_t together = e->set->each_document ? 1 : batch;
  struct pen_session_shape shape = {
      .max_tokens = together * longest,
      .max_micros = batch / together,
      .max_logit_rows = e->set->dump_logits ? batch * longest : 0,
      .other_bytes = pen_batch_bytes(batch, pen_sequences_limits(e->data.sequences)) +
                     pen_sequences_bytes(e->data.sequences)};
  int rc = pen_inference_open(&e->inference, &e->set->model, &e->set->machine,
                            &shape, longest);
  if (rc < 0)
    return rc;
  e->ids = calloc(batch, sizeof *e->ids);
  e->losses = calloc(batch, sizeof *e->losses);
  e->counts = calloc(batch, sizeof *e->counts);
  if (!e->ids || !e->losses || !e->counts)
    return pen_error_set(PEN_ENOFIT, "no memory for a batch");
  rc = pen_batch_create(batch, pen_sequences_limits(e->data.sequences),
                        &e->batch);
  return rc < 0 ? rc : pen_inference_start(&e->inference, e->set->stop, true);
}

static int step(struct evaluation *e, enum pen_step_kind kind)
{
  struct pen_run_update none = {.apply = false};
  struct pen_shape shape = {.kind = kind,
                            .n_micros = 1,
                            .n_tokens = (double)e->batch->n_tokens};
  int rc = pen_session_set_micro(&e->inference.session, 0, e->batch,
                                 kind == PEN_STEP_LOGITS ? PEN_LOGITS_ALL
                                                         : PEN_LOGITS_NONE);
  if (rc == 0)
    rc = pen_run_step(e->inference.session.run, &shape, &none, &e->result);
  return rc;
}

enum { DUMP_IDS, DUMP_DOC_BEGIN, DUMP_LOGITS, DUMP_TENSORS };

static int begin_dump(struct evaluation *e)
{
  const struct pen_sequences_counts *c = pen_sequences_counts(e->data.sequences);
  uint64_t tokens[] = {c->n_inputs}, docs[] = {c->n_sequences + 1};
  uint64_t logits[] = {c->n_inputs, e->inference.session.config.vocab_size};
  struct pen_safetensors_spec specs[DUMP_TENSORS] = {
      [DUMP_IDS] = {"ids", PEN_FILE_I32, 1, tokens},
      [DUMP_DOC_BEGIN] = {"doc_begin", PEN_FILE_I32, 1, docs},
      [DUMP_LOGITS] = {"logits", PEN_FILE_F32, 2, logits}};
  return pen_safetensors_create(e->set->dump_logits, specs, DUMP_TENSORS,
                                &e->dump);
}

/* One batch's part of the three tensors. */
static int dump_batch(struct evaluation *e, uint64_t token, uint64_t doc)
{
  const struct pen_batch *b = e->batch;
  uint64_t vocab = e->inference.session.config.vocab_size;
  int rc = step(e, PEN_STEP_LOGITS);
  if (rc == 0)
    rc = pen_safetensors_write(e->dump, DUMP_LOGITS,
                               token * vocab * sizeof(float),
                               pen_run_logits(e->inference.session.run),
                               b->n_tokens * vocab * sizeof(float));
  if (rc == 0)
    rc = pen_safetensors_write(e->dump, DUMP_IDS, token * sizeof *b->ids,
                               b->ids, b->n_tokens * sizeof *b->ids);
  for (size_t d = 0; rc == 0 && d < b->n_docs; d++) {
    int32_t end = (int32_t)(token + b->doc_begin[d + 1]);
    rc = pen_safetensors_write(e->dump, DUMP_DOC_BEGIN,
                               (doc + d + 1) * sizeof end, &end, sizeof end);
  }
  return rc;
}

/* ---- document by document ---- */

static int close_document(struct evaluation *e)
{
  struct pen_evaluate_document *d = &e->pending.document;
  return d->n_targets ? e->set->each_document(e->set->ctx, d) : 0;
}

/* Goes on to the document in which token `at` lies. */
static int open_document(struct evaluation *e, uint64_t at)
{
  struct pending *p = &e->pending;
  int rc = p->end ? close_document(e) : 0;
  uint64_t number = p->end ? p->document.number + 1 : 0, borders[2];
  for (p->end = 0; rc == 0 && p->end <= at; number++) {
    rc = pen_tokens_borders(e->data.tokens, number, 2, borders);
    p->end = borders[1];
    p->document = (struct pen_evaluate_document){.number = number};
  }
  return rc;
}

static int add_sequence(struct evaluation *e, size_t i)
{
  uint64_t begin = pen_sequences_at(e->data.sequences, e->ids[i])->begin;
  int rc = begin < e->pending.end ? 0 : open_document(e, begin);
  struct pen_evaluate_document *d = &e->pending.document;
  d->loss_sum += e->losses[i];
  d->n_targets += e->counts[i].n_targets;
  d->n_inputs += e->counts[i].n_inputs;
  return rc;
}

/* A mean over a loss that is no number says nothing about any other. */
static int check_loss(double loss, uint64_t first, size_t n)
{
  if (isfinite(loss))
    return 0;
  return pen_error_set(PEN_ENONFINITE, "the loss of sequences %" PRIu64 " to %"
                       PRIu64 " is not finite: weights hold NaN or infinity "
                       "(penstock verify names the tensor), or overflow in this "
                       "--dtype", first, first + n - 1);
}

/* n sequences, each a micro-batch of its own, so that each has its loss. */
static int run_singly(struct evaluation *e, size_t n,
                      struct pen_evaluate_result *r)
{
  struct pen_run_update none = {.apply = false};
  struct pen_shape shape = {.kind = PEN_STEP_EVAL, .n_micros = n};
  int rc = 0;
  for (size_t i = 0; rc == 0 && i < n; i++) {
    rc = pen_batch_fill(e->batch, e->data.sequences, &e->ids[i], 1);
    if (rc == 0)
      rc = pen_session_set_micro(&e->inference.session, i, e->batch,
                                 PEN_LOGITS_NONE);
    e->counts[i].n_targets = e->batch->n_targets;
    e->counts[i].n_inputs = e->batch->n_tokens;
    shape.n_tokens += (double)e->batch->n_tokens;
  }
  if (rc == 0)
    rc = pen_run_step(e->inference.session.run, &shape, &none, &e->result);
  if (rc == 0)
    pen_run_losses(e->inference.session.run, n, e->losses);
  for (size_t i = 0; rc == 0 && i < n; i++) {
    rc = check_loss(e->losses[i], e->ids[i], 1);
    if (rc == 0)
      rc = add_sequence(e, i);
    r->loss += e->losses[i];
    r->n_targets += e->counts[i].n_targets;
    r->n_inputs += e->counts[i].n_inputs;
  }
  return rc;
}

/* n sequences as one micro-batch. */
static int run_together(struct evaluation *e, size_t n,
                        struct pen_evaluate_result *r)
{
  int rc = pen_batch_fill(e->batch, e->data.sequences, e->ids, n);
  if (rc == 0)
    rc = step(e, PEN_STEP_EVAL);
  if (rc == 0)
    rc = check_loss(e->result.loss_sum, r->n_sequences, n);
  r->loss += e->result.loss_sum;
  if (rc == 0 && e->dump)
    rc = dump_batch(e, r->n_inputs, r->n_sequences);
  r->n_targets += e->batch->n_targets;
  r->n_inputs += e->batch->n_tokens;
  return rc;
}

/* Between two batches, or amid the one that follows. */
static int stopped(uint64_t batches, uint64_t of)
{
  pen_error_clear();
  return pen_error_set(-PEN_ESTOPPED, "stopped after %" PRIu64 " of %" PRIu64
                       " batches", batches, of);
}

static int run(struct evaluation *e, struct pen_evaluate_result *r)
{
  int32_t zero = 0;
  int rc = e->set->dump_logits ? begin_dump(e) : 0;
  if (rc == 0 && e->dump)
    rc = pen_safetensors_write(e->dump, DUMP_DOC_BEGIN, 0, &zero, sizeof zero);
  uint64_t steps = pen_order_epoch_steps(&e->order);
  for (uint64_t i = 0; rc == 0 && i < steps; i++) {
    struct pen_order_step order;
    if (e->set->stop && *e->set->stop)
      return stopped(i, steps);
    pen_order_step(&e->order, i, &order);
    size_t n = pen_order_micro(&e->order, &order, 0, e->ids);
    rc = e->set->each_document ? run_singly(e, n, r) : run_together(e, n, r);
    r->n_sequences += n;
    if (rc == -PEN_ESTOPPED)
      return stopped(i, steps);
  }
  if (rc == 0 && e->set->each_document)
    rc = close_document(e);
  if (rc == 0 && e->dump)
    rc = pen_safetensors_finish(&e->dump);
  r->loss /= (double)r->n_targets;
  return rc;
}

int pen_evaluate(const struct pen_evaluate_settings *settings,
                 struct pen_evaluate_result *ret_result)
{
  struct evaluation e = {.set = settings};
  struct pen_evaluate_result result = {0};
  int rc = open_data(&e);
  if (rc == 0)
    rc = open_session(&e);
  if (rc == 0)
    rc = run(&e, &result);
  pen_safetensors_abandon(&e.dump);
  pen_inference_close(&e.inference);
  pen_batch_free(&e.batch);
  pen_dataset_close(&e.data);
  free(e.ids);
  free(e.losses);
  free(e.counts);
  if (rc == 0)
    *ret_result = result;
  return rc;
}
