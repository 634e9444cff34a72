/* runs.c: the same seeds, batches and updates for every run.
 *
 * Disadvantage: fails through cmocka, so only for test programs. */
#include "tests/sched/runs.h"

#include <math.h>

#include "base/rng.h"
#include "kernels/gradient.h"
#include "tests/test.h"
#include "tests/tmpdir.h"

static int load(void *ctx, uint32_t number, size_t begin, size_t n, float *p,
                float *m, float *v)
{
  struct runs *t = ctx;
  const struct pen_tile *tile = &t->layout.tiles[number];
  for (size_t i = 0; i < n; i++) {
    p[i] = toy_initial(tile->block, tile->begin + begin + i);
    m[i] = v[i] = 0;
  }
  return 0;
}

static size_t block_begin(const struct runs *t, size_t block)
{
  size_t begin = 0;
  for (size_t b = 0; b < block; b++)
    begin += t->toy.blocks[b].elems;
  return begin;
}

static int save_tile(void *ctx, uint32_t number, const void *state,
                     const void *half)
{
  struct runs *t = ctx;
  const struct pen_tile *tile = &t->layout.tiles[number];
  size_t begin = block_begin(t, tile->block) + tile->begin;
  memcpy(t->outcome->state + 3 * begin, state,
         3 * tile->elems * sizeof(float));
  return 0;
}

static int save_block(void *ctx, uint32_t block, const void *weights)
{
  struct runs *t = ctx;
  memcpy(t->outcome->weights + block_begin(t, block), weights,
         t->toy.blocks[block].elems * sizeof(float));
  return 0;
}

static void open_store(struct runs *t)
{
  const char *dirs[] = {t->dir};
  struct pen_store_options o = {
      .dirs = dirs,
      .n_dirs = 1,
      .engine = pen_engine_find("threads"),
      .tile_bytes = t->layout.tile_bytes,
      .n_tiles = t->layout.n_store_tiles,
      .n_extents = 2 * t->layout.n_store_tiles,
      .scratch_bytes = t->layout.tier_bytes[PEN_TIER_NVME],
      .run_id = {1}};
  if (o.n_tiles || o.scratch_bytes)
    test_ok(pen_store_create(&o, true, &t->store));
}

/* This machine, taken to have as many nodes, its CPUs dealt among them. */
static void divide(struct runs *t, size_t threads, size_t nodes)
{
  struct pen_division_wish wish = {threads, threads, true};
  test_ok(pen_topology_read(&t->topology));
  if (nodes <= t->topology.n_cpus)
    t->topology.n_nodes = nodes;
  for (size_t i = 0; i < t->topology.n_cpus; i++)
    t->topology.cpus[i].node = (uint32_t)(i % t->topology.n_nodes);
  test_ok(pen_division_make(&t->topology, &wish, &t->division));
}

void runs_init(struct runs *t, const struct pen_placement *p, enum toy_kind kind,
               size_t threads, size_t nodes, const struct runs_on *on)
{
  toy_init(&t->toy, kind, 4);
  t->threads = threads;
  t->course = (struct runs_course){RUNS_STEPS, 1, -1, 0, 0};
  test_ok(pen_layout_init(&t->layout, &t->toy.workload, p));
  test_ok(pen_run_plan(&t->toy.workload, &t->layout, true, &t->plan));
  divide(t, threads, nodes);
  test_ok(pen_pool_create_teams(&t->division.update, "update", &t->pool));
  open_store(t);
  if (on)
    on->wrap(&t->toy.compute);
  struct pen_run_options o = {
      .workload = &t->toy.workload,
      .compute = &t->toy.compute,
      .layout = &t->layout,
      .device = on ? on->device
                : p->unified ? &pen_device_host_unified
                             : &pen_device_host_discrete,
      .store = t->store,
      .update_pool = t->pool,
      .division = &t->division,
      .hooks = {.ctx = t, .save_tile = save_tile, .save_block = save_block,
                .stop = &t->stop},
      .isa = PEN_ISA_SCALAR,
      .io_depth = 4};
  test_ok(pen_run_create(&o, &t->plan, &t->run));
  test_ok(pen_run_load(t->run, load, t));
  t->outcome = calloc(1, sizeof *t->outcome);
  size_t n = block_begin(t, t->toy.workload.n_blocks);
  t->outcome->n_state = n;
  t->outcome->state = calloc(3 * n, sizeof(float));
  t->outcome->weights = calloc(n, sizeof(float));
}

