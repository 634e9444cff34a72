/* Who runs where and what lies where, on machines described to hwloc, and on
 * this one. */
#include "offload/touch.h"

#include <sys/mman.h>

#include "base/thread.h"
#include "kernels/device.h"
#include "tests/sched/places.h"
#include "tests/sched/toy.h"
#include "tests/test.h"

/* A machine of 4 CPUs, one on node 3 and three on node 5, without hwloc. */
static struct pen_topology uneven_by_hand(void)
{
  static struct pen_topology_cpu cpus[] = {
      {0, 0, 0}, {7, 1, 1}, {8, 1, 2}, {9, 1, 2}};
  return (struct pen_topology){.source = "hand",
                               .knows_nodes = true,
                               .cpus = cpus,
                               .n_cpus = 4,
                               .n_cores = 3,
                               .n_nodes = 2,
                               .node_number = {3, 5}};
}

static struct pen_topology described(const char *synthetic,
                                     const uint32_t *allowed, size_t n)
{
  struct pen_topology t;
  if (pen_topology_describe(synthetic, allowed, n, &t) == -PEN_EUNSUPPORTED)
    test_skip("%s", pen_error_text());
  return t;
}

static struct pen_division divided(const struct pen_topology *t,
                                   size_t threads, size_t updaters, bool numa)
{
  struct pen_division_wish wish = {threads, updaters, numa};
  struct pen_division d;
  test_ok(pen_division_make(t, &wish, &d));
  return d;
}

/* One row: a machine, what may be used of it, and what must come out.  Node
 * counts end with the first 0 but for `none`. */
struct machine_case {
  const char *synthetic;
  uint32_t allowed[8];
  size_t n_allowed, quota, threads, updaters;
  size_t n_cpus, n_cores, n_nodes;
  size_t compute[4], update[4], node_cpus[4];
};

static const struct machine_case machine_cases[] = {
    {"numa:1 core:2 pu:1", {0}, 0, 0, 0, 0, 2, 2, 1, {2}, {2}, {2}},
    {"numa:2 core:8 pu:2", {0}, 0, 0, 0, 0,
     32, 16, 2, {16, 16}, {16, 16}, {16, 16}},
    {"numa:4 core:4 pu:1", {0}, 0, 0, 0, 0,
     16, 16, 4, {4, 4, 4, 4}, {4, 4, 4, 4}, {4, 4, 4, 4}},
    /* threads asked for, fewer and more than CPUs, and fewer than nodes */
    {"numa:2 core:8 pu:2", {0}, 0, 0, 6, 0, 32, 16, 2, {3, 3}, {3, 3}, {16, 16}},
    {"numa:2 core:8 pu:2", {0}, 0, 0, 64, 4,
     32, 16, 2, {32, 32}, {2, 2}, {16, 16}},
    {"numa:4 core:4 pu:1", {0}, 0, 0, 1, 2,
     16, 16, 4, {0, 0, 0, 1}, {0, 1, 0, 1}, {4, 4, 4, 4}},
    /* a quota below the CPUs bounds threads, and not where they run */
    {"numa:2 core:8 pu:1", {0}, 0, 5, 0, 0, 16, 16, 2, {2, 3}, {2, 3}, {8, 8}},
    {"numa:2 core:8 pu:1", {0}, 0, 40, 0, 0, 16, 16, 2, {8, 8}, {8, 8}, {8, 8}},
    /* a mask: uneven nodes, half a core, one node only */
    {"numa:2 core:4 pu:1", {0, 1, 2, 6}, 4, 0, 0, 0,
     4, 4, 2, {3, 1}, {3, 1}, {3, 1}},
    {"numa:2 core:4 pu:1", {0, 1, 2, 6}, 4, 0, 8, 2,
     4, 4, 2, {6, 2}, {1, 1}, {3, 1}},
    {"numa:2 core:2 pu:2", {1, 4, 5}, 3, 0, 0, 0, 3, 2, 2, {1, 2}, {1, 2}, {1, 2}},
    {"numa:2 core:4 pu:1", {4, 5}, 2, 0, 0, 0, 2, 2, 1, {2}, {2}, {2}},
};

