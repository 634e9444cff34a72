/* The store's contract, the same on every engine. */
#include <errno.h>

#include "io/files.h"
#include "io/store_format.h"
#include "tests/io/store_test.h"

/* Three fresh directories per test; the ram engine only uses their names. */
struct fixture {
  const struct pen_engine *engine;
  char paths[3][PATH_MAX + 64];
  const char *dirs[3];
};

static struct fixture fixture_make(void **state)
{
  static int number;
  struct fixture f = {.engine = test_engine(*state)};
  number++;
  for (int i = 0; i < 3; i++)
    snprintf(f.paths[i], sizeof f.paths[i], "%s/%d-%d/nested", test_tmpdir(), number, i);
  return f;
}

#define FIXTURE(f)                                                            \
  struct fixture f = fixture_make(state);                                     \
  for (int i_ = 0; i_ < 3; i_++)                                              \
  f.dirs[i_] = f.paths[i_]

static void test_commit_and_reopen(void **state)
{
  FIXTURE(f);
  struct pen_store_options o = test_options(f.engine, f.dirs, 1);
  struct pen_store *store = NULL;
  struct pen_store_queue *queue = NULL;
  struct pen_store_commit_info info;
  char *buffers = test_buffer(N_TILES * TILE_BYTES);
  test_fails(pen_store_open(&o, &store), ENOENT, "no store");
  test_ok(pen_store_create(&o, false, &store));
  pen_store_committed(store, &info);
  assert_false(info.committed);
  for (uint64_t step = 1; step <= 9; step++) {
    struct pen_store_region region = {buffers, N_TILES * TILE_BYTES};
    test_ok(pen_store_queue_create(store, N_TILES, &region, 1, &queue));
    test_ok(write_step(queue, buffers, step));
    pen_store_queue_free(&queue);
    char meta[64];
    int n = snprintf(meta, sizeof meta, "meta of step %d", (int)step);
    test_ok(pen_store_commit(store, step, meta, (size_t)n));
    check_step(store, step);
    if (step % 3)
      continue;
    pen_store_close(&store);
    test_ok(pen_store_open(&o, &store));
    pen_store_committed(store, &info);
    assert_true(info.committed);
    assert_int_equal(info.step, step);
    assert_int_equal(info.meta_bytes, n);
    assert_memory_equal(info.meta, meta, (size_t)n);
    assert_int_equal(pen_store_tile_bytes(store), TILE_BYTES);
    assert_int_equal(pen_store_n_tiles(store), N_TILES);
    check_step(store, step);
  }
  pen_store_close(&store);
  free(buffers);
  test_fails(pen_store_create(&o, false, &store), EEXIST, "overwrite");
  test_ok(pen_store_create(&o, true, &store));
  pen_store_committed(store, &info);
  assert_false(info.committed);
  pen_store_close(&store);
  test_ok(pen_store_remove(f.engine, f.dirs, 1));
  test_fails(pen_store_open(&o, &store), ENOENT, "no store");
}

/* A new store with step 1 committed; what its steps are written from. */
static char *start(const struct pen_store_options *o, struct pen_store **store,
                   struct pen_store_queue **queue)
{
  char *buffers = test_buffer(N_TILES * TILE_BYTES);
  test_ok(pen_store_create(o, false, store));
  test_ok(pen_store_queue_create(*store, N_TILES, NULL, 0, queue));
  test_ok(write_step(*queue, buffers, 1));
  test_ok(pen_store_commit(*store, 1, NULL, 0));
  return buffers;
}

/* What is not committed is as if it had never been written; and a tile written
 * twice between commits never touches the committed one. */
static void test_uncommitted_is_gone(void **state)
{
  FIXTURE(f);
  struct pen_store_options o = test_options(f.engine, f.dirs, 1);
  struct pen_store *store = NULL;
  struct pen_store_queue *queue = NULL;
  char *buffers = start(&o, &store, &queue);
  for (uint64_t step = 2; step < 20; step++)
    test_ok(write_step(queue, buffers, step));
  pen_store_queue_free(&queue);
  check_step(store, 19);
  pen_store_close(&store);
  test_ok(pen_store_open(&o, &store));
  check_step(store, 1);
  pen_store_close(&store);
  free(buffers);
}

/* What is aside is not there until it stands, and what does not stand never
 * was: in memory and on the drive. */