/* What stayed in the store comes from the store; tests may look. */
static void collect_store_tiles(struct runs *t)
{
  if (!t->layout.n_store_tiles)
    return;
  struct pen_store_queue *queue;
  void *buffer = aligned_alloc(4096, t->layout.tile_bytes);
  test_ok(pen_store_queue_create(t->store, 1, NULL, 0, &queue));
  for (uint32_t i = 0; i < t->layout.n_tiles; i++) {
    const struct pen_tile *tile = &t->layout.tiles[i];
    if (tile->store_tile == PEN_NONE)
      continue;
    uint64_t tag;
    size_t bytes = (tile->elems * 12 + 4095) / 4096 * 4096;
    test_ok(pen_store_read_tile(queue, tile->store_tile, buffer, bytes, 0));
    assert_int_equal(pen_store_reap(queue, 1, 1, &tag), 1);
    save_tile(t, i, buffer, NULL);
  }
  pen_store_queue_free(&queue);
  free(buffer);
}

/* Tiles differ in size, so p, m, v are compared element by element. */
static void state_by_element(const struct runs *t, float *out)
{
  for (uint32_t i = 0; i < t->layout.n_tiles; i++) {
    const struct pen_tile *tile = &t->layout.tiles[i];
    size_t begin = block_begin(t, tile->block) + tile->begin;
    const float *tile_state = t->outcome->state + 3 * begin;
    for (size_t k = 0; k < 3; k++)
      memcpy(out + k * t->outcome->n_state + begin,
             tile_state + k * tile->elems, tile->elems * sizeof *out);
  }
}

static bool step_is_done(struct runs *t, const struct pen_shape *shape,
                         const struct pen_run_update *update,
                         struct pen_run_result *r)
{
  int rc = t->outcome->failed ? 0 : pen_run_step(t->run, shape, update, r);
  if (!t->may_fail)
    test_ok(rc);
  pen_error_clear();
  t->outcome->failed |= rc < 0;
  return !t->outcome->failed;
}

static bool is_poisoned(const struct runs_course *c, int step)
{
  return step == c->poison_step ||
         (c->poison_every && step % c->poison_every == c->poison_every - 1);
}

static void count_outcome(struct runs *t, const struct pen_run_update *update)
{
  if (!pen_run_is_speculated(t->run))
    return;
  bool stands = pen_run_stands(t->run, update);
  t->outcome->n_stood += stands;
  t->outcome->n_redone += !stands && update->apply;
  t->outcome->n_discarded += !update->apply;
}

static bool train_step(struct runs *t, int step, struct pen_run_update *update)
{
  struct pen_adamw_hyper hyper = {0.05, 0.9, 0.95, 1e-8, 0.5};
  struct runs_outcome *o = t->outcome;
  struct pen_run_result r;
  struct pen_shape shape = {.kind = PEN_STEP_TRAIN,
                            .n_micros = 2 + (size_t)step % 3,
                            .n_tokens = 16,
                            .speculates =
                                pen_rng_below(31, (uint64_t)step, 0, 5) > 0};
  t->toy.seed = (uint32_t)step + 1;
  t->toy.poisoned_block = is_poisoned(&t->course, step)
                              ? t->toy.workload.body_begin + 1 : SIZE_MAX;
  update->guess_number = update->number + 1;
  test_ok(pen_adamw_params_init(&hyper, update->guess_number, 1,
                                &update->guess));
  if (!step_is_done(t, &shape, update, &r))
    return false;
  o->losses[step] = r.loss_sum;
  o->nonfinite += r.nonfinite;
  update->apply = r.nonfinite == 0;
  update->number += update->apply;
  update->step = (uint64_t)step + 1;
  float factor = pen_gradient_factor(r.sumsq, 1, t->course.max_norm,
                                     &o->norms[step]);
  if (update->apply)
    test_ok(pen_adamw_params_init(&hyper, update->number, factor,
                                  &update->params));
  count_outcome(t, update);
  return true;
}

