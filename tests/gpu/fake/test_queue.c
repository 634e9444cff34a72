/* Lanes as queues of a device: the plugin's device row on the fake runtime, with
 * delays drawn by seed, trains the toy to the same bits as the host does; and
 * every wait that makes it so is missed when it is left out. */
#include "tests/test.h"

#include "kernels/cuda/state.h"
#include "offload/run_lanes.h"
#include "src/bench/link.h"
#include "tests/gpu/fake/fake.h"
#include "tests/gpu/fake/toy_queue.h"
#include "tests/sched/places.h"
#include "tests/sched/runs.h"
#include "tests/tmpdir.h"

/* The toy has no products with one. */
int pen_cuda_bias(pen_cuda_stream s, enum pen_elem elem, size_t rows,
                  size_t cols, void *x, size_t ld, const void *b)
{
  fail_msg("a bias of %zu x %zu is added", rows, cols);
  return 0;
}

static struct pen_cuda cuda;
static struct runs_on on = {&cuda.device, toy_queue_wrap, false};

static int open_device(void **state)
{
  (void)state;
  pen_cuda_error_set = pen_error_set;
  fake_settings()->strict = true;
  fake_settings()->memory_bytes = (uint64_t)256 << 20;
  test_ok(pen_cuda_device_open(&cuda, 0));
  test_ok(pen_cuda_products_open(&cuda));
  toy_queue_use(cuda.queues[PEN_DEVICE_COMPUTE]);
  return 0;
}

static int close_device(void **state)
{
  (void)state;
  pen_cuda_products_close(&cuda);
  pen_cuda_device_close(&cuda);
  return 0;
}

/* Drives are late with what they move, where a test says so. */
static bool drives_are_late;

static void be_late(void)
{
  if (drives_are_late)
    usleep(2000);
}

ssize_t __real_pread(int fd, void *to, size_t bytes, off_t at);
ssize_t __wrap_pread(int fd, void *to, size_t bytes, off_t at);
ssize_t __real_pwrite(int fd, const void *from, size_t bytes, off_t at);
ssize_t __wrap_pwrite(int fd, const void *from, size_t bytes, off_t at);

ssize_t __wrap_pread(int fd, void *to, size_t bytes, off_t at)
{
  be_late();
  return __real_pread(fd, to, bytes, at);
}

ssize_t __wrap_pwrite(int fd, const void *from, size_t bytes, off_t at)
{
  be_late();
  return __real_pwrite(fd, from, bytes, at);
}

static int dropped_lane; /* of test_every_wait_is_needed */

static int calm(void **state)
{
  struct fake_settings *s = fake_settings();
  (void)state;
  s->jitter = 0;
  s->drop_waiter = s->drop_waited = s->drop_sync = dropped_lane = -1;
  drives_are_late = on.may_fail = false;
  return 0;
}

static struct pen_placement place(uint64_t n)
{
  struct pen_placement p = places_random(places_seed(), n);
  p.unified = false;
  return p;
}

/* What travels, and which waits that needs. */
enum scene {
  BUSY,    /* weights, gradients and activations, between RAM and the device */
  DRIVES,  /* the same from and to drives, state too */
  NEAR,    /* the device keeps weights and state, and updates them */
  EXPERTS, /* weights of experts, those that are asked for */
  SCENES
};

/* Rings of one or two slots. */
static struct pen_placement place_of(enum scene scene)
{
  struct pen_placement p = places_plain();
  p.unified = false;
  p.activations_device_bytes = 0;
  p.group_size = 2;
  p.weight_slots = scene == EXPERTS ? 1 : 2;
  p.gradient_slots = 1;
  p.activation_slots = 2;
  if (scene == NEAR)
    p.weights_device_bytes = p.state_device_bytes = PEN_ALL_BYTES;
  if (scene == DRIVES) {
    p.weights_host_bytes = p.gradients_host_bytes = p.state_host_bytes = 0;
    p.activations_host_bytes = 0;
    p.tile_slots = 1;
  }
  return p;
}