static void test_aside(void **state)
{
  FIXTURE(f);
  struct pen_store_options o = test_options(f.engine, f.dirs, 1);
  struct pen_store *store = NULL;
  struct pen_store_queue *queue = NULL;
  char *buffers = start(&o, &store, &queue);
  for (uint64_t step = 2; step < 20; step++) { /* each takes the last one's place */
    test_ok(write_step_aside(queue, buffers, step));
    check_step(store, 1);
  }
  test_ok(pen_store_commit(store, 2, NULL, 0)); /* of what stands */
  check_step(store, 1);
  pen_store_settle(store, false);
  check_step(store, 1);
  pen_store_settle(store, true); /* nothing is aside */
  check_step(store, 1);
  test_ok(write_step_aside(queue, buffers, 21));
  pen_store_settle(store, true);
  check_step(store, 21);
  test_fails(write_step_aside(queue, buffers, 22), ENOSPC, "no free extent");
  pen_store_settle(store, false);
  check_step(store, 21);
  pen_store_queue_free(&queue);
  pen_store_close(&store);
  test_ok(pen_store_open(&o, &store)); /* 21 was never committed */
  check_step(store, 1);
  test_ok(pen_store_queue_create(store, N_TILES, NULL, 0, &queue));
  for (uint64_t step = 30; step < 50; step++) {
    test_ok(write_step_aside(queue, buffers, step));
    pen_store_settle(store, step % 3 != 0);
    test_ok(pen_store_commit(store, step, NULL, 0));
    check_step(store, step % 3 ? step : step == 30 ? 1 : step - 1);
  }
  pen_store_queue_free(&queue);
  pen_store_close(&store);
  test_ok(pen_store_open(&o, &store));
  check_step(store, 49);
  pen_store_close(&store);
  free(buffers);
}

/* Heads alone are what is read until their rests come, and what is behind them is
 * no part of the tile; with the rests they are what was written at once. */
static void test_heads_and_rests(void **state)
{
  FIXTURE(f);
  struct pen_store_options o = test_options(f.engine, f.dirs, 1);
  struct pen_store *store = NULL;
  struct pen_store_queue *queue = NULL;
  char *buffers = start(&o, &store, &queue), *back = test_buffer(TILE_BYTES);
  test_fails(pen_store_write_rest(queue, 0, buffers, 4096, 4096, 0), EINVAL,
             "a commit or a checkpoint has");
  for (uint64_t step = 2; step < 20; step++) {
    test_ok(write_heads(queue, buffers, step));
    for (size_t t = 0; t < N_TILES; t++) {
      test_ok(pen_store_read_tile(queue, t, back, 4096, t));
      test_ok(reap_all(queue, 1));
      assert_memory_equal(back, buffers + t * TILE_BYTES, 4096);
      test_fails(pen_store_read_tile(queue, t, back, 8192, t), PEN_EMISMATCH,
                 "4096 were written");
    }
    if (step % 3)
      continue;
    test_ok(write_rests(queue, buffers, step));
    check_step(store, step);
    test_ok(write_rests(queue, buffers, step)); /* anew, into the same place */
    check_step(store, step);
    if (step % 2)
      test_ok(pen_store_commit(store, step, NULL, 0));
  }
  test_fails(pen_store_write_rest(queue, 0, buffers, 4096, 8192, 0), EINVAL,
             "were not written");
  test_fails(pen_store_write_rest(queue, 0, buffers, TILE_BYTES, 4096, 0), EINVAL,
             "20480");
  pen_store_queue_free(&queue);
  pen_store_close(&store);
  test_ok(pen_store_open(&o, &store)); /* heads of 19 were never committed */
  check_step(store, 15);
  pen_store_close(&store);
  free(back);
  free(buffers);
}

