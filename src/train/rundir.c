/* rundir.c: run.json, the lock, and the names of a run's files.
 *
 * run.json is replaced whole.  Main thread.
 * Disadvantage: only what run.json and the fixed names list is ever removed, so
 * a folder the user renamed stays. */
#include "src/train/rundir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/error.h"
#include "io/files.h"
#include "io/hfdir_folder.h"
#include "io/json.h"
#include "io/json_write.h"

#define RUN_FILE "run.json"
#define LOCK_FILE "run.lock"
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
  snprintf(file, sizeof file, "%.*s/" RUN_FILE, PEN_RUNDIR_PATH_MAX, path);
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

static int unhex(const char *text, uint8_t *ret_bytes, size_t n)
{
  for (size_t i = 0; i < n; i++) {
    unsigned byte;
    if (sscanf(text + 2 * i, "%2x", &byte) != 1)
      return pen_error_set(PEN_EFORMAT, RUN_FILE ": \"%.40s\" is no run id",
                           text);
    ret_bytes[i] = (uint8_t)byte;
  }
  return 0;
}

static int take_lock(struct pen_rundir *r)
{
  char path[4096];
  pen_rundir_file(r, LOCK_FILE, path);
  r->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (r->lock_fd < 0)
    return pen_error_set(-errno, "cannot open %s", path);
  if (flock(r->lock_fd, LOCK_EX | LOCK_NB) < 0)
    return pen_error_say(-EBUSY,
                         "%s is in use by another penstock (wait for it, or "
                         "choose another --output-dir)",
                         r->path);
  return 0;
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
  pen_rundir_file(rundir, RUN_FILE, path);
  if (rc == 0)
    rc = pen_files_write_whole(path, text, bytes);
  pen_json_writer_done(&w);
  return rc;
}

const struct pen_state_format *
pen_rundir_state(const struct pen_rundir *rundir)
{
  return rundir->becomes ? rundir->becomes : rundir->numerics.state;
}

static int read_store(struct pen_rundir *r, const struct pen_json *json,
                      const struct pen_json_node *node)
{
  const struct pen_json_node *dirs;
  const char *names[PEN_STORE_DIRS_MAX];
  int64_t generation;
  int rc = pen_json_get_i64(json, node, "generation", &generation);
  if (rc == 0)
    rc = pen_json_get_array(json, node, "dirs", &dirs);
  if (rc < 0)
    return rc;
  size_t n = pen_json_size(dirs);
  if (n > PEN_STORE_DIRS_MAX)
    return pen_json_error(json, dirs, PEN_EFORMAT, "more than %d directories",
                          PEN_STORE_DIRS_MAX);
  for (size_t i = 0; rc == 0 && i < n; i++)
    rc = pen_json_as_string(json, pen_json_item(dirs, i), &names[i]);
  return rc < 0 ? rc : pen_rundir_add_store(r, (uint32_t)generation, names, n);
}

static int read_run(struct pen_rundir *r, const struct pen_json *json)
{
  const struct pen_json_node *root = pen_json_root(json), *numerics, *stores;
  const char *id, *becomes = NULL;
  int rc = pen_json_get_string(json, root, "run_id", &id);
  if (rc == 0)
    rc = unhex(id, r->run_id, 16);
  if (rc == 0)
    rc = pen_json_get_object(json, root, "numerics", &numerics);
  if (rc == 0)
    rc = pen_numerics_read(json, numerics, &r->numerics);
  if (rc == 0)
    rc = pen_json_opt_string(json, root, "state_becomes", &becomes);
  if (rc == 0 && becomes)
    rc = pen_state_find(becomes, &r->becomes);
  if (rc == 0 && pen_json_member(root, "tile_elems"))
    rc = pen_json_get_size(json, root, "tile_elems", &r->tile_elems);
  if (rc == 0)
    rc = pen_json_get_array(json, root, "stores", &stores);
  for (size_t i = 0; rc == 0 && i < pen_json_size(stores); i++)
    rc = read_store(r, json, pen_json_item(stores, i));
  return rc;
}

