/* rundir_stores.c: the stores that a run's state lies in: their folders, and the list
 * of them in run.json.
 *
 * A store is entered before it is made, and struck out after it is gone.  Main thread.
 * Disadvantage: a drive that is not mounted keeps its entry for ever. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "src/train/rundir.h"

static void drop_store(struct pen_rundir_store *store)
{
  for (size_t d = 0; d < store->n_dirs; d++)
    free(store->dirs[d]);
  *store = (struct pen_rundir_store){0};
}

int pen_rundir_store_dirs(const struct pen_rundir *rundir,
                          const struct pen_rundir_store *store,
                          char *ret_dirs[PEN_STORE_DIRS_MAX])
{
  char id[33];
  pen_rundir_id(rundir, id);
  for (size_t d = 0; d < store->n_dirs; d++)
    if (asprintf(&ret_dirs[d], "%s/penstock-%.16s-%u", store->dirs[d], id,
                 store->generation) < 0)
      return pen_error_set(PEN_ENOFIT, "no memory for a path");
  return 0;
}

void pen_rundir_free_dirs(char *dirs[PEN_STORE_DIRS_MAX])
{
  for (size_t d = 0; d < PEN_STORE_DIRS_MAX; d++)
    free(dirs[d]);
}

static char *absolute(const char *dir)
{
  char cwd[PATH_MAX], *path = NULL;
  if (dir[0] == '/' || !getcwd(cwd, sizeof cwd))
    return strdup(dir);
  return asprintf(&path, "%s/%s", cwd, dir) < 0 ? NULL : path;
}

int pen_rundir_add_store(struct pen_rundir *rundir, uint32_t generation,
                         const char *const *dirs, size_t n_dirs)
{
  if (rundir->n_stores == PEN_RUNDIR_STORES_MAX)
    return pen_error_set(PEN_ENOFIT,
                         "checkpoints of this run refer to %d stores already; "
                         "delete old checkpoints",
                         PEN_RUNDIR_STORES_MAX);
  struct pen_rundir_store *store = &rundir->stores[rundir->n_stores++];
  *store = (struct pen_rundir_store){generation, n_dirs, {0}};
  for (size_t d = 0; d < n_dirs; d++)
    if (!(store->dirs[d] = absolute(dirs[d])))
      return pen_error_set(PEN_ENOFIT, "no memory for a path");
  return 0;
}

const struct pen_rundir_store *
pen_rundir_find_store(const struct pen_rundir *rundir, uint32_t generation)
{
  for (size_t i = 0; i < rundir->n_stores; i++)
    if (rundir->stores[i].generation == generation)
      return &rundir->stores[i];
  return NULL;
}

int pen_rundir_remove_store(struct pen_rundir *rundir, uint32_t generation,
                            const struct pen_engine *engine)
{
  char *dirs[PEN_STORE_DIRS_MAX] = {0};
  size_t i = 0;
  while (i < rundir->n_stores && rundir->stores[i].generation != generation)
    i++;
  if (i == rundir->n_stores)
    return 0;
  struct pen_rundir_store *store = &rundir->stores[i];
  int rc = pen_rundir_store_dirs(rundir, store, dirs);
  if (rc == 0)
    rc = pen_store_remove(engine, (const char *const *)dirs, store->n_dirs);
  for (size_t d = 0; rc == 0 && d < store->n_dirs; d++)
    rmdir(dirs[d]); /* ours, and empty now; if not, it stays */
  pen_rundir_free_dirs(dirs);
  if (rc < 0)
    return rc;
  drop_store(store);
  memmove(store, store + 1, (rundir->n_stores - i - 1) * sizeof *store);
  rundir->n_stores--;
  return pen_rundir_save(rundir);
}

int pen_rundir_remove_stores(struct pen_rundir *rundir,
                             const struct pen_engine *engine)
{
  int rc = 0;
  while (rc == 0 && rundir->n_stores)
    rc = pen_rundir_remove_store(rundir, rundir->stores[0].generation, engine);
  return rc;
}

void pen_rundir_drop_stores(struct pen_rundir *rundir)
{
  for (size_t i = 0; i < rundir->n_stores; i++)
    drop_store(&rundir->stores[i]);
  rundir->n_stores = 0;
}