static void test_the_same_bits(void **state)
{
  struct pen_placement plain = places_plain();
  char text[128];
  (void)state;
  for (enum toy_kind kind = TOY_UNTIED; kind < TOY_KINDS; kind++) {
    struct runs_outcome *want = runs_outcome(&plain, kind, 1, 1, -1, NULL);
    uint64_t n_random = TEST_SANITIZED || kind >= TOY_EXPERTS ? 2 : 4;
    for (uint64_t n = 0; n <= n_random; n++) {
      struct pen_placement p = n ? place(n - 1) : place_of(NEAR);
      fake_settings()->jitter = n + 1;
      uint64_t before = fake_counts()->allocations;
      struct runs_outcome *got = runs_outcome(&p, kind, 2, 1, -1, &on);
      assert_int_equal(fake_counts()->allocations, before + 1); /* the arena */
      if (!runs_same(got, want, text, sizeof text))
        fail_msg("placement %d on the device: %s", (int)n, text);
      runs_outcome_free(got);
    }
    runs_outcome_free(want);
  }
  assert_int_equal(fake_counts()->pageable_copies, 0);
}

/* Host memory that cannot be pinned, or only its beginning: slower, the same. */
static void test_less_pinned_memory(void **state)
{
  struct pen_placement plain = places_plain(), p = place(2);
  static const uint64_t pinned[] = {0, (uint64_t)2 << 20};
  char text[128];
  (void)state;
  fake_settings()->strict = false;
  struct runs_outcome *want = runs_outcome(&plain, true, 1, 1, -1, NULL);
  for (size_t i = 0; i < 2; i++) {
    fake_settings()->pin_bytes = pinned[i];
    uint64_t before = fake_counts()->pageable_copies;
    struct runs_outcome *got = runs_outcome(&p, true, 2, 1, -1, &on);
    if (!runs_same(got, want, text, sizeof text))
      fail_msg("with %zu bytes pinned: %s", (size_t)pinned[i], text);
    assert_true(fake_counts()->pageable_copies > before);
    runs_outcome_free(got);
  }
  fake_settings()->pin_bytes = UINT64_MAX;
  fake_settings()->strict = true;
  runs_outcome_free(want);
}

/* A system that pins small pieces only, but as many as one likes. */
static void test_many_pieces(void **state)
{
  size_t bytes = ((size_t)300 << 20) + 4096, pinned = 0;
  void *host;
  (void)state;
  test_ok(pen_device_host_map(bytes, &host));
  fake_settings()->pin_piece = (uint64_t)2 << 20;
  test_ok(cuda.device.pin(&cuda.device, host, bytes, &pinned));
  assert_int_equal(pinned, bytes);
  assert_int_equal(cuda.n_pieces, 151);
  assert_int_equal(cuda.piece_ends[149], (size_t)300 << 20);
  cuda.device.unpin(&cuda.device);
  fake_settings()->pin_piece = UINT64_MAX;
  pen_device_host_free(&host, bytes);
}

/* ---- waits left out ---- */

/* A run makes the tickets of its lanes in order, and one run is there at a
 * time. */
static const struct pen_ticket *tickets[PEN_LANES];
static size_t n_tickets;
static int dropped_lane = -1; /* waits of threads for this lane are left out */
static uint64_t n_dropped;

int __real_pen_ticket_init(struct pen_ticket *lane);
int __wrap_pen_ticket_init(struct pen_ticket *lane);
bool __real_pen_ticket_wait(struct pen_ticket *lane, uint32_t ticket);
bool __wrap_pen_ticket_wait(struct pen_ticket *lane, uint32_t ticket);

int __wrap_pen_ticket_init(struct pen_ticket *lane)
{
  tickets[n_tickets++ % PEN_LANES] = lane;
  return __real_pen_ticket_init(lane);
}

bool __wrap_pen_ticket_wait(struct pen_ticket *lane, uint32_t ticket)
{
  if (dropped_lane < 0 || lane != tickets[dropped_lane])
    return __real_pen_ticket_wait(lane, ticket);
  __atomic_add_fetch(&n_dropped, 1, __ATOMIC_RELAXED);
  return true;
}

