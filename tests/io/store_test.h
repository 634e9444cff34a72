/* store_test.h: a small store of known bytes, for the tests of the store.
 *
 * Tile t of step s holds bytes that are a function of (t, s, position) and has
 * a length that is a function of t and s, so that a store's contents can be
 * held against the one number `step`. */
#ifndef PEN_TESTS_IO_STORE_TEST_H
#define PEN_TESTS_IO_STORE_TEST_H

#include "io/engine_fault.h"
#include "io/engine_ram.h"
#include "io/store.h"
#include "tests/tmpdir.h"

#define N_TILES 5
#define TILE_BYTES 16384

static const char *const test_engines[] = {"uring", "threads", "ram"};
#define N_ENGINES (sizeof test_engines / sizeof *test_engines)

static inline size_t tile_length(size_t tile, uint64_t step)
{
  return 4096 * (1 + (tile + step) % (TILE_BYTES / 4096));
}

static inline void tile_fill(void *buffer, size_t tile, uint64_t step)
{
  uint64_t x = tile * UINT64_C(0x9e3779b97f4a7c15) + step * 1000003 + 1;
  uint64_t *p = buffer;
  for (size_t i = 0; i < tile_length(tile, step) / 8; i++) {
    x ^= x << 13, x ^= x >> 7, x ^= x << 17;
    p[i] = x;
  }
}

static inline void *test_buffer(size_t bytes)
{
  void *p = aligned_alloc(4096, bytes);
  assert_non_null(p);
  return p;
}

static inline struct pen_store_options
test_options(const struct pen_engine *engine, const char *const *dirs,
             size_t n_dirs)
{
  return (struct pen_store_options){.dirs = dirs,
                                    .n_dirs = n_dirs,
                                    .engine = engine,
                                    .tile_bytes = TILE_BYTES,
                                    .n_tiles = N_TILES,
                                    .n_extents = 2 * N_TILES,
                                    .run_id = {1, 2, 3}};
}

static inline int reap_all(struct pen_store_queue *queue, size_t n)
{
  uint64_t tags[N_TILES];
  while (n) {
    int got = pen_store_reap(queue, 1, n, tags);
    if (got < 0)
      return got;
    n -= (size_t)got;
  }
  return 0;
}

/* Writes every tile as of `step`, or its first `most` bytes; buffers is
 * N_TILES * TILE_BYTES. */
static inline int write_with(int (*write)(struct pen_store_queue *queue,
                                          size_t tile, const void *buffer,
                                          size_t bytes, size_t head_bytes,
                                          uint64_t tag),
                             struct pen_store_queue *queue, char *buffers,
                             uint64_t step, size_t most)
{
  for (size_t t = 0; t < N_TILES; t++) {
    size_t length = tile_length(t, step);
    tile_fill(buffers + t * TILE_BYTES, t, step);
    int code = write(queue, t, buffers + t * TILE_BYTES,
                     length < most ? length : most, 4096, t);
    if (code)
      return code;
  }
  return reap_all(queue, N_TILES);
}

static inline int write_step(struct pen_store_queue *queue, char *buffers,
                             uint64_t step)
{
  return write_with(pen_store_write_tile, queue, buffers, step, TILE_BYTES);
}

/* The same aside; it is not yet decided whether that stands. */
static inline int write_step_aside(struct pen_store_queue *queue, char *buffers,
                                   uint64_t step)
{
  return write_with(pen_store_write_aside, queue, buffers, step, TILE_BYTES);
}

/* Every tile's head, of 4096 bytes. */
static inline int write_heads(struct pen_store_queue *queue, char *buffers,
                              uint64_t step)
{
  return write_with(pen_store_write_tile, queue, buffers, step, 4096);
}

/* What comes behind, of the tiles that are longer. */
static inline int write_rests(struct pen_store_queue *queue, char *buffers,
                              uint64_t step)
{
  size_t n = 0;
  for (size_t t = 0; t < N_TILES; t++) {
    size_t rest = tile_length(t, step) - 4096;
    tile_fill(buffers + t * TILE_BYTES, t, step);
    int code = rest ? pen_store_write_rest(queue, t,
                                           buffers + t * TILE_BYTES + 4096, rest,
                                           4096, t)
                    : 0;
    if (code)
      return code;
    n += rest > 0;
  }
  return reap_all(queue, n);
}

/* Reads every tile and asserts that it is that of `step`. */
static inline void check_step(struct pen_store *store, uint64_t step)
{
  struct pen_store_queue *queue = NULL;
  char *buffers = test_buffer(N_TILES * TILE_BYTES);
  char *expected = test_buffer(TILE_BYTES);
  test_ok(pen_store_queue_create(store, N_TILES, NULL, 0, &queue));
  memset(buffers, 0x77, N_TILES * TILE_BYTES);
  for (size_t t = 0; t < N_TILES; t++)
    test_ok(pen_store_read_tile(queue, t, buffers + t * TILE_BYTES,
                                tile_length(t, step), t));
  test_ok(reap_all(queue, N_TILES));
  for (size_t t = 0; t < N_TILES; t++) {
    size_t n = tile_length(t, step);
    tile_fill(expected, t, step);
    assert_memory_equal(buffers + t * TILE_BYTES, expected, n);
    for (size_t i = n; i < TILE_BYTES; i++) /* no stray bytes */
      assert_int_equal(buffers[t * TILE_BYTES + i], 0x77);
  }
  pen_store_queue_free(&queue);
  free(expected);
  free(buffers);
}

/* The engine, or the test is skipped where this machine has none. */
static inline const struct pen_engine *test_engine(const char *name)
{
  const struct pen_engine *engine = pen_engine_find(name);
  assert_non_null(engine);
  struct pen_engine_file *file = NULL;
  struct pen_engine_ring *ring = NULL;
  const char *path = test_tmp("probe");
  test_ok(engine->open(engine, path, true, &file));
  int code = engine->ring_create(engine, 1, &file, 1, NULL, 0, &ring);
  char why[200];
  snprintf(why, sizeof why, "%s", pen_error_text());
  pen_error_clear();
  if (ring)
    ring->engine->ring_free(&ring);
  engine->close(&file);
  engine->remove(engine, path);
  if (code)
    test_skip("engine %s: %s", name, why);
  return engine;
}

#endif