static void test_refusals(void **state)
{
  FIXTURE(f);
  struct pen_store_options o = test_options(f.engine, f.dirs, 2);
  struct pen_store *store = NULL, *second = NULL;
  struct pen_store_queue *queue = NULL;
  char *buffer = test_buffer(TILE_BYTES);
  test_ok(pen_store_create(&o, false, &store));
  test_fails(pen_store_open(&o, &second), EBUSY, "another run");
  if (f.engine == &pen_engine_ram) { /* the others wait before they refuse */
    test_fails(pen_store_create(&o, true, &second), EBUSY, "another run");
    test_fails(pen_store_remove(f.engine, f.dirs, 2), EBUSY, "another run");
  }
  test_ok(pen_store_queue_create(store, 1, NULL, 0, &queue));
  test_fails(pen_store_read_tile(queue, 0, buffer, 4096, 0), PEN_EMISMATCH,
             "tile 0");
  test_fails(pen_store_write_tile(queue, N_TILES, buffer, 4096, 4096, 0), EINVAL,
             "tile");
  test_fails(pen_store_write_tile(queue, 0, buffer, 4095, 4095, 0), EINVAL, "4095");
  test_fails(pen_store_write_tile(queue, 0, buffer, 2 * TILE_BYTES, 0, 0), EINVAL,
             "32768");
  memset(buffer, 1, TILE_BYTES);
  test_ok(pen_store_write_tile(queue, 0, buffer, 8192, 8192, 9));
  assert_int_equal(pen_store_write_tile(queue, 1, buffer, 4096, 4096, 0), -EAGAIN);
  test_fails(pen_store_commit(store, 1, NULL, 0), EBUSY, "in flight");
  test_ok(reap_all(queue, 1));
  test_fails(pen_store_read_tile(queue, 0, buffer, 12288, 0), PEN_EMISMATCH,
             "8192");
  pen_store_queue_free(&queue);
  test_ok(pen_store_commit(store, 1, NULL, 0));
  pen_store_close(&store);

  o.run_id[0] = 99;
  test_fails(pen_store_open(&o, &store), PEN_EMISMATCH, "another run's");
  o.run_id[0] = 1;
  const char *swapped[] = {f.dirs[1], f.dirs[0]};
  o.dirs = swapped;
  test_fails(pen_store_open(&o, &store), ENOENT, "no store");
  o.n_dirs = 1;
  o.dirs = f.dirs;
  test_fails(pen_store_open(&o, &store), PEN_EMISMATCH, "2 directories");
  /* A second store must not take the directory that holds part two. */
  const char *other[] = {f.dirs[2], f.dirs[1]};
  o.dirs = other;
  o.n_dirs = 2;
  test_fails(pen_store_create(&o, false, &store), EEXIST, f.dirs[1]);
  o.dirs = other + 1;
  o.n_dirs = 1;
  test_fails(pen_store_create(&o, false, &store), EEXIST, f.dirs[1]);
  free(buffer);
}

/* A store that is refused for lack of room leaves no folder behind, whichever way
 * its directories are named. */
static void test_refused_leaves_nothing(void **state)
{
  FIXTURE(f);
  char here[PATH_MAX];
  const char *dirs[] = {test_tmp("made/for/nothing"), "new-folder/x", "new-one"};
  assert_non_null(getcwd(here, sizeof here));
  assert_int_equal(chdir(test_tmpdir()), 0);
  for (size_t i = 0; i < 3; i++) {
    struct pen_store_options o = test_options(f.engine, dirs + i, 1);
    struct pen_store *store = NULL;
    o.scratch_bytes = (uint64_t)1 << 60;
    test_fails(pen_store_create(&o, false, &store), PEN_ENOFIT, "does not fit");
  }
  assert_false(pen_files_exists("made"));
  assert_false(pen_files_exists("new-folder"));
  assert_false(pen_files_exists("new-one"));
  assert_int_equal(chdir(here), 0);
}

/* A checkpoint's pinned tiles stay as they are over many commits, across a
 * reopening, and can become the current ones again. */