static void check_machine(const struct machine_case *c)
{
  struct pen_topology t =
      described(c->synthetic, c->n_allowed ? c->allowed : NULL, c->n_allowed);
  t.quota_cpus = c->quota;
  struct pen_division d = divided(&t, c->threads, c->updaters, true);
  assert_int_equal(t.n_cpus, c->n_cpus);
  assert_int_equal(t.n_cores, c->n_cores);
  assert_int_equal(t.n_nodes, c->n_nodes);
  assert_int_equal(d.n_nodes, c->n_nodes);
  assert_int_equal(d.binds, c->n_nodes > 1);
  for (size_t node = 0; node < c->n_nodes; node++) {
    assert_int_equal(d.compute.n[node], c->compute[node]);
    assert_int_equal(d.update.n[node], c->update[node]);
    if (d.binds)
      assert_int_equal(d.node_cpus[node + 1] - d.node_cpus[node],
                       c->node_cpus[node]);
  }
  for (size_t i = 0; d.binds && i < d.node_cpus[d.n_nodes]; i++)
    for (size_t k = 0; k < i; k++)
      assert_int_not_equal(d.cpus[i], d.cpus[k]);
  pen_division_done(&d);
  pen_topology_done(&t);
}

static void test_machines(void **state)
{
  for (size_t i = 0; i < sizeof machine_cases / sizeof *machine_cases; i++) {
    printf("# %s, %zu allowed, quota %zu\n", machine_cases[i].synthetic,
           machine_cases[i].n_allowed, machine_cases[i].quota);
    check_machine(&machine_cases[i]);
  }
}

static void test_masked_cpus_keep_their_numbers(void **state)
{
  static const uint32_t allowed[] = {2, 9, 3};
  struct pen_topology t = described("numa:2 core:4 pu:2", allowed, 3);
  struct pen_division d = divided(&t, 0, 0, true);
  assert_int_equal(d.cpus[0], 2);
  assert_int_equal(d.cpus[1], 3);
  assert_int_equal(d.cpus[2], 9);
  assert_int_equal(t.cpus[0].core, t.cpus[1].core); /* two threads of one */
  assert_int_equal(d.node_number[1], 1);
  pen_division_done(&d);
  pen_topology_done(&t);
}

static void test_bad_descriptions(void **state)
{
  static const uint32_t nowhere[] = {99};
  struct pen_topology t = described("numa:1 core:1 pu:1", NULL, 0);
  pen_topology_done(&t);
  test_fails(pen_topology_describe("16 cores, please", NULL, 0, &t),
             PEN_EUSAGE, "16 cores, please");
  test_fails(pen_topology_describe("numa:2 core:1 pu:1", nowhere, 1, &t),
             PEN_EUSAGE, "no CPU of numa:2");
}

static void test_off_is_one_team(void **state)
{
  struct pen_topology t = uneven_by_hand();
  struct pen_division d = divided(&t, 0, 3, false);
  char text[PEN_DIVISION_TEXT_BYTES];
  assert_false(d.binds);
  assert_int_equal(d.compute.n_teams, 1);
  assert_int_equal(d.compute.n[0], 4);
  assert_int_equal(d.update.n[0], 3);
  assert_null(d.compute.enter);
  assert_non_null(strstr(pen_division_text(&d, &t, text), "--numa off"));
  pen_division_done(&d);
}

static void test_text(void **state)
{
  struct pen_topology t = uneven_by_hand();
  t.quota_cpus = 3;
  struct pen_division d = divided(&t, 0, 8, true);
  char text[PEN_DIVISION_TEXT_BYTES];
  assert_string_equal(pen_division_text(&d, &t, text),
                      "4 CPUs of 3 cores on 2 nodes (hand), quota 3; 3 compute "
                      "(0 + 3) and 8 update threads (2 + 6), each on its node, "
                      "where its part of memory is touched first");
  pen_division_done(&d);
}

static void test_text_of_many_nodes_fits(void **state)
{
  struct pen_topology t = described("numa:64 core:16 pu:2", NULL, 0);
  struct pen_division d = divided(&t, 9000, 9000, true);
  char text[PEN_DIVISION_TEXT_BYTES];
  assert_int_equal(t.n_nodes, 64);
  assert_non_null(strstr(pen_division_text(&d, &t, text), "touched first"));
  pen_division_done(&d);
  pen_topology_done(&t);
}

