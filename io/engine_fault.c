/* engine_fault.c: the fault engine's row, its files, and its text form.
 *
 * Invariant: every hook that touches the drive asks pen_fault_judge first.
 * Any thread.  Disadvantage: blocking transfers and syncs of all files are one
 * after another, under one mutex. */
#include "io/engine_fault.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "io/engine_fault_state.h"

static const char *const fault_names[PEN_FAULT_KINDS] = {
    [PEN_FAULT_CUT] = "cut",       [PEN_FAULT_KILL] = "kill",
    [PEN_FAULT_EIO] = "eio",       [PEN_FAULT_ENOSPC] = "enospc",
    [PEN_FAULT_EINVAL] = "einval", [PEN_FAULT_EINTR] = "eintr",
    [PEN_FAULT_EAGAIN] = "eagain", [PEN_FAULT_SHORT] = "short",
    [PEN_FAULT_LATE] = "late",
};

static struct pen_fault_file *wrapped(struct pen_engine_file *file)
{
  return (struct pen_fault_file *)file;
}

/* Judges a request that is no transfer; keeps the mutex if it may go on. */
static int begin(struct pen_fault_state *state, const char *what,
                 const char *path)
{
  pthread_mutex_lock(&state->mutex);
  struct pen_fault_verdict verdict = pen_fault_judge(state, false, 0);
  if (verdict.cut_now) {
    pen_fault_cut_power(state);
    verdict.code = -EIO;
  }
  if (!verdict.code)
    return 0;
  pthread_mutex_unlock(&state->mutex);
  return pen_error_set(verdict.code, "cannot %s %s (fault engine)", what, path);
}

static void note_name(struct pen_fault_state *state, const char *path,
                      const char *from)
{
  struct pen_fault_name *name = state->logs ? calloc(1, sizeof *name) : NULL;
  if (!name)
    return;
  name->path = strdup(path);
  name->from = from ? strdup(from) : NULL;
  name->next = state->names;
  state->names = name;
}

static int fault_open(const struct pen_engine *engine, const char *path,
                      bool create, struct pen_engine_file **ret_file)
{
  struct pen_fault_state *state = pen_fault_state(engine);
  struct pen_fault_file *file = calloc(1, sizeof *file);
  char *copy = strdup(path);
  int code = file && copy ? 0 : pen_error_set(-ENOMEM, "cannot open %s", path);
  pthread_mutex_lock(&state->mutex);
  if (!code && state->cut)
    code = pen_error_set(-EIO, "cannot open %s (fault engine)", path);
  if (!code)
    code = state->inner->open(state->inner, path, create, &file->inner);
  if (!code) {
    file->base = (struct pen_engine_file){
        .engine = engine, .path = copy, .created = file->inner->created,
        .direct = file->inner->direct};
    memcpy(file->base.note, file->inner->note, sizeof file->base.note);
    file->last = &file->first;
    file->next = state->files;
    state->files = file;
    if (file->base.created)
      note_name(state, path, NULL);
  }
  pthread_mutex_unlock(&state->mutex);
  if (code) {
    free(file);
    free(copy);
    return code;
  }
  *ret_file = &file->base;
  return 0;
}

/* Everything logged goes below, in order. */
static int write_logged(struct pen_fault_file *file)
{
  while (file->first) {
    struct pen_fault_write *w = file->first;
    int code = pen_engine_write_whole(file->inner, w->data, w->bytes, w->offset,
                                      NULL);
    if (code)
      return code;
    file->first = w->next;
    free(w->data);
    free(w);
  }
  file->last = &file->first;
  return 0;
}

static void fault_close(struct pen_engine_file **base)
{
  struct pen_fault_file *file = wrapped(*base);
  if (!file)
    return;
  struct pen_fault_state *state = pen_fault_state(file->base.engine);
  pthread_mutex_lock(&state->mutex);
  struct pen_error standing;
  pen_error_take(&standing);
  if (write_logged(file)) /* a close that is not synced fails in silence */
    pen_error_clear();
  pen_error_put(&standing);
  struct pen_fault_file **at = &state->files;
  while (*at != file)
    at = &(*at)->next;
  *at = file->next;
  pthread_mutex_unlock(&state->mutex);
  file->inner->engine->close(&file->inner);
  free(file->base.path);
  free(file);
  *base = NULL;
}

static int fault_lock(struct pen_engine_file *file)
{
  struct pen_engine_file *inner = wrapped(file)->inner;
  return inner->engine->lock(inner);
}

