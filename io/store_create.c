/* store_create.c: making a store.
 *
 * Order: room is checked, files are preallocated, the first manifest is
 * written under another name, then the headers (directory 0 first), and last
 * the manifest gets its name.  Invariant: a directory without a manifest under
 * its name holds no store, whatever else lies there; the name appears when
 * everything it speaks of is durable.  Thread: the owner's.
 * Disadvantage: an old store that is overwritten is gone even if making the
 * new one then fails. */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "io/files.h"
#include "io/store_state.h"

struct plan {
  const struct pen_store_options *options;
  uint64_t bytes[PEN_STORE_DIRS_MAX]; /* of each data file */
  size_t existing[PEN_STORE_DIRS_MAX]; /* bytes of each dir that were there: 0
                                          where none of a relative one was */
  bool noted; /* that is known */
  bool writing; /* what was there before is given up */
};

static int check_options(const struct pen_store_options *o)
{
  if (o->tile_bytes % PEN_STORE_ALIGN || (o->n_tiles && !o->tile_bytes))
    return pen_error_set(-EINVAL, "a store of tiles of %zu bytes, which is no "
                         "multiple of %d", o->tile_bytes, PEN_STORE_ALIGN);
  size_t least = o->in_place ? o->n_tiles : 2 * o->n_tiles;
  if (o->n_tiles > UINT32_MAX / 4 || o->n_extents > UINT32_MAX ||
      o->n_extents < least || (o->in_place && o->n_extents != least) ||
      (o->tile_bytes && o->n_extents > INT64_MAX / 4 / o->tile_bytes) ||
      o->scratch_bytes > INT64_MAX / 4)
    return pen_error_set(-EINVAL, "a store of %zu tiles of %zu bytes in %zu "
                         "extents (%zu are needed) and %" PRIu64
                         " bytes of scratch", o->n_tiles, o->tile_bytes,
                         o->n_extents, least, o->scratch_bytes);
  for (size_t d = 0; d < o->n_dirs; d++) {
    if (o->weights && !(o->weights[d] > 0 && o->weights[d] < 1e30))
      return pen_error_set(-EINVAL, "store directory %s has weight %g",
                           o->dirs[d], o->weights[d]);
    for (size_t e = 0; e < d; e++)
      if (strcmp(o->dirs[d], o->dirs[e]) == 0)
        return pen_error_set(-EINVAL, "store directory %s is given twice",
                             o->dirs[d]);
  }
  return 0;
}

/* Geometry into the manifest of generation 0, and bytes per file. */
static int make_plan(struct pen_store *store, struct plan *plan)
{
  const struct pen_store_options *o = plan->options;
  struct pen_store_manifest *m = &store->committed;
  uint64_t shares[PEN_STORE_DIRS_MAX];
  m->n_dirs = (uint32_t)o->n_dirs;
  m->in_place = o->in_place;
  m->tile_bytes = o->tile_bytes;
  m->n_tiles = o->n_tiles;
  m->scratch_bytes = o->scratch_bytes;
  memcpy(m->run_id, o->run_id, sizeof m->run_id);
  pen_stripe_split(o->weights, o->n_dirs, o->n_extents, m->n_extents);
  pen_stripe_split(o->weights, o->n_dirs,
                   o->n_dirs == 1 ? 1 : PEN_STRIPE_PERIOD, shares);
  for (size_t d = 0; d < o->n_dirs; d++)
    m->stripe_shares[d] = (uint32_t)shares[d];
  m->places = calloc(o->n_tiles ? o->n_tiles : 1, sizeof *m->places);
  if (!m->places)
    return pen_error_set(-ENOMEM, "cannot hold %zu tiles", o->n_tiles);
  for (size_t i = 0; i < o->n_tiles; i++)
    m->places[i].dir = UINT32_MAX;
  int code = pen_store_build_tables(store);
  for (size_t d = 0; d < o->n_dirs && !code; d++)
    plan->bytes[d] = store->scratch_base[d] +
                     pen_stripe_bytes(&store->stripe, o->scratch_bytes, d);
  return code;
}

static int open_data(struct pen_store *store, const char *dir, size_t d)
{
  char path[PATH_MAX];
  int code = store->engine->make_dirs(store->engine, dir);
  if (!code)
    code = pen_store_path(dir, PEN_STORE_DATA, sizeof path, path);
  if (!code)
    code = store->engine->open(store->engine, path, true, &store->files[d]);
  return code ? code : store->engine->lock(store->files[d]);
}