static void test_pins_and_rewind(void **state)
{
  FIXTURE(f);
  struct pen_store_options o = test_options(f.engine, f.dirs, 2);
  o.n_extents = 3 * N_TILES;
  struct pen_store *store = NULL;
  struct pen_store_queue *queue = NULL;
  struct pen_store_place pinned[N_TILES], again[N_TILES];
  char *buffers = test_buffer(N_TILES * TILE_BYTES);
  test_ok(pen_store_create(&o, false, &store));
  for (uint64_t step = 1; step <= 21; step++) {
    test_ok(pen_store_queue_create(store, N_TILES, NULL, 0, &queue));
    test_ok(write_step(queue, buffers, step));
    pen_store_queue_free(&queue);
    test_ok(pen_store_commit(store, step, NULL, 0));
    if (step == 3)
      test_ok(pen_store_pin(store, pinned));
    if (step == 12) {
      pen_store_close(&store);
      test_ok(pen_store_open(&o, &store));
      test_ok(pen_store_pin_places(store, pinned, N_TILES));
    }
  }
  /* Room for a second pin there is not: the third copy of a tile is refused. */
  test_ok(pen_store_pin(store, again));
  test_ok(pen_store_queue_create(store, N_TILES, NULL, 0, &queue));
  test_ok(write_step(queue, buffers, 22));
  test_ok(pen_store_commit(store, 22, NULL, 0));
  test_fails(pen_store_write_tile(queue, 0, buffers, 4096, 4096, 0), ENOSPC,
             "no free extent");
  test_ok(pen_store_unpin_places(store, again, N_TILES));
  test_ok(write_step(queue, buffers, 23));
  pen_store_queue_free(&queue);

  test_ok(pen_store_rewind(store, pinned, N_TILES));
  check_step(store, 3);
  pen_store_close(&store); /* not committed: the newest commit is 22 */
  test_ok(pen_store_open(&o, &store));
  check_step(store, 22);
  test_ok(pen_store_pin_places(store, pinned, N_TILES));
  test_ok(pen_store_rewind(store, pinned, N_TILES));
  test_ok(pen_store_commit(store, 3, "back", 4));
  pen_store_close(&store);
  test_ok(pen_store_open(&o, &store));
  check_step(store, 3);
  pinned[1].extent = 1000;
  test_fails(pen_store_pin_places(store, pinned, N_TILES), PEN_EMISMATCH,
             "tile 1");
  test_fails(pen_store_rewind(store, pinned, N_TILES - 1), PEN_EMISMATCH,
             "4 tiles");
  pen_store_close(&store);
  free(buffers);
}

static void test_in_place(void **state)
{
  FIXTURE(f);
  struct pen_store_options o = test_options(f.engine, f.dirs, 1);
  o.in_place = true;
  o.n_extents = N_TILES;
  struct pen_store *store = NULL;
  struct pen_store_queue *queue = NULL;
  struct pen_store_place places[N_TILES];
  char *buffers = test_buffer(N_TILES * TILE_BYTES);
  test_ok(pen_store_create(&o, false, &store));
  test_ok(pen_store_queue_create(store, N_TILES, NULL, 0, &queue));
  for (uint64_t step = 1; step <= 4; step++) {
    test_ok(write_step(queue, buffers, step));
    test_ok(pen_store_commit(store, step, NULL, 0));
  }
  test_fails(pen_store_pin(store, places), PEN_EUNSUPPORTED, "in place");
  test_fails(write_step_aside(queue, buffers, 9), PEN_EUNSUPPORTED, "in place");
  pen_store_queue_free(&queue);
  pen_store_close(&store);
  test_ok(pen_store_open(&o, &store));
  check_step(store, 4);
  pen_store_close(&store);
  free(buffers);
}

/* Tiles go to the drives in proportion to their weights, and so do scratch
 * bytes, which come back from any range. */
static void test_striping(void **state)
{
  FIXTURE(f);
  static const double weights[] = {1, 2, 5};
  enum { TILES = 64, SCRATCH = 70 << 20 };
  struct pen_store_options o = test_options(f.engine, f.dirs, 3);
  o.weights = weights;
  o.tile_bytes = 4096;
  o.n_tiles = TILES;
  o.n_extents = 2 * TILES;
  o.scratch_bytes = SCRATCH;
  struct pen_store *store = NULL;
  struct pen_store_queue *queue = NULL;
  struct pen_store_place places[TILES];
  size_t n_bytes = 3 * ((size_t)1 << 20) + 8192;
  char *buffer = test_buffer(n_bytes), *back = test_buffer(n_bytes);
  test_ok(pen_store_create(&o, false, &store));
  test_ok(pen_store_queue_create(store, 1, NULL, 0, &queue));
  for (size_t t = 0; t < TILES; t++) {
    memset(buffer, (int)t, 4096);
    test_ok(pen_store_write_tile(queue, t, buffer, 4096, 4096, t));
    test_ok(reap_all(queue, 1));
  }
  test_ok(pen_store_commit(store, 1, NULL, 0));
  test_ok(pen_store_pin(store, places));
  size_t used[3] = {0};
  for (size_t t = 0; t < TILES; t++)
    used[places[t].dir]++;
  assert_in_range(used[0], 7, 9); /* 8 of 64 */
  assert_in_range(used[1], 15, 17);
  assert_in_range(used[2], 39, 41);

  static const uint64_t offsets[] = {0, 4096, (60u << 20) + 4096,
                                     SCRATCH - (3u << 20) - 8192};
  for (size_t i = 0; i < 4; i++) {
    for (size_t k = 0; k < n_bytes; k++)
      buffer[k] = (char)(k * (2 * i + 3) >> 7);
    test_ok(pen_store_write_scratch(queue, offsets[i], buffer, n_bytes, 1));
    test_ok(reap_all(queue, 1));
    memset(back, 0x55, n_bytes);
    test_ok(pen_store_read_scratch(queue, offsets[i], back, n_bytes, 1));
    test_ok(reap_all(queue, 1));
    assert_memory_equal(buffer, back, n_bytes);
  }
  for (size_t t = 0; t < TILES; t++) { /* scratch spared the tiles */
    test_ok(pen_store_read_tile(queue, t, back, 4096, t));
    test_ok(reap_all(queue, 1));
    assert_int_equal(back[4095], (char)t);
  }
  test_fails(pen_store_read_scratch(queue, SCRATCH - 4096, back, 8192, 0),
             EINVAL, "scratch");
  pen_store_queue_free(&queue);
  pen_store_close(&store);
  free(buffer);
  free(back);
}