static void train(struct runs *t)
{
  struct pen_run_update update = {.apply = true, .commit = true};
  struct pen_run_result r;
  struct runs_outcome *o = t->outcome;
  struct pen_shape logits = {.kind = PEN_STEP_LOGITS,
                             .n_micros = 3,
                             .n_tokens = 16};
  struct pen_shape drain = {.kind = PEN_STEP_DRAIN, .save = true};
  int every = t->course.drain_every;
  o->n_steps = t->course.n_steps;
  for (int step = 0; step < o->n_steps; step++) {
    if (!train_step(t, step, &update))
      return;
    if (step % 3 == 1) {
      struct pen_shape eval = {.kind = PEN_STEP_EVAL,
                               .n_micros = 1 + (size_t)step % 2,
                               .n_tokens = 16};
      if (!step_is_done(t, &eval, &update, &r))
        return;
      o->losses[RUNS_STEPS_MAX + step] = r.loss_sum;
    }
    if (every && step % every == every - 1 &&
        !step_is_done(t, &drain, &update, &r))
      return;
  }
  if (step_is_done(t, &drain, &update, &r) &&
      step_is_done(t, &logits, &update, &r))
    collect_store_tiles(t);
}

void runs_done(struct runs *t)
{
  pen_run_free(&t->run);
  pen_store_close(&t->store);
  pen_pool_free(&t->pool);
  pen_division_done(&t->division);
  pen_topology_done(&t->topology);
  pen_layout_done(&t->layout);
}

void runs_outcome_free(struct runs_outcome *o)
{
  free(o->state);
  free(o->weights);
  free(o);
}

struct runs_outcome *runs_outcome(const struct pen_placement *p, enum toy_kind kind,
                                  size_t threads, size_t nodes,
                                  int poison_step, const struct runs_on *on)
{
  struct runs_course course = {RUNS_STEPS, 1, poison_step, 0, 0};
  return runs_of(p, kind, threads, nodes, &course, on);
}

/* State in the order of elements. */
struct runs_outcome *runs_of(const struct pen_placement *p, enum toy_kind kind,
                             size_t threads, size_t nodes,
                             const struct runs_course *course,
                             const struct runs_on *on)
{
  struct runs t = {.dir = test_tmp("store")};
  runs_init(&t, p, kind, threads, nodes, on);
  t.course = *course;
  t.may_fail = on && on->may_fail;
  train(&t);
  memcpy(t.outcome->logits, pen_run_logits(t.run), 3 * 16 * 3 * sizeof(float));
  float *by_element = calloc(3 * t.outcome->n_state, sizeof *by_element);
  state_by_element(&t, by_element);
  free(t.outcome->state);
  t.outcome->state = by_element;
  struct runs_outcome *outcome = t.outcome;
  runs_done(&t);
  return outcome;
}

static bool same(const char *what, const void *got, const void *want, size_t n,
                 size_t elem_bytes, char *text, size_t bytes)
{
  for (size_t i = 0; i < n; i++) {
    const char *a = (const char *)got + i * elem_bytes;
    const char *b = (const char *)want + i * elem_bytes;
    if (memcmp(a, b, elem_bytes) == 0)
      continue;
    bool wide = elem_bytes == sizeof(double);
    snprintf(text, bytes, "%s[%zu] is %a, not %a", what, i,
             wide ? *(const double *)a : (double)*(const float *)a,
             wide ? *(const double *)b : (double)*(const float *)b);
    return false;
  }
  return true;
}

bool runs_same(const struct runs_outcome *got, const struct runs_outcome *want,
               char *text, size_t bytes)
{
  double bad_got = (double)got->nonfinite, bad_want = (double)want->nonfinite;
  if (got->failed != want->failed) {
    snprintf(text, bytes, "a step failed");
    return false;
  }
  size_t f = sizeof(float), d = sizeof(double);
  return same("loss", got->losses, want->losses, 2 * RUNS_STEPS_MAX, d, text,
              bytes) &&
         same("norm", got->norms, want->norms, RUNS_STEPS_MAX, d, text, bytes) &&
         same("non-finite", &bad_got, &bad_want, 1, d, text, bytes) &&
         same("state", got->state, want->state, 3 * want->n_state, f, text,
              bytes) &&
         same("weight", got->weights, want->weights, want->n_state, f, text,
              bytes) &&
         same("logit", got->logits, want->logits, 3 * 16 * 3, f, text, bytes);
}