#if !TEST_SANITIZED
static enum toy_kind kind_of(enum scene scene)
{
  return scene == EXPERTS ? TOY_EXPERTS : TOY_TIED;
}

/* Does a training under some of these seeds come out otherwise? */
static bool is_noticed(enum scene scene, const struct runs_outcome *want,
                       int n_seeds, int *ret_seeds)
{
  struct pen_placement p = place_of(scene);
  char text[128];
  drives_are_late = scene == DRIVES;
  for (int seed = 1; seed <= n_seeds; seed++) {
    fake_settings()->jitter = (uint64_t)seed;
    struct runs_outcome *got =
        runs_outcome(&p, kind_of(scene), 2, 1, -1, &on);
    bool same = runs_same(got, want, text, sizeof text);
    runs_outcome_free(got);
    *ret_seeds = seed;
    if (!same)
      return true;
  }
  return false;
}

#define HOST (-1)

static const char *name_of(int lane)
{
  return lane == HOST ? "the host" : pen_lane_name(lane);
}

/* A wait of one lane for another; HOST: threads, for what a device lane's
 * finisher, or a host lane, has done. */
static const struct {
  enum scene scene;
  int waiter, waited;
} waits[] = {{BUSY, PEN_LANE_COMPUTE, PEN_LANE_UPLOAD},
             {BUSY, PEN_LANE_COMPUTE, PEN_LANE_DOWNLOAD},
             {BUSY, PEN_LANE_UPLOAD, PEN_LANE_COMPUTE},
             {BUSY, PEN_LANE_DOWNLOAD, PEN_LANE_COMPUTE},
             {BUSY, HOST, PEN_LANE_COMPUTE},
             {BUSY, HOST, PEN_LANE_UPLOAD},
             {BUSY, HOST, PEN_LANE_DOWNLOAD},
             {BUSY, HOST, PEN_LANE_UPDATE},
             {DRIVES, HOST, PEN_LANE_READ},
             {DRIVES, HOST, PEN_LANE_WRITE},
             {NEAR, PEN_LANE_COMPUTE, PEN_LANE_UPLOAD},
             {NEAR, PEN_LANE_DOWNLOAD, PEN_LANE_COMPUTE},
             {NEAR, HOST, PEN_LANE_DOWNLOAD},
             {EXPERTS, PEN_LANE_COMPUTE, PEN_LANE_UPLOAD},
             {EXPERTS, PEN_LANE_UPLOAD, PEN_LANE_COMPUTE},
             {EXPERTS, HOST, PEN_LANE_DOWNLOAD}};
static const char *const scene_names[SCENES] = {"", " (drives)",
                                                " (state on the device)",
                                                " (experts)"};

/* The fake numbers streams as PEN_DEVICE_ and so the first lanes do. */
static void leave_out(int waiter, int waited)
{
  struct fake_settings *s = fake_settings();
  if (waited >= PEN_LANE_UPDATE) { /* no queue of the device */
    dropped_lane = waited;
  } else if (waiter == HOST) {
    s->drop_sync = waited;
  } else {
    s->drop_waiter = waiter;
    s->drop_waited = waited;
  }
}

static void test_every_wait_is_needed(void **state)
{
  struct pen_placement plain = places_plain();
  struct runs_outcome *want[SCENES];
  int seeds = 0;
  (void)state;
  for (enum scene s = BUSY; s < SCENES; s++) {
    want[s] = runs_outcome(&plain, kind_of(s), 1, 1, -1, NULL);
    if (is_noticed(s, want[s], 2, &seeds))
      fail_msg("with all waits seed %d differs%s", seeds, scene_names[s]);
  }
  for (size_t i = 0; i < sizeof waits / sizeof *waits; i++) {
    uint64_t before = fake_counts()->dropped + n_dropped;
    leave_out(waits[i].waiter, waits[i].waited);
    on.may_fail = true; /* a checksum may notice */
    bool noticed = is_noticed(waits[i].scene, want[waits[i].scene], 10,
                              &seeds);
    calm(NULL);
    uint64_t dropped = fake_counts()->dropped + n_dropped - before;
    printf("# %s not waiting for %s%s: %s after %d trainings, %llu waits left "
           "out\n", name_of(waits[i].waiter), name_of(waits[i].waited),
           scene_names[waits[i].scene],
           noticed ? "noticed" : "NOT noticed", seeds,
           (unsigned long long)dropped);
    assert_true(dropped > 0);
    assert_true(noticed);
  }
  for (enum scene s = BUSY; s < SCENES; s++)
    runs_outcome_free(want[s]);
}
#endif

