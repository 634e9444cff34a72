/* rundir.c: run.json, and the names of a run's files.
 *
 * run.json is replaced whole.  Main thread.
 * Disadvantage: only what run.json and the fixed names list is ever removed, so
 * a folder the user renamed stays. */
#include "src/train/rundir.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "io/files.h"
#include "io/hfdir_folder.h"
#include "io/json_write.h"

#define CHECKPOINT "checkpoint-"
#define REMOVED "removed-"

void pen_rundir_file(const struct pen_rundir *rundir, const char *name,
                     char *ret_path)
{
  snprintf(ret_path, 4096, "%.*s/%.255s", PEN_RUNDIR_PATH_MAX, rundir->path,
           name);
}

bool pen_rundir_exists(const char *path)
{
  char file[4096];
  snprintf(file, sizeof file, "%.*s/" PEN_RUNDIR_FILE, PEN_RUNDIR_PATH_MAX, path);
  return pen_files_exists(file);
}

int pen_rundir_check_free(const char *path)
{
  if (!pen_rundir_exists(path))
    return 0;
  return pen_error_say(-EEXIST,
                       "%s holds a run (--resume goes on with it, "
                       "--overwrite starts over)",
                       path);
}

void pen_rundir_id(const struct pen_rundir *rundir, char ret_text[33])
{
  for (size_t i = 0; i < 16; i++)
    sprintf(ret_text + 2 * i, "%02x", rundir->run_id[i]);
}

const struct pen_state_format *
pen_rundir_state(const struct pen_rundir *rundir)
{
  return rundir->becomes ? rundir->becomes : rundir->numerics.state;
}

int pen_rundir_save(const struct pen_rundir *rundir)
{
  char path[4096], id[33];
  const char *text;
  size_t bytes;
  struct pen_json_writer w;
  pen_json_writer_init(&w, NULL, 0, true);
  pen_json_begin_object(&w, NULL);
  pen_rundir_id(rundir, id);
  pen_json_put_string(&w, "run_id", id);
  pen_json_begin_object(&w, "numerics");
  pen_numerics_write(&rundir->numerics, &w);
  pen_json_end_object(&w);
  if (rundir->becomes)
    pen_json_put_string(&w, "state_becomes", rundir->becomes->name);
  pen_json_put_u64(&w, "tile_elems", rundir->tile_elems);
  pen_json_begin_array(&w, "stores");
  for (size_t i = 0; i < rundir->n_stores; i++) {
    pen_json_begin_object(&w, NULL);
    pen_json_put_u64(&w, "generation", rundir->stores[i].generation);
    pen_json_begin_array(&w, "dirs");
    for (size_t d = 0; d < rundir->stores[i].n_dirs; d++)
      pen_json_put_string(&w, NULL, rundir->stores[i].dirs[d]);
    pen_json_end_array(&w);
    pen_json_end_object(&w);
  }
  pen_json_end_array(&w);
  pen_json_end_object(&w);
  int rc = pen_json_finish(&w, &text, &bytes);
  pen_rundir_file(rundir, PEN_RUNDIR_FILE, path);
  if (rc == 0)
    rc = pen_files_write_whole(path, text, bytes);
  pen_json_writer_done(&w);
  return rc;
}

static int ascending(const void *a, const void *b)
{
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return (x > y) - (x < y);
}

size_t pen_rundir_checkpoints(const struct pen_rundir *rundir,
                              uint64_t *ret_steps, size_t max)
{
  size_t n = 0;
  DIR *dir = opendir(rundir->path);
  struct dirent *entry;
  while (dir && n < max && (entry = readdir(dir))) {
    char *end;
    if (strncmp(entry->d_name, CHECKPOINT, sizeof CHECKPOINT - 1) != 0)
      continue;
    const char *digits = entry->d_name + sizeof CHECKPOINT - 1;
    unsigned long long step = strtoull(digits, &end, 10);
    if (end != digits && *end == '\0')
      ret_steps[n++] = step;
  }
  if (dir)
    closedir(dir);
  qsort(ret_steps, n, sizeof *ret_steps, ascending);
  return n;
}

/* Names that only we give, and only to what is not whole. */
static bool is_unfinished(const char *name)
{
  size_t n = strlen(name);
  return n > 4 && strcmp(name + n - 4, ".tmp") == 0 &&
         (strncmp(name, CHECKPOINT, sizeof CHECKPOINT - 1) == 0 ||
          strncmp(name, REMOVED, sizeof REMOVED - 1) == 0 ||
          strcmp(name, "model.tmp") == 0);
}

size_t pen_rundir_clean(const struct pen_rundir *rundir)
{
  size_t n = 0;
  DIR *dir = opendir(rundir->path);
  struct dirent *entry;
  while (dir && (entry = readdir(dir))) {
    char path[4096];
    if (!is_unfinished(entry->d_name))
      continue;
    pen_rundir_file(rundir, entry->d_name, path);
    if (pen_hfdir_remove(path) == 0)
      n++;
    else
      pen_error_clear(); /* it stays, and is ignored */
  }
  if (dir)
    closedir(dir);
  return n;
}

void pen_rundir_checkpoint_path(const struct pen_rundir *rundir, uint64_t step,
                                char *ret_path)
{
  char name[64];
  snprintf(name, sizeof name, CHECKPOINT "%llu", (unsigned long long)step);
  pen_rundir_file(rundir, name, ret_path);
}

int pen_rundir_remove_checkpoint(const struct pen_rundir *rundir, uint64_t step)
{
  /* Renamed first: what has a checkpoint's name is a whole checkpoint. */
  char path[4096], name[64], gone[4096];
  pen_rundir_checkpoint_path(rundir, step, path);
  snprintf(name, sizeof name, REMOVED "%llu.tmp", (unsigned long long)step);
  pen_rundir_file(rundir, name, gone);
  int rc = pen_hfdir_remove(gone);
  if (rc == 0 && rename(path, gone) < 0)
    rc = pen_error_set(-errno, "cannot remove %s", path);
  return rc < 0 ? rc : pen_hfdir_remove(gone);
}