/* More nodes than there is room for are told as one. */
static void test_too_many_nodes(void **state)
{
  struct pen_topology t = described("numa:65 core:1 pu:1", NULL, 0);
  assert_int_equal(t.n_nodes, 1);
  assert_int_equal(t.n_cpus, 65);
  pen_topology_done(&t);
}

static void test_this_machine(void **state)
{
  struct pen_topology t;
  test_ok(pen_topology_read(&t));
  struct pen_division d = divided(&t, 0, 0, true);
  size_t usable = pen_thread_usable_cpus(), n = 0;
  for (size_t node = 0; node < d.n_nodes; node++)
    n += d.compute.n[node];
  assert_int_equal(n, usable);
  assert_true(t.n_cores <= t.n_cpus && t.n_nodes <= t.n_cpus);
  pen_division_done(&d);
  pen_topology_done(&t);
}

/* ---- memory ---- */

struct seen {
  size_t end; /* of the last range */
  size_t node_bytes[2];
};

static void see(void *ctx, const struct pen_touch_range *range)
{
  struct seen *s = ctx;
  assert_int_equal(range->begin, s->end); /* no gap, no overlap */
  assert_true(range->end > range->begin);
  s->node_bytes[range->node] += range->end - range->begin;
  s->end = range->end;
}

struct search {
  size_t offset, node;
};

static void find(void *ctx, const struct pen_touch_range *range)
{
  struct search *s = ctx;
  if (range->begin <= s->offset && s->offset < range->end)
    s->node = range->node;
}

static size_t node_of(const struct pen_layout *l,
                      const struct pen_division *d, size_t offset)
{
  struct search s = {offset, SIZE_MAX};
  pen_touch_each(l, d, PEN_TIER_HOST, find, &s);
  return s.node;
}

/* The n-th element of p, m, v, of the gradient and of the weights: one node,
 * the one whose update workers begin with it. */
static void check_tile(const struct pen_layout *l,
                       const struct pen_division *d, const struct pen_tile *t,
                       size_t elem)
{
  bool first = elem < pen_pool_border(t->elems, &d->update, 1);
  const struct pen_slot *state = &l->slots[t->state_home];
  const struct pen_slot *weights = &l->slots[l->weight_home[t->block]];
  const struct pen_slot *grads = &l->slots[l->grad_home[t->block]];
  for (size_t array = 0; array < 3; array++)
    assert_int_equal(
        node_of(l, d, state->offset + 4 * (array * t->elems + elem)), !first);
  assert_int_equal(node_of(l, d, weights->offset + 4 * (t->begin + elem)),
                   !first);
  assert_int_equal(node_of(l, d, grads->offset + 4 * (t->begin + elem)),
                   !first);
}

static void test_arenas_are_covered_and_cut_like_work(void **state)
{
  struct pen_topology t = uneven_by_hand();
  struct pen_division d = divided(&t, 3, 4, true); /* (0 + 3) and (1 + 3) */
  struct toy toy;
  struct pen_layout l;
  struct pen_placement p = places_plain();
  p.tile_elems = PEN_NORM_CHUNK_ELEMS; /* several in a block */
  toy_init(&toy, false, 4);
  test_ok(pen_layout_init(&l, &toy.workload, &p));
  struct seen s = {.end = 0};
  pen_touch_each(&l, &d, PEN_TIER_HOST, see, &s);
  assert_int_equal(s.end, l.tier_bytes[PEN_TIER_HOST]);
  /* a quarter of what update workers use, nothing of what compute alone does */
  double share = (double)s.node_bytes[0] / (double)s.end;
  assert_true(share > 0.1 && share < 0.24);
  size_t n_checked = 0;
  for (size_t i = 0; i < l.n_tiles; i++) {
    const struct pen_tile *tile = &l.tiles[i];
    bool whole = tile->elems == p.tile_elems;
    for (size_t k = 0; whole && k < 8; k++, n_checked++)
      check_tile(&l, &d, tile, k * tile->elems / 8 + 1);
  }
  assert_true(n_checked > 0);
  pen_layout_done(&l);
  pen_division_done(&d);
}