int pen_rundir_open(const char *path, struct pen_rundir *ret_rundir)
{
  char file[4096];
  struct pen_json *json = NULL;
  struct pen_rundir r = {.path = strdup(path), .lock_fd = -1};
  pen_rundir_file(&r, RUN_FILE, file);
  int rc = take_lock(&r);
  if (rc == 0)
    rc = pen_json_load(file, &json);
  if (rc == 0)
    rc = read_run(&r, json);
  pen_json_free(&json);
  if (rc < 0)
    pen_rundir_close(&r);
  else
    *ret_rundir = r;
  return rc;
}

/* Removes what the run in r->path left, its stores first. */
static int remove_old_run(struct pen_rundir *r)
{
  static const char *const files[] = {"log.jsonl", "config.yaml",
                                      PEN_RUNDIR_PRODUCTS};
  struct pen_rundir old = {.path = r->path, .lock_fd = -1};
  struct pen_json *json = NULL;
  char path[4096];
  uint64_t steps[256];
  pen_rundir_file(r, RUN_FILE, path);
  int rc = pen_json_load(path, &json);
  if (rc == 0)
    rc = read_run(&old, json);
  if (rc < 0) { /* unreadable: its stores cannot be known */
    pen_error_clear();
    rc = 0;
  }
  pen_json_free(&json);
  if (rc == 0)
    rc = pen_rundir_remove_stores(&old, pen_engine_find("threads"));
  pen_rundir_drop_stores(&old);
  size_t n;
  while (rc == 0 && (n = pen_rundir_checkpoints(r, steps, 256)) > 0)
    for (size_t i = 0; rc == 0 && i < n; i++)
      rc = pen_rundir_remove_checkpoint(r, steps[i]);
  pen_rundir_file(r, "model", path);
  if (rc == 0)
    rc = pen_hfdir_remove(path);
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
    pen_rundir_file(r, files[i], path);
    if (rc == 0 && unlink(path) < 0 && errno != ENOENT)
      rc = pen_error_set(-errno, "cannot remove %s", path);
  }
  pen_rundir_file(r, RUN_FILE, path);
  if (rc == 0 && unlink(path) < 0)
    rc = pen_error_set(-errno, "cannot remove %s", path);
  return rc;
}

int pen_rundir_create(const char *path, bool overwrite,
                      const struct pen_numerics *numerics,
                      struct pen_rundir *ret_rundir)
{
  if (strlen(path) > PEN_RUNDIR_PATH_MAX)
    return pen_error_set(PEN_EUSAGE, "--output-dir is longer than %d bytes",
                         PEN_RUNDIR_PATH_MAX);
  struct pen_rundir r = {
      .path = strdup(path), .lock_fd = -1, .numerics = *numerics};
  int rc = pen_files_make_dirs(path);
  if (rc == 0)
    rc = take_lock(&r);
  if (rc == 0 && !overwrite)
    rc = pen_rundir_check_free(path);
  else if (rc == 0 && pen_rundir_exists(path))
    rc = remove_old_run(&r);
  if (rc == 0 && getrandom(r.run_id, sizeof r.run_id, 0) != sizeof r.run_id)
    rc = pen_error_set(-errno, "cannot draw a run id");
  if (rc == 0)
    rc = pen_rundir_save(&r);
  if (rc < 0)
    pen_rundir_close(&r);
  else
    *ret_rundir = r;
  return rc;
}

void pen_rundir_close(struct pen_rundir *rundir)
{
  pen_rundir_drop_stores(rundir);
  if (rundir->path && rundir->lock_fd >= 0)
    close(rundir->lock_fd);
  free(rundir->path);
  *rundir = (struct pen_rundir){.lock_fd = -1};
}

void pen_rundir_undo(struct pen_rundir *rundir)
{
  static const char *const files[] = {RUN_FILE, "config.yaml", LOCK_FILE,
                                      PEN_RUNDIR_PRODUCTS};
  struct pen_error kept;
  char path[4096];
  pen_error_take(&kept);
  pen_rundir_remove_stores(rundir, pen_engine_find("threads"));
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
    pen_rundir_file(rundir, files[i], path);
    unlink(path);
  }
  rmdir(rundir->path); /* if nothing else is in it */
  pen_error_put(&kept);
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
