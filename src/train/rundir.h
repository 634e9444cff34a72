/* rundir.h: the directory of a run: who it is, its frozen numerics, where its
 * stores are, its checkpoints; and the lock that keeps a second run out. */
#ifndef PEN_SRC_TRAIN_RUNDIR_H
#define PEN_SRC_TRAIN_RUNDIR_H

#include "io/store.h"
#include "src/train/numerics.h"

#define PEN_RUNDIR_STORES_MAX 16
#define PEN_RUNDIR_FILE "run.json"
#define PEN_RUNDIR_PRODUCTS "products.txt" /* of runs on a device */
#define PEN_RUNDIR_PATH_MAX 3500 /* of the directory, so that names fit behind */

/* A store of this run: `generation` counts how often the state was moved. */
struct pen_rundir_store {
  uint32_t generation;
  size_t n_dirs;
  char *dirs[PEN_STORE_DIRS_MAX]; /* as given; absolute */
};

struct pen_rundir {
  char *path;
  int lock_fd;
  uint8_t run_id[16];
  struct pen_numerics numerics;
  const struct pen_state_format *becomes; /* what a start changes the state's format
                                             to, until it has; NULL: nothing */
  size_t tile_elems; /* as the newest start had them; 0: not known */
  struct pen_rundir_store stores[PEN_RUNDIR_STORES_MAX]; /* ascending */
  size_t n_stores;
};

/* Takes a run that was just created, and trained nothing, back: its stores and
 * run.json, so that the same command can be given again. */
void pen_rundir_undo(struct pen_rundir *rundir);
/* Is there a run in `path`? */
bool pen_rundir_exists(const char *path);
/* -EEXIST, with what can be done, if there is. */
int pen_rundir_check_free(const char *path);
/* Makes the directory and a new run in it; with `overwrite` an old run's files
 * (its own: log, checkpoints, model, stores) are removed first, without it one
 * that exists is -EEXIST. */
int pen_rundir_create(const char *path, bool overwrite,
                      const struct pen_numerics *numerics,
                      struct pen_rundir *ret_rundir);
/* Opens and locks a run.  -EBUSY while another process runs it. */
int pen_rundir_open(const char *path, struct pen_rundir *ret_rundir);
void pen_rundir_close(struct pen_rundir *rundir);
/* Removes what a killed process left half-written: folders named *.tmp.
 * Returns how many. */
size_t pen_rundir_clean(const struct pen_rundir *rundir);
/* Writes run.json, whole or not at all. */
int pen_rundir_save(const struct pen_rundir *rundir);
/* The format that the run is to go on with. */
const struct pen_state_format *
pen_rundir_state(const struct pen_rundir *rundir);

/* The run's id in hexadecimal digits. */
void pen_rundir_id(const struct pen_rundir *rundir, char ret_text[33]);
/* "PATH/name" into ret_path [4096]. */
void pen_rundir_file(const struct pen_rundir *rundir, const char *name,
                     char *ret_path);

/* The directories of one store: each drive's directory with a folder of the
 * run's id and the generation.  Paths are owned by the caller, who begins with
 * NULLs and frees whatever came. */
int pen_rundir_store_dirs(const struct pen_rundir *rundir,
                          const struct pen_rundir_store *store,
                          char *ret_dirs[PEN_STORE_DIRS_MAX]);
void pen_rundir_free_dirs(char *dirs[PEN_STORE_DIRS_MAX]);
/* Adds a store (directories made absolute); the caller saves. */
int pen_rundir_add_store(struct pen_rundir *rundir, uint32_t generation,
                         const char *const *dirs, size_t n_dirs);
const struct pen_rundir_store *
pen_rundir_find_store(const struct pen_rundir *rundir, uint32_t generation);
/* Forgets all entries, as close does; nothing on drives is touched. */
void pen_rundir_drop_stores(struct pen_rundir *rundir);
/* Removes a store's files, then its entry, and saves. */
int pen_rundir_remove_store(struct pen_rundir *rundir, uint32_t generation,
                            const struct pen_engine *engine);
/* The same of all of them, until one fails. */
int pen_rundir_remove_stores(struct pen_rundir *rundir,
                             const struct pen_engine *engine);

/* Steps of the checkpoint-N folders, ascending; at most max. */
size_t pen_rundir_checkpoints(const struct pen_rundir *rundir,
                              uint64_t *ret_steps, size_t max);
void pen_rundir_checkpoint_path(const struct pen_rundir *rundir, uint64_t step,
                                char *ret_path);
int pen_rundir_remove_checkpoint(const struct pen_rundir *rundir,
                                 uint64_t step);

#endif
