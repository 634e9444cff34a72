/* engine_null.c: accepts everything and moves nothing, to measure what the
 * code around an engine costs.
 *
 * A file has a size and no contents: reads leave the buffer as it is.  Any
 * thread (a file's size is set once, when it is preallocated).
 * Disadvantage: whatever is checked on reading must ask engine->keeps. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "io/engine_memory.h"

struct null_file {
  struct pen_engine_file base;
  uint64_t bytes;
};

static int null_open(const struct pen_engine *engine, const char *path,
                     bool create, struct pen_engine_file **ret_file)
{
  if (!create)
    return pen_error_set(-ENOENT, "cannot open %s: the engine null keeps "
                                  "nothing", path);
  struct null_file *file = calloc(1, sizeof *file);
  char *copy = strdup(path);
  if (!file || !copy) {
    free(file);
    free(copy);
    return pen_error_set(-ENOMEM, "cannot open %s", path);
  }
  file->base = (struct pen_engine_file){
      .engine = engine, .path = copy, .created = true};
  *ret_file = &file->base;
  return 0;
}

static void null_close(struct pen_engine_file **file)
{
  if (*file)
    free((*file)->path);
  free(*file);
  *file = NULL;
}

static int null_lock(struct pen_engine_file *file) { return 0; }

static int null_info(struct pen_engine_file *file,
                     struct pen_engine_info *ret_info)
{
  *ret_info = (struct pen_engine_info){
      .size_bytes = ((struct null_file *)file)->bytes,
      .free_bytes = UINT64_MAX / 2};
  return 0;
}

static int null_allocate(struct pen_engine_file *file, uint64_t bytes)
{
  ((struct null_file *)file)->bytes = bytes;
  return 0;
}

static int null_sync(struct pen_engine_file *file) { return 0; }

static int64_t null_read_at(struct pen_engine_file *file, void *buffer,
                            size_t bytes, uint64_t offset)
{
  return (int64_t)bytes;
}

static int64_t null_write_at(struct pen_engine_file *file, const void *buffer,
                             size_t bytes, uint64_t offset)
{
  return (int64_t)bytes;
}

static int null_rename(const struct pen_engine *engine, const char *from,
                       const char *to)
{
  return 0;
}

static int null_remove(const struct pen_engine *engine, const char *path)
{
  return 0;
}

const struct pen_engine pen_engine_null = {
    .name = "null",
    .open = null_open,
    .close = null_close,
    .lock = null_lock,
    .info = null_info,
    .allocate = null_allocate,
    .sync = null_sync,
    .read_at = null_read_at,
    .write_at = null_write_at,
    .make_dirs = pen_engine_memory_make_dirs,
    .rename = null_rename,
    .remove = null_remove,
    .sync_dir = pen_engine_memory_sync_dir,
    .ring_create = pen_engine_memory_ring_create,
    .ring_free = pen_engine_memory_ring_free,
    .ring_submit = pen_engine_memory_ring_submit,
    .ring_reap = pen_engine_memory_ring_reap,
};