/* One changed byte is found, named, and fails the store. */
static void test_corruption_is_found(void **state)
{
  FIXTURE(f);
  struct pen_store_options o = test_options(f.engine, f.dirs, 1);
  struct pen_store *store = NULL;
  struct pen_store_queue *queue = NULL;
  struct pen_store_place places[N_TILES];
  struct pen_engine_file *file = NULL;
  char *buffers = test_buffer(N_TILES * TILE_BYTES), path[2 * PATH_MAX];
  test_ok(pen_store_create(&o, false, &store));
  test_ok(pen_store_queue_create(store, N_TILES, NULL, 0, &queue));
  test_ok(write_step(queue, buffers, 1));
  test_ok(pen_store_commit(store, 1, NULL, 0));
  test_ok(pen_store_pin(store, places));
  snprintf(path, sizeof path, "%s/penstock-state.data", f.dirs[0]);
  test_ok(f.engine->open(f.engine, path, false, &file));
  uint64_t at = 4096 + places[3].extent * TILE_BYTES;
  test_ok(pen_engine_read_whole(file, buffers, 4096, at, NULL));
  buffers[1234] ^= 4;
  test_ok(pen_engine_write_whole(file, buffers, 4096, at, NULL));
  f.engine->close(&file);
  test_ok(pen_store_read_tile(queue, 2, buffers, tile_length(2, 1), 0));
  test_ok(reap_all(queue, 1));
  test_ok(pen_store_read_tile(queue, 3, buffers, tile_length(3, 1), 0));
  test_fails(reap_all(queue, 1), PEN_ECORRUPT, "tile 3");
  test_fails(pen_store_commit(store, 2, NULL, 0), PEN_ECORRUPT, "failed");
  pen_store_queue_free(&queue);
  pen_store_close(&store);
  free(buffers);
}

/* Either copy of the manifest may be torn: the other one holds. */
static void test_torn_manifest(void **state)
{
  FIXTURE(f);
  struct pen_store_options o = test_options(f.engine, f.dirs, 1);
  struct pen_store *store = NULL;
  struct pen_store_queue *queue = NULL;
  struct pen_engine_file *file = NULL;
  struct pen_store_commit_info info;
  char *buffers = test_buffer(N_TILES * TILE_BYTES), path[2 * PATH_MAX];
  size_t slot = pen_store_manifest_bytes(N_TILES);
  char *page = test_buffer(4096);
  test_ok(pen_store_create(&o, false, &store));
  test_ok(pen_store_queue_create(store, N_TILES, NULL, 0, &queue));
  test_ok(write_step(queue, buffers, 7));
  test_ok(pen_store_commit(store, 7, NULL, 0)); /* generation 1: slot B */
  test_ok(pen_store_commit(store, 8, NULL, 0)); /* 2: slot A */
  pen_store_queue_free(&queue);
  pen_store_close(&store);
  snprintf(path, sizeof path, "%s/penstock-state.manifest", f.dirs[0]);
  test_ok(f.engine->open(f.engine, path, false, &file));
  test_ok(pen_engine_read_whole(file, page, 4096, 0, NULL));
  memset(page + 512, 0xee, 512);
  test_ok(pen_engine_write_whole(file, page, 4096, 0, NULL));
  test_ok(pen_store_open(&o, &store));
  pen_store_committed(store, &info);
  assert_int_equal(info.step, 7);
  check_step(store, 7);
  pen_store_close(&store);
  test_ok(pen_engine_write_whole(file, page, 4096, slot, NULL));
  test_fails(pen_store_open(&o, &store), PEN_ECORRUPT, "neither copy");
  f.engine->close(&file);
  free(page);
  free(buffers);
}

