/* rundir_open.c: makes a run's directory, or opens one that is there, and holds the
 * lock that keeps a second run out.
 *
 * Main thread.  Disadvantage: flock is only as good as the file system's: some
 * that lie on a network do not keep it. */
#include <errno.h>
#include <fcntl.h>
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
#include "src/train/rundir.h"

#define LOCK_FILE "run.lock"

static int unhex(const char *text, uint8_t *ret_bytes, size_t n)
{
  for (size_t i = 0; i < n; i++) {
    unsigned byte;
    if (sscanf(text + 2 * i, "%2x", &byte) != 1)
      return pen_error_set(PEN_EFORMAT, PEN_RUNDIR_FILE ": \"%.40s\" is no run id",
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
  pen_rundir_file(&r, PEN_RUNDIR_FILE, file);
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
  pen_rundir_file(r, PEN_RUNDIR_FILE, path);
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
  pen_rundir_file(r, PEN_RUNDIR_FILE, path);
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
  static const char *const files[] = {PEN_RUNDIR_FILE, "config.yaml", LOCK_FILE,
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