static int fault_info(struct pen_engine_file *file,
                      struct pen_engine_info *ret_info)
{
  struct pen_engine_file *inner = wrapped(file)->inner;
  return inner->engine->info(inner, ret_info);
}

static int fault_allocate(struct pen_engine_file *file, uint64_t bytes)
{
  struct pen_fault_state *state = pen_fault_state(file->engine);
  struct pen_engine_file *inner = wrapped(file)->inner;
  int code = begin(state, "preallocate", file->path);
  if (code)
    return code;
  code = inner->engine->allocate(inner, bytes);
  pthread_mutex_unlock(&state->mutex);
  return code;
}

static int fault_sync(struct pen_engine_file *file)
{
  struct pen_fault_state *state = pen_fault_state(file->engine);
  struct pen_engine_file *inner = wrapped(file)->inner;
  int code = begin(state, "sync", file->path);
  if (code)
    return code;
  code = write_logged(wrapped(file));
  if (!code)
    code = inner->engine->sync(inner);
  pthread_mutex_unlock(&state->mutex);
  return code;
}

static int64_t fault_read_at(struct pen_engine_file *file, void *buffer,
                             size_t bytes, uint64_t offset)
{
  struct pen_fault_state *state = pen_fault_state(file->engine);
  pthread_mutex_lock(&state->mutex);
  struct pen_fault_verdict verdict = pen_fault_judge(state, true, bytes);
  if (verdict.cut_now) {
    pen_fault_cut_power(state);
    verdict.code = -EIO;
  }
  int64_t result = verdict.code;
  if (!result)
    result = pen_fault_read_logged(wrapped(file), buffer, bytes, offset);
  if (result > (int64_t)verdict.bytes)
    result = (int64_t)verdict.bytes;
  pthread_mutex_unlock(&state->mutex);
  return result;
}

static int64_t fault_write_at(struct pen_engine_file *file, const void *buffer,
                              size_t bytes, uint64_t offset)
{
  struct pen_fault_state *state = pen_fault_state(file->engine);
  struct pen_engine_file *inner = wrapped(file)->inner;
  pthread_mutex_lock(&state->mutex);
  struct pen_fault_verdict verdict = pen_fault_judge(state, true, bytes);
  int64_t result = verdict.code;
  if (!result && state->logs)
    result = pen_fault_log_write(wrapped(file), buffer, bytes, offset);
  else if (!result)
    result = inner->engine->write_at(inner, buffer, bytes, offset);
  if (verdict.cut_now) {
    pen_fault_cut_power(state);
    result = -EIO;
  }
  pthread_mutex_unlock(&state->mutex);
  if (result < 0)
    return result;
  return state->logs || result > (int64_t)verdict.bytes
             ? (int64_t)verdict.bytes
             : result;
}

static int fault_make_dirs(const struct pen_engine *engine, const char *dir)
{
  struct pen_fault_state *state = pen_fault_state(engine);
  return state->inner->make_dirs(state->inner, dir);
}

static int fault_rename(const struct pen_engine *engine, const char *from,
                        const char *to)
{
  struct pen_fault_state *state = pen_fault_state(engine);
  int code = begin(state, "rename", from);
  if (code)
    return code;
  code = state->inner->rename(state->inner, from, to);
  if (!code)
    note_name(state, to, from);
  pthread_mutex_unlock(&state->mutex);
  return code;
}

static int fault_remove(const struct pen_engine *engine, const char *path)
{
  struct pen_fault_state *state = pen_fault_state(engine);
  int code = begin(state, "remove", path);
  if (code)
    return code;
  code = state->inner->remove(state->inner, path);
  pthread_mutex_unlock(&state->mutex);
  return code;
}

static bool is_entry_of(const char *path, const char *dir)
{
  size_t n = strlen(dir);
  return strncmp(path, dir, n) == 0 && path[n] == '/' &&
         !strchr(path + n + 1, '/');
}

static int fault_sync_dir(const struct pen_engine *engine, const char *dir)
{
  struct pen_fault_state *state = pen_fault_state(engine);
  int code = begin(state, "sync directory", dir);
  if (code)
    return code;
  code = state->inner->sync_dir(state->inner, dir);
  for (struct pen_fault_name **at = &state->names; *at && !code;) {
    struct pen_fault_name *name = *at;
    if (!is_entry_of(name->path, dir)) {
      at = &name->next;
      continue;
    }
    *at = name->next;
    free(name->path);
    free(name->from);
    free(name);
  }
  pthread_mutex_unlock(&state->mutex);
  return code;
}