/* Whose is an older data file?  *ret_found false: nobody's (empty, torn). */
static int read_header(struct pen_store *store, size_t d,
                       struct pen_store_header *ret_header, bool *ret_found)
{
  struct pen_engine_file *file = store->files[d];
  struct pen_engine_info info;
  *ret_found = false;
  int code = store->engine->info(file, &info);
  if (code || file->created || info.size_bytes < PEN_STORE_HEADER_BYTES)
    return code;
  void *block = aligned_alloc(PEN_STORE_ALIGN, PEN_STORE_HEADER_BYTES);
  if (!block)
    return pen_error_set(-ENOMEM, "cannot read %s", file->path);
  code = pen_engine_read_whole(file, block, PEN_STORE_HEADER_BYTES, 0,
                               &store->counters.retries);
  if (!code && pen_store_header_decode(block, ret_header) == 0)
    *ret_found = true;
  else if (!code)
    pen_error_clear(); /* not a header: the remains of an unfinished start */
  free(block);
  return code;
}

static int refuse_existing(const char *dir)
{
  return pen_error_say(-EEXIST,
                       "there is a store in %s: resume its run, overwrite it, "
                       "or name another directory", dir);
}

/* A store that was never finished may be written over; any other not. */
static int check_existing(struct pen_store *store, const char *const *dirs)
{
  char path[PATH_MAX];
  struct pen_engine_file *manifest = NULL;
  int code = pen_store_path(dirs[0], PEN_STORE_MANIFEST, sizeof path, path);
  if (code)
    return code;
  code = store->engine->open(store->engine, path, false, &manifest);
  if (!code) {
    store->engine->close(&manifest);
    return refuse_existing(dirs[0]);
  }
  if (code != -ENOENT)
    return code;
  pen_error_clear();
  struct pen_store_header first, other;
  bool has_first, has_other;
  code = read_header(store, 0, &first, &has_first);
  if (!code && has_first && first.dir != 0)
    return refuse_existing(dirs[0]); /* another store's later part */
  for (size_t d = 1; d < store->n_dirs && !code; d++) {
    code = read_header(store, d, &other, &has_other);
    if (!code && has_other &&
        (!has_first || memcmp(first.run_id, other.run_id, 16) != 0))
      return refuse_existing(dirs[d]);
  }
  return code;
}

/* Everything must fit before anything is written. */
static int check_room(struct pen_store *store, const struct plan *plan)
{
  struct pen_engine_info info[PEN_STORE_DIRS_MAX];
  for (size_t d = 0; d < store->n_dirs; d++) {
    int code = store->engine->info(store->files[d], &info[d]);
    if (code)
      return code;
  }
  for (size_t d = 0; d < store->n_dirs; d++) {
    uint64_t needed = 0, reused = 0;
    for (size_t e = 0; e < store->n_dirs; e++)
      if (info[e].file_system == info[d].file_system) {
        needed += plan->bytes[e] + (e == 0 ? 2 * store->slot_bytes : 0);
        reused += info[e].allocated_bytes;
      }
    if (needed > info[d].free_bytes + reused)
      return pen_error_set(
          PEN_ENOFIT, "does not fit: the store needs %" PRIu64 " bytes on the "
          "drive of %s, %" PRIu64 " are free, %" PRIu64 " too few; free them, or "
          "name another or one more --nvme-path", needed, plan->options->dirs[d],
          info[d].free_bytes + reused,
          needed - info[d].free_bytes - reused);
  }
  return 0;
}

static int remove_old(struct pen_store *store, const char *dir)
{
  char path[PATH_MAX];
  int code = pen_store_path(dir, PEN_STORE_MANIFEST, sizeof path, path);
  if (!code)
    code = store->engine->remove(store->engine, path);
  if (!code)
    code = pen_store_path(dir, PEN_STORE_MANIFEST_NEW, sizeof path, path);
  if (!code)
    code = store->engine->remove(store->engine, path);
  return code ? code : store->engine->sync_dir(store->engine, dir);
}

