/* Where bytes live never changes a number: random placements against the plain
 * one, bit for bit, on real lanes with a real store. */
#include "tests/test.h"

#include <math.h>

#include "kernels/gradient.h"
#include "offload/run.h"
#include "tests/sched/places.h"
#include "tests/tmpdir.h"
#include "tests/sched/toy.h"

#define STEPS 6

struct outcome {
  double losses[2 * STEPS];
  double norms[STEPS];
  float *state; /* p, m, v of every element, block after block */
  size_t n_state;
  float *weights;
  uint64_t nonfinite;
  float logits[TOY_MICROS_MAX * 16 * 3];
};

struct trial {
  struct toy toy;
  struct pen_layout layout;
  struct pen_run_plan plan;
  struct pen_store *store;
  struct pen_topology topology;
  struct pen_division division;
  struct pen_pool *pool;
  struct pen_run *run;
  struct outcome *outcome;
  const char *dir;
  size_t threads;
  int poison_step; /* this step's gradient has a NaN; -1: none */
};

static int load(void *ctx, uint32_t number, float *p, float *m, float *v)
{
  struct trial *t = ctx;
  const struct pen_tile *tile = &t->layout.tiles[number];
  for (size_t i = 0; i < tile->elems; i++) {
    p[i] = toy_initial(tile->block, tile->begin + i);
    m[i] = v[i] = 0;
  }
  return 0;
}

static size_t block_begin(const struct trial *t, size_t block)
{
  size_t begin = 0;
  for (size_t b = 0; b < block; b++)
    begin += t->toy.blocks[b].elems;
  return begin;
}

static int save_tile(void *ctx, uint32_t number, const float *state)
{
  struct trial *t = ctx;
  const struct pen_tile *tile = &t->layout.tiles[number];
  size_t begin = block_begin(t, tile->block) + tile->begin;
  memcpy(t->outcome->state + 3 * begin, state,
         3 * tile->elems * sizeof *state);
  return 0;
}

static int save_block(void *ctx, uint32_t block, const void *weights)
{
  struct trial *t = ctx;
  memcpy(t->outcome->weights + block_begin(t, block), weights,
         t->toy.blocks[block].elems * sizeof(float));
  return 0;
}

static void open_store(struct trial *t)
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
static void divide(struct trial *t, size_t threads, size_t nodes)
{
  struct pen_division_wish wish = {threads, threads, true};
  test_ok(pen_topology_read(&t->topology));
  if (nodes <= t->topology.n_cpus)
    t->topology.n_nodes = nodes;
  for (size_t i = 0; i < t->topology.n_cpus; i++)
    t->topology.cpus[i].node = (uint32_t)(i % t->topology.n_nodes);
  test_ok(pen_division_make(&t->topology, &wish, &t->division));
}

static void trial_init(struct trial *t, const struct pen_placement *p,
                       bool tied, size_t threads, size_t nodes)
{
  toy_init(&t->toy, tied, 4);
  t->threads = threads;
  t->poison_step = -1;
  test_ok(pen_layout_init(&t->layout, &t->toy.workload, p));
  test_ok(pen_run_plan(&t->toy.workload, &t->layout, &t->plan));
  divide(t, threads, nodes);
  test_ok(pen_pool_create_teams(&t->division.update, "update", &t->pool));
  open_store(t);
  struct pen_run_options o = {
      .workload = &t->toy.workload,
      .compute = &t->toy.compute,
      .layout = &t->layout,
      .device = p->unified ? &pen_device_host_unified
                           : &pen_device_host_discrete,
      .store = t->store,
      .update_pool = t->pool,
      .division = &t->division,
      .hooks = {.ctx = t, .save_tile = save_tile, .save_block = save_block},
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
static void collect_store_tiles(struct trial *t)
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
    save_tile(t, i, buffer);
  }
  pen_store_queue_free(&queue);
  free(buffer);
}

/* Tiles differ in size, so p, m, v are compared element by element. */
static void state_by_element(const struct trial *t, float *out)
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

static void trial_run(struct trial *t)
{
  struct pen_adamw_hyper hyper = {0.05, 0.9, 0.95, 1e-8, 0.5};
  struct pen_run_update update = {.apply = true, .commit = true};
  struct pen_run_result r;
  struct outcome *o = t->outcome;
  for (int step = 0; step < STEPS; step++) {
    t->toy.seed = (uint32_t)step + 1;
    t->toy.poisoned_block =
        step == t->poison_step ? t->toy.workload.body_begin + 1 : SIZE_MAX;
    struct pen_shape shape = {PEN_STEP_TRAIN, 2 + (size_t)step % 3, 16, false};
    test_ok(pen_run_step(t->run, &shape, &update, &r));
    o->losses[step] = r.loss_sum;
    o->norms[step] = sqrt(r.sumsq);
    o->nonfinite += r.nonfinite;
    update.apply = r.nonfinite == 0;
    update.step = (uint64_t)step + 1;
    float factor = pen_gradient_factor(r.sumsq, 1, 1, &o->norms[step]);
    test_ok(pen_adamw_params_init(&hyper, (uint64_t)step + 1, factor,
                                  &update.params));
    if (step % 3 == 1) {
      struct pen_shape eval = {PEN_STEP_EVAL, 1 + (size_t)step % 2, 16, false};
      test_ok(pen_run_step(t->run, &eval, &update, &r));
      o->losses[STEPS + step] = r.loss_sum;
    }
  }
  struct pen_shape logits = {PEN_STEP_LOGITS, 3, 16, false};
  struct pen_shape drain = {PEN_STEP_DRAIN, 0, 0, true};
  test_ok(pen_run_step(t->run, &drain, &update, &r));
  test_ok(pen_run_step(t->run, &logits, &update, &r));
  collect_store_tiles(t);
}