static const struct pen_engine fault_row = {
    .name = "fault",
    .open = fault_open,
    .close = fault_close,
    .lock = fault_lock,
    .info = fault_info,
    .allocate = fault_allocate,
    .sync = fault_sync,
    .read_at = fault_read_at,
    .write_at = fault_write_at,
    .make_dirs = fault_make_dirs,
    .rename = fault_rename,
    .remove = fault_remove,
    .sync_dir = fault_sync_dir,
    .ring_create = pen_fault_ring_create,
    .ring_free = pen_fault_ring_free,
    .ring_submit = pen_fault_ring_submit,
    .ring_reap = pen_fault_ring_reap,
};

void pen_engine_fault_config_init(struct pen_engine_fault_config *config)
{
  *config = (struct pen_engine_fault_config){.seed = 0};
  for (int i = 0; i < PEN_FAULT_KINDS; i++)
    config->faults[i].at = PEN_FAULT_NEVER;
}

int pen_engine_fault_create(const struct pen_engine *inner,
                            const struct pen_engine_fault_config *config,
                            const struct pen_engine **ret_engine)
{
  struct pen_fault_state *state = calloc(1, sizeof *state);
  if (!state)
    return pen_error_set(-ENOMEM, "cannot make a fault engine");
  state->row = fault_row;
  state->row.context = state;
  state->row.keeps = inner->keeps;
  state->inner = inner;
  state->config = *config;
  state->random = config->seed;
  state->logs = config->faults[PEN_FAULT_CUT].at != PEN_FAULT_NEVER ||
                config->faults[PEN_FAULT_CUT].percent;
  pthread_mutex_init(&state->mutex, NULL);
  *ret_engine = &state->row;
  return 0;
}

void pen_engine_fault_free(const struct pen_engine *engine)
{
  if (!engine)
    return;
  struct pen_fault_state *state = pen_fault_state(engine);
  while (state->names) {
    struct pen_fault_name *name = state->names;
    state->names = name->next;
    free(name->path);
    free(name->from);
    free(name);
  }
  pthread_mutex_destroy(&state->mutex);
  free(state);
}

uint64_t pen_engine_fault_requests(const struct pen_engine *engine)
{
  struct pen_fault_state *state = pen_fault_state(engine);
  pthread_mutex_lock(&state->mutex);
  uint64_t n = state->n_requests;
  pthread_mutex_unlock(&state->mutex);
  return n;
}

/* One "key=value", already cut out. */
static int parse_setting(char *text, struct pen_engine_fault_config *config)
{
  char *value = strchr(text, '='), *end = NULL;
  if (value)
    *value++ = '\0';
  errno = 0;
  unsigned long long number =
      value && *value >= '0' && *value <= '9' ? strtoull(value, &end, 10) : 0;
  bool percent = end && *end == '%';
  if (!end || errno || end[percent] || (percent && number > 100))
    return pen_error_set(-PEN_EUSAGE, "fault engine: '%s' needs a number, or a "
                                      "share like 10%%", text);
  if (strcmp(text, "seed") == 0 && !percent) {
    config->seed = number;
    return 0;
  }
  for (int i = 0; i < PEN_FAULT_KINDS; i++) {
    if (strcmp(text, fault_names[i]) != 0)
      continue;
    if (percent)
      config->faults[i].percent = (unsigned)number;
    else
      config->faults[i].at = number;
    return 0;
  }
  return pen_error_set(-PEN_EUSAGE,
                       "fault engine: no fault '%s'; there are seed, cut, "
                       "kill, eio, enospc, einval, eintr, eagain, short, late",
                       text);
}

int pen_engine_fault_parse(const struct pen_engine *inner, const char *text,
                           const struct pen_engine **ret_engine)
{
  struct pen_engine_fault_config config;
  pen_engine_fault_config_init(&config);
  char *copy = text ? strdup(text) : NULL, *rest = copy;
  int code = copy || !text
                 ? 0
                 : pen_error_set(-ENOMEM, "cannot read '%s'", text);
  while (!code && rest)
    code = parse_setting(strsep(&rest, ","), &config);
  free(copy);
  return code ? code : pen_engine_fault_create(inner, &config, ret_engine);
}