static int write_manifest(struct pen_store *store, const char *new_path)
{
  int code = store->engine->open(store->engine, new_path, true,
                                 &store->manifest_file);
  if (!code)
    code = store->engine->allocate(store->manifest_file,
                                   2 * (uint64_t)store->slot_bytes);
  return code ? code : pen_store_write_slot(store, &store->committed);
}

static int write_header(struct pen_store *store, const struct plan *plan,
                        size_t d)
{
  const struct pen_store_manifest *m = &store->committed;
  struct pen_store_header header = {
      .dir = (uint32_t)d,
      .n_dirs = m->n_dirs,
      .tile_bytes = m->tile_bytes,
      .n_extents = m->n_extents[d],
      .scratch_bytes = plan->bytes[d] - store->scratch_base[d]};
  memcpy(header.run_id, m->run_id, sizeof header.run_id);
  void *block = aligned_alloc(PEN_STORE_ALIGN, PEN_STORE_HEADER_BYTES);
  if (!block)
    return pen_error_set(-ENOMEM, "cannot write %s", store->files[d]->path);
  pen_store_header_encode(&header, block);
  int code = pen_engine_write_whole(store->files[d], block,
                                    PEN_STORE_HEADER_BYTES, 0,
                                    &store->counters.retries);
  free(block);
  if (!code)
    code = store->engine->sync(store->files[d]);
  return code ? code
              : store->engine->sync_dir(store->engine, plan->options->dirs[d]);
}

static int write_all(struct pen_store *store, struct plan *plan)
{
  const char *dir = plan->options->dirs[0];
  char path[PATH_MAX], new_path[PATH_MAX];
  plan->writing = true;
  int code = remove_old(store, dir);
  for (size_t d = 0; d < store->n_dirs && !code; d++)
    code = store->engine->allocate(store->files[d], plan->bytes[d]);
  if (!code)
    code = pen_store_path(dir, PEN_STORE_MANIFEST, sizeof path, path);
  if (!code)
    code = pen_store_path(dir, PEN_STORE_MANIFEST_NEW, sizeof new_path,
                          new_path);
  if (!code)
    code = write_manifest(store, new_path);
  for (size_t d = 0; d < store->n_dirs && !code; d++)
    code = write_header(store, plan, d);
  if (store->manifest_file)
    store->engine->close(&store->manifest_file);
  if (!code)
    code = store->engine->rename(store->engine, new_path, path);
  if (!code)
    code = store->engine->sync_dir(store->engine, dir);
  if (!code)
    code = store->engine->open(store->engine, path, !store->engine->keeps,
                               &store->manifest_file);
  return code;
}

/* Files and folders that this attempt made go again, the manifest before its data; the
 * failure stays as it is. */
static void undo(struct pen_store *store, const struct plan *plan)
{
  struct pen_error standing;
  pen_error_take(&standing);
  int code = plan->writing ? remove_old(store, plan->options->dirs[0]) : 0;
  for (size_t d = 0; d < store->n_dirs && !code; d++)
    if (store->files[d] && store->files[d]->created)
      code = store->engine->remove(store->engine, store->files[d]->path);
  for (size_t d = 0; d < store->n_dirs && plan->noted && !code; d++)
    pen_files_unmake_dirs(plan->options->dirs[d], plan->existing[d]);
  pen_error_put(&standing);
}

static int create_all(struct pen_store *store, struct plan *plan,
                      bool overwrite)
{
  int code = make_plan(store, plan);
  for (size_t d = 0; d < store->n_dirs && !code; d++)
    plan->existing[d] = pen_files_existing(plan->options->dirs[d]);
  plan->noted = !code;
  for (size_t d = 0; d < store->n_dirs && !code; d++)
    code = open_data(store, plan->options->dirs[d], d);
  if (!code && !overwrite)
    code = check_existing(store, plan->options->dirs);
  if (!code)
    code = check_room(store, plan);
  return code ? code : write_all(store, plan);
}

int pen_store_create(const struct pen_store_options *options, bool overwrite,
                     struct pen_store **ret_store)
{
  struct pen_store *store = NULL;
  struct plan plan = {.options = options};
  int code = pen_store_alloc(options, &store);
  if (code)
    return code;
  code = check_options(options);
  if (!code && (code = create_all(store, &plan, overwrite)))
    undo(store, &plan);
  if (code)
    pen_store_close(&store);
  else
    *ret_store = store;
  return code;
}
