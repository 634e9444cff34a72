/* model_dir.c: finds a model directory and opens all of it.
 *
 * After open nothing changes; any thread may read.  Disadvantage: the hub cache
 * is known by its published folder names, not through the library that makes
 * it. */
#include "src/model/model_dir.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "io/files.h"
#include "io/hfdir.h"

/* "org/name" of letters, digits, '-', '_' and '.'. */
static bool is_hub_id(const char *path)
{
  const char *slash = strchr(path, '/');
  if (!slash || slash == path || !slash[1] || strchr(slash + 1, '/') ||
      path[0] == '.' || path[0] == '~')
    return false;
  for (const char *p = path; *p; p++)
    if (!isalnum((unsigned char)*p) && !strchr("-_./", *p))
      return false;
  return true;
}

/* text [PATH_MAX] = the folder of all cached hub models; false when unknown. */
static bool find_cache(char *text)
{
  const char *hub = getenv("HF_HUB_CACHE"), *home = getenv("HF_HOME"),
             *user = getenv("HOME");
  int n = hub    ? snprintf(text, PATH_MAX, "%s", hub)
          : home ? snprintf(text, PATH_MAX, "%s/hub", home)
          : user ? snprintf(text, PATH_MAX, "%s/.cache/huggingface/hub", user)
                 : PATH_MAX;
  return n < PATH_MAX;
}

/* found [PATH_MAX] = the snapshot that the id's main branch names. */
static bool find_snapshot(const char *id, char *found)
{
  char cache[PATH_MAX], model[PATH_MAX], ref[PATH_MAX];
  char *revision = NULL;
  size_t n = 0;
  int org = (int)(strchr(id, '/') - id);
  if (!find_cache(cache) ||
      snprintf(model, sizeof model, "%s/models--%.*s--%s", cache, org, id,
               id + org + 1) >= (int)sizeof model ||
      snprintf(ref, sizeof ref, "%s/refs/main", model) >= (int)sizeof ref ||
      !pen_files_exists(ref))
    return false;
  if (pen_files_read_whole(ref, 256, &revision, &n)) {
    pen_error_clear(); /* an unreadable cache is no cache */
    return false;
  }
  revision[strcspn(revision, " \r\n")] = '\0';
  bool fits = snprintf(found, PATH_MAX, "%s/snapshots/%s", model, revision) <
              PATH_MAX;
  free(revision);
  return fits && pen_files_exists(found);
}

/* Is this a run's directory, with its models inside? */
static bool is_run(const char *path)
{
  char run[PATH_MAX], config[PATH_MAX];
  return snprintf(run, sizeof run, "%s/run.json", path) < (int)sizeof run &&
         snprintf(config, sizeof config, "%s/config.json", path) <
             (int)sizeof config &&
         pen_files_exists(run) && !pen_files_exists(config);
}

static int find_dir(const char *path, char *found)
{
  if (is_run(path))
    return pen_error_set(-PEN_EUSAGE, "%s is a run's directory: name the model in "
                         "it, %s/model or %s/checkpoint-STEP", path, path, path);

  if (pen_files_exists(path) || !is_hub_id(path)) {
    if (snprintf(found, PATH_MAX, "%s", path) >= PATH_MAX)
      return pen_error_set(-ENAMETOOLONG, "cannot open %.80s...", path);
    return 0;
  }
  if (find_snapshot(path, found))
    return 0;
  return pen_error_say(-ENOENT, "if %s is a model of the Hugging Face hub, "
                       "'hf download %s --local-dir %s' fetches it; there is no "
                       "such directory here", path, path, strchr(path, '/') + 1);
}

static int open_parts(struct pen_model_dir *d,
                      const struct pen_model_dir_options *options)
{
  char config_path[PATH_MAX];
  if (snprintf(config_path, sizeof config_path, "%s/config.json", d->path) >=
      (int)sizeof config_path)
    return pen_error_set(-ENAMETOOLONG, "cannot open %s", d->path);
  struct stat st;
  if (stat(d->path, &st) == 0 && !S_ISDIR(st.st_mode))
    return pen_error_say(-ENOTDIR, "%s is not a model directory but a file",
                         d->path);
  int rc = pen_model_config_load(config_path, &d->config);
  if (!rc)
    rc = pen_hfdir_open(d->path, options->lenient, &d->files);
  if (!rc)
    rc = pen_params_open(&d->config, d->files, options->head_rows,
                         options->untie, &d->params);
  return rc;
}

int pen_model_dir_find(const char *path, char **ret_path)
{
  char found[PATH_MAX];
  int rc = find_dir(path, found);
  if (rc)
    return rc;
  char *copy = strdup(found);
  if (!copy)
    return pen_error_set(-ENOMEM, "cannot open %s", path);
  *ret_path = copy;
  return 0;
}

int pen_model_dir_open(const char *path,
                       const struct pen_model_dir_options *options,
                       struct pen_model_dir **ret_dir)
{
  struct pen_model_dir *d = calloc(1, sizeof *d);
  if (!d)
    return pen_error_set(-ENOMEM, "cannot open %s", path);
  int rc = pen_model_dir_find(path, &d->path);
  if (!rc)
    rc = open_parts(d, options);
  if (rc) {
    pen_model_dir_close(&d);
    return rc;
  }
  *ret_dir = d;
  return 0;
}

void pen_model_dir_close(struct pen_model_dir **dir)
{
  struct pen_model_dir *d = *dir;
  if (!d)
    return;
  pen_params_free(&d->params);
  pen_hfdir_close(&d->files);
  free(d->path);
  free(d);
  *dir = NULL;
}
