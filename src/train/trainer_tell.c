/* trainer_tell.c: what a run says of itself as it starts and when it has ended.
 *
 * Everything that was chosen is told with its reason or its figure, as lines of the
 * log.  Main thread.  Disadvantage: for people alone; programs read log.jsonl and
 * config.yaml. */
#include <inttypes.h>
#include <stdio.h>

#include "base/error.h"
#include "base/log.h"
#include "base/size.h"
#include "src/train/trainer.h"

static void print_search(const struct pen_session *s)
{
  const struct pen_search_result *f = &s->found;
  if (!s->machine.profile)
    pen_log_info("placement: by a fixed rule, there is no profile of this "
                 "machine; penstock bench all makes one");
  else if (f->n_simulated && f->rule_seconds > 0)
    pen_log_info("placement: the fastest of %zu simulated, %.3g s a step; the "
                 "fixed rule's takes %.3g s", f->n_simulated, f->seconds,
                 f->rule_seconds);
  else if (f->n_simulated)
    pen_log_info("placement: the fastest of %zu simulated, %.3g s a step; the "
                 "fixed rule's does not fit", f->n_simulated, f->seconds);
}

static void print_cut(const struct pen_trainer *t)
{
  if (t->usual_batch)
    pen_log_info("micro-batches: of %" PRIu64 " sequences instead of %" PRIu64
                 ", %" PRIu64 " of them a step, from here on; "
                 "--per-device-train-batch-size would say otherwise",
                 t->set.batch_sequences, t->usual_batch, t->set.accumulation);
}

static void print_gemm(const struct pen_gemm_choice *c)
{
  char text[256] = "";
  size_t used = 0;
  for (size_t i = 0; i < c->n && used < sizeof text; i++)
    used += (size_t)snprintf(text + used, sizeof text - used,
                             "%s%s %.4g GFLOP/s", i ? ", " : "",
                             c->libraries[i]->name, c->rates[i] * 1e-9);
  if (c->n)
    pen_log_info("products: by %s, from here on; tried: %s; another than %s is "
                 "taken if it is %.2f times as fast", c->chosen->name, text,
                 c->libraries[0]->name, PEN_GEMM_CHOICE_MARGIN);
}