/* A data file that lost its end is refused at opening. */
static void test_short_data_file(void **state)
{
  FIXTURE(f);
  struct pen_store_options o = test_options(f.engine, f.dirs, 1);
  struct pen_store *store = NULL;
  struct pen_engine_file *file = NULL;
  struct pen_engine_info info;
  char path[2 * PATH_MAX];
  test_ok(pen_store_create(&o, false, &store));
  pen_store_close(&store);
  snprintf(path, sizeof path, "%s/penstock-state.data", f.dirs[0]);
  test_ok(f.engine->open(f.engine, path, false, &file));
  test_ok(f.engine->info(file, &info));
  assert_int_equal(info.size_bytes, 4096 + 2 * N_TILES * TILE_BYTES);
  test_ok(f.engine->allocate(file, info.size_bytes - 4096));
  f.engine->close(&file);
  test_fails(pen_store_open(&o, &store), PEN_ESHORT, "bytes of");
}

/* The first bytes of a tile can be read alone, checked, also after a reopening;
 * what lies behind them in the buffer is not touched. */
static void test_heads(void **state)
{
  FIXTURE(f);
  struct pen_store_options o = test_options(f.engine, f.dirs, 1);
  struct pen_store *store = NULL;
  struct pen_store_queue *queue = NULL;
  uint64_t tag;
  char *buffer = test_buffer(TILE_BYTES), *expected = test_buffer(TILE_BYTES);
  test_ok(pen_store_create(&o, false, &store));
  test_ok(pen_store_queue_create(store, 1, NULL, 0, &queue));
  tile_fill(expected, 1, 1);
  test_ok(pen_store_write_tile(queue, 1, expected, 12288, 8192, 0));
  test_ok(reap_all(queue, 1));
  pen_store_queue_free(&queue);
  test_ok(pen_store_commit(store, 1, NULL, 0));
  pen_store_close(&store);
  test_ok(pen_store_open(&o, &store));
  test_ok(pen_store_queue_create(store, 1, NULL, 0, &queue));
  for (size_t bytes = 8192; bytes <= 12288; bytes += 4096) {
    memset(buffer, 0x77, TILE_BYTES);
    test_ok(pen_store_read_tile(queue, 1, buffer, bytes, 0));
    test_ok(reap_all(queue, 1));
    assert_memory_equal(buffer, expected, bytes);
    assert_int_equal(buffer[bytes], 0x77);
  }
  if (f.engine->keeps) { /* no other length has a checksum */
    test_ok(pen_store_read_tile(queue, 1, buffer, 4096, 0));
    test_fails(pen_store_reap(queue, 1, 1, &tag), PEN_ECORRUPT, "checksum");
  }
  pen_store_queue_free(&queue);
  pen_store_close(&store);
  free(buffer);
  free(expected);
}

int main(void)
{
  struct CMUnitTest tests[13 * N_ENGINES];
  size_t n = 0;
#define ON_EVERY_ENGINE(function)                                             \
  for (size_t e = 0; e < N_ENGINES; e++) {                                    \
    char *name = malloc(64);                                                  \
    snprintf(name, 64, #function " on %s", test_engines[e]);                  \
    tests[n++] = (struct CMUnitTest){name, function, NULL, NULL,              \
                                     (void *)test_engines[e]};                \
  }
  ON_EVERY_ENGINE(test_commit_and_reopen);
  ON_EVERY_ENGINE(test_uncommitted_is_gone);
  ON_EVERY_ENGINE(test_aside);
  ON_EVERY_ENGINE(test_heads_and_rests);
  ON_EVERY_ENGINE(test_refusals);
  ON_EVERY_ENGINE(test_refused_leaves_nothing);
  ON_EVERY_ENGINE(test_heads);
  ON_EVERY_ENGINE(test_pins_and_rewind);
  ON_EVERY_ENGINE(test_in_place);
  ON_EVERY_ENGINE(test_striping);
  ON_EVERY_ENGINE(test_corruption_is_found);
  ON_EVERY_ENGINE(test_torn_manifest);
  ON_EVERY_ENGINE(test_short_data_file);
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  for (size_t i = 0; i < n; i++)
    free((void *)tests[i].name);
  pen_engine_ram_forget();
  return failed;
}
