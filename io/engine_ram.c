/* engine_ram.c: files in this process's memory.
 *
 * A file outlives close, so that a store can be closed and opened again; it
 * ends with the process, or when removed and closed (as unlink does).
 * Invariant: the list of files is the one table of this engine, under one
 * mutex; a file's bytes are under none, since whoever reads and writes at once
 * keeps to different ranges, and preallocates before either.
 * Any thread.  Disadvantage: what is written is not durable, so a run on it
 * cannot be resumed by another process. */
#include "io/engine_ram.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/error.h"
#include "io/engine_memory.h"

struct contents {
  struct contents *next;
  char *path; /* NULL: removed, freed at the last close */
  char *bytes; /* [size] from mmap; NULL while size is 0 */
  uint64_t size;
  size_t n_open;
  const void *locked_by; /* the open file that holds the lock */
};

struct ram_file {
  struct pen_engine_file base;
  struct contents *contents;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct contents *all; /* named ones */

static struct contents **find(const char *path)
{
  struct contents **at = &all;
  while (*at && strcmp((*at)->path, path) != 0)
    at = &(*at)->next;
  return at;
}

static void free_contents(struct contents *c)
{
  if (c->bytes)
    munmap(c->bytes, c->size);
  free(c->path);
  free(c);
}

/* Takes the name away; the bytes go with the last open file. */
static void unlink_at(struct contents **at)
{
  struct contents *c = *at;
  *at = c->next;
  free(c->path);
  c->path = NULL;
  if (!c->n_open)
    free_contents(c);
}

void pen_engine_ram_forget(void)
{
  pthread_mutex_lock(&mutex);
  while (all)
    unlink_at(&all);
  pthread_mutex_unlock(&mutex);
}

static struct contents *make(const char *path)
{
  struct contents *c = calloc(1, sizeof *c);
  if (c && !(c->path = strdup(path))) {
    free(c);
    c = NULL;
  }
  if (c) {
    c->next = all;
    all = c;
  }
  return c;
}

static int ram_open(const struct pen_engine *engine, const char *path,
                    bool create, struct pen_engine_file **ret_file)
{
  struct ram_file *file = calloc(1, sizeof *file);
  char *copy = strdup(path);
  pthread_mutex_lock(&mutex);
  struct contents *c = *find(path);
  bool made = !c && create;
  int code = !file || !copy ? -ENOMEM : 0;
  if (!code && made)
    c = make(path);
  if (!code && !c)
    code = create ? -ENOMEM : -ENOENT;
  if (!code)
    c->n_open++;
  pthread_mutex_unlock(&mutex);
  if (code) {
    free(file);
    free(copy);
    return pen_error_set(code, "cannot open %s in memory", path);
  }
  file->base = (struct pen_engine_file){
      .engine = engine, .path = copy, .created = made};
  file->contents = c;
  *ret_file = &file->base;
  return 0;
}

static void ram_close(struct pen_engine_file **base)
{
  struct ram_file *file = (struct ram_file *)*base;
  if (!file)
    return;
  pthread_mutex_lock(&mutex);
  struct contents *c = file->contents;
  if (c->locked_by == file)
    c->locked_by = NULL;
  if (--c->n_open == 0 && !c->path)
    free_contents(c);
  pthread_mutex_unlock(&mutex);
  free(file->base.path);
  free(file);
  *base = NULL;
}

static int ram_lock(struct pen_engine_file *base)
{
  struct contents *c = ((struct ram_file *)base)->contents;
  pthread_mutex_lock(&mutex);
  bool taken = c->locked_by && c->locked_by != base;
  if (!taken)
    c->locked_by = base;
  pthread_mutex_unlock(&mutex);
  return taken ? pen_error_say(-EBUSY, "another run uses %s", base->path) : 0;
}

static int ram_info(struct pen_engine_file *base,
                    struct pen_engine_info *ret_info)
{
  uint64_t size = ((struct ram_file *)base)->contents->size;
  *ret_info = (struct pen_engine_info){
      .size_bytes = size,
      .allocated_bytes = size,
      .free_bytes = (uint64_t)sysconf(_SC_AVPHYS_PAGES) *
                    (uint64_t)sysconf(_SC_PAGESIZE)};
  return 0;
}

static int ram_allocate(struct pen_engine_file *base, uint64_t bytes)
{
  struct contents *c = ((struct ram_file *)base)->contents;
  void *p = NULL;
  if (bytes == c->size)
    return 0;
  if (bytes == 0)
    munmap(c->bytes, c->size);
  else if (c->size == 0)
    p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  else
    p = mremap(c->bytes, c->size, bytes, MREMAP_MAYMOVE);
  if (p == MAP_FAILED)
    return pen_error_set(-ENOSPC, "cannot preallocate %" PRIu64
                         " bytes of memory for %s", bytes, base->path);
  c->bytes = p;
  c->size = bytes;
  return 0;
}

static int ram_sync(struct pen_engine_file *base) { return 0; }

static int64_t ram_read_at(struct pen_engine_file *base, void *buffer,
                           size_t bytes, uint64_t offset)
{
  const struct contents *c = ((struct ram_file *)base)->contents;
  if (offset >= c->size)
    return 0;
  if (bytes > c->size - offset)
    bytes = (size_t)(c->size - offset);
  memcpy(buffer, c->bytes + offset, bytes);
  return (int64_t)bytes;
}

static int64_t ram_write_at(struct pen_engine_file *base, const void *buffer,
                            size_t bytes, uint64_t offset)
{
  struct contents *c = ((struct ram_file *)base)->contents;
  if (offset >= c->size)
    return -ENOSPC;
  if (bytes > c->size - offset)
    bytes = (size_t)(c->size - offset);
  memcpy(c->bytes + offset, buffer, bytes);
  return (int64_t)bytes;
}

static int ram_rename(const struct pen_engine *engine, const char *from,
                      const char *to)
{
  char *name = strdup(to);
  pthread_mutex_lock(&mutex);
  struct contents **at = find(from);
  int code = !name ? -ENOMEM : !*at ? -ENOENT : 0;
  if (!code) {
    struct contents *c = *at;
    struct contents **old = find(to);
    if (*old && *old != c)
      unlink_at(old);
    free(c->path);
    c->path = name;
  }
  pthread_mutex_unlock(&mutex);
  if (!code)
    return 0;
  free(name);
  return pen_error_set(code, "cannot rename %s to %s in memory", from, to);
}

static int ram_remove(const struct pen_engine *engine, const char *path)
{
  pthread_mutex_lock(&mutex);
  struct contents **at = find(path);
  if (*at)
    unlink_at(at);
  pthread_mutex_unlock(&mutex);
  return 0;
}

const struct pen_engine pen_engine_ram = {
    .name = "ram",
    .keeps = true,
    .open = ram_open,
    .close = ram_close,
    .lock = ram_lock,
    .info = ram_info,
    .allocate = ram_allocate,
    .sync = ram_sync,
    .read_at = ram_read_at,
    .write_at = ram_write_at,
    .make_dirs = pen_engine_memory_make_dirs,
    .rename = ram_rename,
    .remove = ram_remove,
    .sync_dir = pen_engine_memory_sync_dir,
    .ring_create = pen_engine_memory_ring_create,
    .ring_free = pen_engine_memory_ring_free,
    .ring_submit = pen_engine_memory_ring_submit,
    .ring_reap = pen_engine_memory_ring_reap,
};