static void trial_free_run(struct trial *t)
{
  pen_run_free(&t->run);
  pen_store_close(&t->store);
  pen_pool_free(&t->pool);
  pen_division_done(&t->division);
  pen_topology_done(&t->topology);
  pen_layout_done(&t->layout);
}

static void outcome_free(struct outcome *o)
{
  free(o->state);
  free(o->weights);
  free(o);
}

/* One whole little training; state in the order of elements. */
static struct outcome *outcome_of(const struct pen_placement *p, bool tied,
                                  size_t threads, size_t nodes,
                                  int poison_step)
{
  struct trial t = {.dir = test_tmp("store")};
  trial_init(&t, p, tied, threads, nodes);
  t.poison_step = poison_step;
  trial_run(&t);
  memcpy(t.outcome->logits, pen_run_logits(t.run), 3 * 16 * 3 * sizeof(float));
  float *by_element = calloc(3 * t.outcome->n_state, sizeof *by_element);
  state_by_element(&t, by_element);
  free(t.outcome->state);
  t.outcome->state = by_element;
  struct outcome *outcome = t.outcome;
  trial_free_run(&t);
  return outcome;
}

static void assert_same_floats(const char *what, int place, const float *a,
                               const float *b, size_t n)
{
  for (size_t i = 0; i < n; i++)
    if (memcmp(&a[i], &b[i], sizeof *a))
      fail_msg("placement %d: %s[%zu] is %a, plain has %a", place, what, i,
               (double)b[i], (double)a[i]);
}

static void assert_same(int place, const struct outcome *a,
                        const struct outcome *b)
{
  for (int i = 0; i < 2 * STEPS; i++)
    if (memcmp(&a->losses[i], &b->losses[i], sizeof(double)))
      fail_msg("placement %d: loss %d is %a, plain has %a", place, i,
               b->losses[i], a->losses[i]);
  for (int i = 0; i < STEPS; i++)
    if (memcmp(&a->norms[i], &b->norms[i], sizeof(double)))
      fail_msg("placement %d: norm %d is %a, plain has %a", place, i,
               b->norms[i], a->norms[i]);
  assert_int_equal(a->nonfinite, b->nonfinite);
  assert_same_floats("state", place, a->state, b->state, 3 * a->n_state);
  assert_same_floats("weight", place, a->weights, b->weights, a->n_state);
  assert_same_floats("logit", place, a->logits, b->logits, 3 * 16 * 3);
}

static void compare_all(bool tied, int n_places, int poison_step)
{
  uint64_t seed = places_seed() + tied;
  struct pen_placement plain = places_plain();
  struct outcome *reference = outcome_of(&plain, tied, 1, 1, poison_step);
  assert_true(isfinite(reference->losses[0]));
  assert_true(reference->losses[0] != reference->losses[1]);
  for (int n = 0; n < n_places; n++) {
    struct pen_placement p = places_random(seed, (uint64_t)n);
    struct outcome *o = outcome_of(&p, tied, 1 + (size_t)n % 3,
                                   1 + (size_t)n % 2, poison_step);
    assert_same(n, reference, o);
    outcome_free(o);
  }
  outcome_free(reference);
}

static void test_tied_is_the_same_everywhere(void **state)
{
  (void)state;
  compare_all(true, 25, -1);
}

static void test_untied_is_the_same_everywhere(void **state)
{
  (void)state;
  compare_all(false, 25, -1);
}

/* A step whose gradient has a NaN changes nothing, wherever things live. */
static void test_nonfinite_is_skipped_everywhere(void **state)
{
  (void)state;
  compare_all(true, 10, 2);
}

/* A failure of the model ends the step with the place it happened. */
static int failing_backward(void *ctx, size_t block, size_t micro,
                            const struct pen_inputs *in, const void *w,
                            const void *x, const void *saved, void *d,
                            float *grad, void *work)
{
  (void)ctx;
  (void)block;
  (void)micro;
  (void)in;
  (void)w;
  (void)x;
  (void)saved;
  (void)d;
  (void)grad;
  (void)work;
  return pen_error_set(PEN_ENONFINITE, "as told");
}

static void test_failure_stops_every_lane(void **state)
{
  (void)state;
  struct pen_placement p = places_random(7, 3);
  struct trial t = {.dir = test_tmp("store")};
  trial_init(&t, &p, true, 2, 2);
  t.toy.compute.backward = failing_backward;
  struct pen_shape shape = {PEN_STEP_TRAIN, 3, 16, false};
  struct pen_run_update update = {.apply = true, .commit = true};
  struct pen_run_result r;
  test_fails(pen_run_step(t.run, &shape, &update, &r), PEN_ENONFINITE,
             "backward of block b3 on lane compute: as told");
  outcome_free(t.outcome);
  trial_free_run(&t);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_tied_is_the_same_everywhere),
      cmocka_unit_test(test_untied_is_the_same_everywhere),
      cmocka_unit_test(test_nonfinite_is_skipped_everywhere),
      cmocka_unit_test(test_failure_stops_every_lane),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