/* ---- measuring ---- */

/* Both ways at once is a second thread: what ThreadSanitizer is to see. */
static void test_the_link_is_measured(void **state)
{
  struct pen_bench_options o = {.n_runs = 3};
  struct pen_bench_link link = {.device = &cuda.device, .bytes = 1 << 20};
  static struct pen_bench_table table;
  struct pen_machine machine = {.upload = 0};
  void *arena, *host;
  size_t pinned = 0;
  (void)state;
  fake_settings()->strict = false; /* pageable memory is what is measured */
  test_ok(cuda.device.alloc(&cuda.device, link.bytes, &arena));
  test_ok(pen_device_host_alloc(link.bytes, &host));
  test_ok(cuda.device.pin(&cuda.device, host, link.bytes, &pinned));
  assert_int_equal(pinned, link.bytes);
  link.arena = arena;
  link.host = host;
  link.pageable = calloc(1, link.bytes);
  assert_non_null(link.pageable);
  uint64_t before = fake_counts()->pageable_copies;
  test_ok(pen_bench_link_pinned(&o, &link, &table, &machine));
  assert_int_equal(fake_counts()->pageable_copies, before);
  test_ok(pen_bench_link_pageable(&o, &link, &table, &machine));
  assert_true(fake_counts()->pageable_copies > before);
  assert_int_equal(table.n_rows, 7);
  assert_true(machine.upload > 0 && machine.download > 0);
  cuda.device.unpin(&cuda.device);
  cuda.device.free(&cuda.device, &arena, link.bytes);
  pen_device_host_free(&host, link.bytes);
  free(link.pageable);
  fake_settings()->strict = true;
}

/* ---- failures ---- */

static int step_once(const struct pen_placement *p, char *text, size_t bytes)
{
  struct runs t = {.dir = test_tmp("store")};
  struct pen_shape shape = {.kind = PEN_STEP_TRAIN,
                            .n_micros = 3,
                            .n_tokens = 16,
                            .speculates = true};
  struct pen_run_update update = {.apply = true, .commit = true};
  struct pen_run_result r;
  runs_init(&t, p, true, 2, 1, &on);
  int rc = pen_run_step(t.run, &shape, &update, &r);
  snprintf(text, bytes, "%s", pen_error_text());
  pen_error_clear();
  runs_outcome_free(t.outcome);
  runs_done(&t);
  return rc;
}

/* A launch that breaks the device: the step ends, its place is told.  Last, since
 * the device stays broken. */
static void test_failure_is_told(void **state)
{
  struct pen_placement p = place(3);
  char text[1024];
  (void)state;
  fake_settings()->fault = fake_counts()->launches + 20;
  assert_int_equal(step_once(&p, text, sizeof text), -PEN_EDEVICE);
  printf("# %s\n", text);
  assert_non_null(strstr(text, " of block "));
  assert_non_null(strstr(text, " on lane "));
  assert_non_null(strstr(text, "illegal memory access"));
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_teardown(test_the_same_bits, calm),
      cmocka_unit_test_teardown(test_less_pinned_memory, calm),
      cmocka_unit_test_teardown(test_many_pieces, calm),
      cmocka_unit_test_teardown(test_the_link_is_measured, calm),
#if !TEST_SANITIZED
      cmocka_unit_test_teardown(test_every_wait_is_needed, calm),
#endif
      cmocka_unit_test_teardown(test_failure_is_told, calm),
  };
  return cmocka_run_group_tests(tests, open_device, close_device);
}
