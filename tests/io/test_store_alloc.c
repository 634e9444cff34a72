/* A steady-state step calls no allocator: the program is linked with counting
 * wrappers around malloc and its kin. */
#include <errno.h>
#include <stdatomic.h>

#include "tests/io/store_test.h"

static atomic_size_t calls;

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t n, size_t bytes);
void *__real_realloc(void *old, size_t bytes);
void *__real_aligned_alloc(size_t alignment, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes);
void *__wrap_realloc(void *old, size_t bytes);
void *__wrap_aligned_alloc(size_t alignment, size_t bytes);

void *__wrap_malloc(size_t bytes)
{
  calls++;
  return __real_malloc(bytes);
}

void *__wrap_calloc(size_t n, size_t bytes)
{
  calls++;
  return __real_calloc(n, bytes);
}

void *__wrap_realloc(void *old, size_t bytes)
{
  calls++;
  return __real_realloc(old, bytes);
}

void *__wrap_aligned_alloc(size_t alignment, size_t bytes)
{
  calls++;
  return __real_aligned_alloc(alignment, bytes);
}

static void test_no_allocation(void **state)
{
  const struct pen_engine *engine = test_engine(*state);
  char path[PATH_MAX + 64];
  snprintf(path, sizeof path, "%s/%s", test_tmpdir(), (char *)*state);
  const char *dir = path;
  struct pen_store_options o = test_options(engine, &dir, 1);
  struct pen_store *store = NULL;
  struct pen_store_queue *queue = NULL;
  struct pen_store_place places[N_TILES];
  o.n_extents = 3 * N_TILES;
  o.scratch_bytes = 4 << 20;
  char *buffers = test_buffer(4 << 20);
  size_t before = calls;
  test_ok(pen_store_create(&o, true, &store));
  test_ok(pen_store_queue_create(store, N_TILES, NULL, 0, &queue));
  assert_true(calls > before); /* the wrappers are in place */
  before = calls;
  for (uint64_t step = 1; step <= 10; step++) {
    test_ok(pen_store_write_scratch(queue, 0, buffers, 4 << 20, 0));
    test_ok(reap_all(queue, 1));
    test_ok(pen_store_read_scratch(queue, 0, buffers, 4 << 20, 0));
    test_ok(reap_all(queue, 1));
    test_ok(write_step(queue, buffers, step));
    test_ok(pen_store_commit(store, step, &step, sizeof step));
    for (size_t t = 0; t < N_TILES; t++)
      test_ok(pen_store_read_tile(queue, t, buffers + t * TILE_BYTES,
                                  tile_length(t, step), t));
    test_ok(reap_all(queue, N_TILES));
    if (step == 4)
      test_ok(pen_store_pin(store, places));
    if (step == 6)
      test_ok(pen_store_unpin_places(store, places, N_TILES));
  }
  assert_int_equal(calls, before);
  pen_store_queue_free(&queue);
  pen_store_close(&store);
  free(buffers);
}

int main(void)
{
  static const char *const engines[] = {"uring", "threads", "ram", "null"};
  struct CMUnitTest tests[4];
  for (size_t e = 0; e < 4; e++)
    tests[e] = (struct CMUnitTest){engines[e], test_no_allocation, NULL, NULL,
                                   (void *)engines[e]};
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  pen_engine_ram_forget();
  return failed;
}