/* Linked in the place of what the touching threads call: counts them. */
static struct {
  pthread_mutex_t mutex;
  size_t n_threads, bytes;
} touched = {.mutex = PTHREAD_MUTEX_INITIALIZER};

int __real_pen_device_host_back(void *base, size_t bytes);
int __wrap_pen_device_host_back(void *base, size_t bytes);

int __wrap_pen_device_host_back(void *base, size_t bytes)
{
  static _Thread_local bool was_here;
  pthread_mutex_lock(&touched.mutex);
  touched.n_threads += !was_here;
  touched.bytes += bytes;
  pthread_mutex_unlock(&touched.mutex);
  was_here = true;
  return __real_pen_device_host_back(base, bytes);
}

static void backs_all_memory(const struct pen_topology *t,
                             struct pen_division d)
{
  struct toy toy;
  struct pen_layout l;
  struct pen_placement p = places_plain();
  toy_init(&toy, false, 4);
  test_ok(pen_layout_init(&l, &toy.workload, &p));
  void *base;
  size_t bytes = l.tier_bytes[PEN_TIER_HOST], n = 0, n_there = 0;
  test_ok(pen_device_host_map(bytes, &base));
  touched.n_threads = touched.bytes = 0;
  volatile sig_atomic_t stop = 1;
  test_fails(pen_touch_arena(&l, &d, PEN_TIER_HOST, base, &stop), PEN_ESTOPPED,
             "while memory was taken");
  assert_int_equal(touched.bytes, 0);
  stop = 0;
  test_ok(pen_touch_arena(&l, &d, PEN_TIER_HOST, base, &stop));
  assert_int_equal(touched.bytes, bytes / 4096 * 4096); /* no page twice */
  unsigned char *in_core = malloc(bytes / 4096 + 1);
  assert_int_equal(mincore(base, bytes, in_core), 0);
  for (size_t page = 0; page < bytes / 4096; page++)
    assert_true(in_core[page] & 1);
  if (d.binds && pen_touch_look(&l, &d, PEN_TIER_HOST, base, &n, &n_there) < 0)
    printf("# not looked at: %s\n", pen_error_text());
  else if (d.binds)
    assert_true(n > 0 && n_there <= n && (t->node_number[1] || n_there == n));
  free(in_core);
  pen_device_host_free(&base, bytes);
  pen_layout_done(&l);
  pen_division_done(&d);
}

static void test_touching_backs_all_memory(void **state)
{
  struct pen_topology t;
  test_ok(pen_topology_read(&t));
  for (size_t i = 0; i < t.n_cpus; i++)
    t.cpus[i].node = i & 1;
  t.n_nodes = t.n_cpus > 1 ? 2 : 1;
  if (t.n_nodes < 2)
    test_skip("one CPU is no two nodes");
  backs_all_memory(&t, divided(&t, 0, 0, true));
  backs_all_memory(&t, divided(&t, 4, 0, true)); /* several threads a node */
  pen_topology_done(&t);
}

static void test_threads_share_the_touching(void **state)
{
  struct pen_topology t;
  test_ok(pen_topology_read(&t));
  for (size_t threads = 1; threads <= 3; threads += 2) {
    backs_all_memory(&t, divided(&t, threads, 0, false));
    assert_int_equal(touched.n_threads, threads); /* each touched something */
  }
  pen_topology_done(&t);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_machines),
      cmocka_unit_test(test_masked_cpus_keep_their_numbers),
      cmocka_unit_test(test_bad_descriptions),
      cmocka_unit_test(test_off_is_one_team),
      cmocka_unit_test(test_text),
      cmocka_unit_test(test_text_of_many_nodes_fits),
      cmocka_unit_test(test_too_many_nodes),
      cmocka_unit_test(test_this_machine),
      cmocka_unit_test(test_arenas_are_covered_and_cut_like_work),
      cmocka_unit_test(test_touching_backs_all_memory),
      cmocka_unit_test(test_threads_share_the_touching),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
