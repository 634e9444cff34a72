/* engine_test.h: one file and one queue on an engine, for its tests. */
#ifndef PEN_TESTS_IO_ENGINE_TEST_H
#define PEN_TESTS_IO_ENGINE_TEST_H

#include <errno.h>

#include "io/engine.h"
#include "io/engine_fault.h"
#include "io/engine_ram.h"
#include "io/transfer.h"
#include "tests/tmpdir.h"

struct bench {
  const struct pen_engine *engine;
  struct pen_engine_file *file;
  struct pen_transfer_queue *queue;
};

static inline void bench_close(struct bench *b)
{
  pen_transfer_queue_free(&b->queue);
  if (b->file) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s", b->file->path);
    b->engine->close(&b->file);
    b->engine->remove(b->engine, path);
  }
  pen_engine_release(&b->engine);
}

/* A file of `bytes` bytes at `path` with a queue of 4 transfers on the engine
 * that `spec` names; -ENOSYS or -EPERM where that engine is not permitted. */
static inline int bench_open_at(struct bench *b, const char *spec,
                                const char *path, uint64_t bytes,
                                const struct pen_engine_region *region)
{
  *b = (struct bench){.engine = NULL};
  test_ok(pen_engine_parse(spec, &b->engine));
  test_ok(b->engine->open(b->engine, path, true, &b->file));
  test_ok(b->engine->allocate(b->file, bytes));
  return pen_transfer_queue_create(b->engine, 4, &b->file, 1, region,
                                   region ? 1 : 0, NULL, NULL, &b->queue);
}

static inline void bench_open(struct bench *b, const char *spec,
                              uint64_t bytes)
{
  int code = bench_open_at(b, spec, test_tmp("file"), bytes, NULL);
  if (!code)
    return;
  char why[200];
  snprintf(why, sizeof why, "%s", pen_error_text());
  pen_error_clear();
  bench_close(b);
  if (code == -ENOSYS || code == -EPERM)
    test_skip("engine %s: %s", spec, why);
  fail_msg("engine %s: %s", spec, why);
}

static inline int bench_move(struct bench *b, bool write, void *buffer,
                             size_t bytes, uint64_t offset)
{
  struct pen_transfer t = {.write = write,
                           .offset = offset,
                           .buffer = buffer,
                           .bytes = bytes,
                           .tag = 77};
  struct pen_transfer_done done = {.tag = 0};
  int code = pen_transfer_submit(b->queue, &t);
  if (code)
    return code;
  code = pen_transfer_reap(b->queue, 1, 1, &done);
  if (code < 0)
    return code;
  assert_int_equal(code, 1);
  assert_int_equal(done.tag, 77);
  return done.code;
}

/* Bytes that say where they belong: a word of its index and a salt. */
static inline void pattern_fill(void *buffer, size_t bytes, uint64_t salt)
{
  uint64_t *p = buffer;
  for (size_t i = 0; i < bytes / 8; i++)
    p[i] = (i + salt) * UINT64_C(0x9e3779b97f4a7c15);
}

static inline void pattern_check(const void *buffer, size_t bytes,
                                 uint64_t salt)
{
  const uint64_t *p = buffer;
  for (size_t i = 0; i < bytes / 8; i++)
    if (p[i] != (i + salt) * UINT64_C(0x9e3779b97f4a7c15))
      fail_msg("byte %zu of %zu differs", 8 * i, bytes);
}

static inline void *test_buffer(size_t bytes)
{
  void *p = aligned_alloc(4096, bytes);
  assert_non_null(p);
  return p;
}

#endif