void pen_trainer_tell_start(const struct pen_trainer *t)
{
  const struct pen_session *s = &t->session;
  const struct pen_sequences_counts *counts =
      pen_sequences_counts(t->train.set.sequences);
  const struct pen_placement *p = &s->layout.placement;
  char text[PEN_SIZE_TEXT_BYTES];
  pen_log_info("model: %s, %" PRIu64 " parameters in %zu blocks; computing in "
               "%s with %s (%s), %s kernels, %zu threads",
               t->set.model.dir, s->params->n_elems, s->params->n_blocks,
               pen_elem_name(s->elem), pen_session_products(s),
               pen_session_products_variant(s), pen_isa_name(s->isa),
               pen_pool_n_threads(s->pool));
  char threads[PEN_DIVISION_TEXT_BYTES];
  pen_log_info("threads: %s",
               pen_division_text(&s->division, &s->topology, threads));
  print_gemm(&s->gemm_choice);
  pen_log_info("data: %" PRIu64 " sequences, %" PRIu64
               " tokens and %" PRIu64 " targets an epoch; %" PRIu64
               " steps of up to %" PRIu64 " x %" PRIu64 " sequences",
               counts->n_sequences, counts->n_inputs, counts->n_targets,
               t->n_steps, t->train.order.batch_sequences,
               t->train.order.accumulation);
  if (t->set.packing)
    pen_log_info("packing: a sequence is a row of several, %" PRIu64
                 " rows of up to %" PRIu32 " tokens, %.1f%% full",
                 t->train.order.n_sequences, t->set.max_length,
                 100 * (double)counts->n_inputs /
                     ((double)t->train.order.n_sequences * t->set.max_length));
  if (s->state != &pen_state_fp32)
    pen_log_info("state: %s, %.4g bytes a parameter beside the weights, %s",
                 s->state->name,
                 (double)pen_state_bytes(s->state, PEN_NORM_CHUNK_ELEMS) /
                     (double)PEN_NORM_CHUNK_ELEMS,
                 s->state->exact ? "the same numbers as fp32"
                                 : "other numbers than fp32");
  pen_log_info("placement: %s memory, groups of %zu micro-batches, %zu of %zu "
               "blocks recompute, %zu of %zu blocks of the head; %zu of %zu tiles "
               "of state on drives",
               p->unified ? "one" : "discrete",
               s->layout.placement.group_size,
               s->layout.placement.recompute_blocks,
               s->params->body_end - s->params->body_begin,
               s->layout.placement.recompute_head_blocks,
               s->params->head_end - s->params->head_begin,
               s->layout.n_store_tiles, s->layout.n_tiles);
  if (p->speculative_blocks)
    pen_log_info("early updates: of %zu of %zu blocks, during backward; they wait "
                 "while %d of %d steps were clipped or skipped",
                 s->layout.n_speculative, s->params->n_blocks,
                 PEN_SPECULATION_MISSES, PEN_SPECULATION_STEPS);
  else if (s->machine.wish.speculative_blocks)
    pen_log_info("early updates: of no block; they cannot be had of rows of an "
                 "embedding, of what a device keeps, and with --durability none of "
                 "state on drives");
  print_cut(t);
  print_search(s);
  if (s->engine) {
    pen_size_format(pen_trainer_written_per_step(t), text);
    pen_log_info("drives: %s written per step%s", text,
                 t->set.durable ? "" : "; --durability none: a crash loses the "
                                       "run back to its last clean stop");
  }
  pen_memory_print(&s->memory, stderr);
}

/* Whether the kernel put memory where it was wanted. */
static void print_nodes(const struct pen_session *s)
{
  size_t n_pages, n_there;
  if (!s->division.binds)
    return;
  if (pen_run_look(s->run, &n_pages, &n_there) == 0)
    pen_log_info("NUMA: %zu of %zu pages looked at lie on the node that uses "
                 "them",
                 n_there, n_pages);
  else
    pen_log_info("NUMA: %s", pen_error_text());
  pen_error_clear();
}

/* Host memory that the system did not let the device's driver pin. */
static void warn_of_unpinned(const struct pen_session *s)
{
  uint64_t all = s->layout.tier_bytes[PEN_TIER_HOST];
  uint64_t pinned = pen_run_pinned_bytes(s->run);
  char pinned_text[PEN_SIZE_TEXT_BYTES], all_text[PEN_SIZE_TEXT_BYTES];
  if (pinned >= all)
    return;
  pen_size_format(pinned, pinned_text);
  pen_size_format(all, all_text);
  pen_log_warn("the system pins only %s of %s of host memory for the device; "
               "copies of the rest are slower and wait for each other; raise "
               "the lock limit (ulimit -l) or lower --host-memory",
               pinned_text, all_text);
}

void pen_trainer_tell_memory(const struct pen_session *s)
{
  warn_of_unpinned(s);
  if (pen_run_io_note(s->run))
    pen_log_info("I/O: %s", pen_run_io_note(s->run));
  print_nodes(s);
}

void pen_trainer_tell_outcomes(const struct pen_trainer *t)
{
  const uint64_t *n = t->speculation.n;
  if (t->session.layout.n_speculative)
    pen_log_info("early updates: of %" PRIu64 " steps stood, %" PRIu64
                 " done again, %" PRIu64 " discarded, %" PRIu64 " left out",
                 n[PEN_SPECULATION_STOOD], n[PEN_SPECULATION_REDONE],
                 n[PEN_SPECULATION_DISCARDED], n[PEN_SPECULATION_WAITED]);
}
