/* generate.c: the document's new tokens through the model, then one drawn from
 * the last one's logits.
 *
 * Invariant: the cache holds keys and values of the first n_cached ids.  A drawn
 * token is computed only when the next one is asked for.  Main thread; a token
 * takes no memory.  Disadvantage: one document at a time. */
#include "src/train/generate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "io/files.h"
#include "io/json.h"

/* The ids under `key` (a number, a list, null) of one of the two files. */
static int read_ids(const char *dir, const char *name, const char *key,
                    int64_t *ret_ids, size_t max, size_t *ret_n)
{
  char path[4096];
  struct pen_json *json = NULL;
  snprintf(path, sizeof path, "%s/%s", dir, name);
  if (!pen_files_exists(path))
    return 0;
  int rc = pen_json_load(path, &json);
  if (rc < 0)
    return rc;
  const struct pen_json_node *root = pen_json_root(json);
  const struct pen_json_node *node = pen_json_member(root, key);
  if (node && pen_json_type(node) == PEN_JSON_ARRAY)
    for (size_t i = 0; rc == 0 && i < pen_json_size(node) && *ret_n < max; i++)
      rc = pen_json_as_i64(json, pen_json_item(node, i), &ret_ids[(*ret_n)++]);
  else if (pen_json_has(root, key) && *ret_n < max)
    rc = pen_json_as_i64(json, node, &ret_ids[(*ret_n)++]);
  pen_json_free(&json);
  return rc;
}

static int special_ids(const char *dir, const char *key, int64_t *ret_ids,
                       size_t max, size_t *ret_n)
{
  *ret_n = 0;
  int rc = read_ids(dir, "generation_config.json", key, ret_ids, max, ret_n);
  if (rc == 0 && *ret_n == 0)
    rc = read_ids(dir, "config.json", key, ret_ids, max, ret_n);
  return rc;
}

int pen_generate_begin_token(const char *model_dir, int64_t *ret_id)
{
  int64_t id = -1;
  size_t n;
  int rc = special_ids(model_dir, "bos_token_id", &id, 1, &n);
  if (rc == 0)
    *ret_id = n ? id : -1;
  return rc;
}

/* Rotary positions go on beyond what was trained, to no good. */
void pen_generate_warn_of_room(size_t positions, size_t room, const char *option,
                               size_t before)
{
  char advice[96] = "";
  if (positions > before)
    snprintf(advice, sizeof advice, " (%s %zu stops there)", option,
             positions - before);
  if (room > positions)
    pen_log_warn("up to %zu tokens, the prompt's included, are more than the %zu "
                 "positions this model was made for; beyond them text goes bad%s",
                 room, positions, advice);
}

static size_t chunk_of(size_t room)
{
  return room < PEN_GENERATE_CHUNK_TOKENS ? room : PEN_GENERATE_CHUNK_TOKENS;
}

static size_t max_size(size_t a, size_t b)
{
  return a > b ? a : b;
}

int pen_generator_shape(const char *model_dir, size_t room,
                        struct pen_session_shape *shape)
{
  struct pen_model_config config;
  bool is_config;
  int rc = pen_session_load_config(&(struct pen_model_settings){.dir = model_dir},
                                   &config, &is_config);
  if (rc < 0)
    return rc;
  if (!shape->max_tokens)
    shape->max_tokens = chunk_of(room);
  shape->max_micros = max_size(shape->max_micros, 1);
  shape->max_logit_rows = max_size(shape->max_logit_rows, 1);
  shape->cache_tokens = room;
  shape->max_positions = max_size(shape->max_tokens, room);
  shape->other_bytes += (room + chunk_of(room)) * sizeof(uint32_t) +
                        config.vocab_size * sizeof(struct pen_sample_choice);
  return 0;
}

int pen_generator_init(struct pen_generator *g, struct pen_session *session,
                       const char *model_dir,
                       const struct pen_sampling *sampling, size_t room)
{
  *g = (struct pen_generator){.session = session, .sampling = *sampling,
                              .room = room, .chunk = chunk_of(room)};
  if (g->chunk > session->max_tokens)
    g->chunk = session->max_tokens;
  g->ids = calloc(room, sizeof *g->ids);
  g->positions = calloc(g->chunk, sizeof *g->positions);
  g->choices = calloc(session->config.vocab_size, sizeof *g->choices);
  if (!g->ids || !g->positions || !g->choices)
    return pen_error_set(PEN_ENOFIT, "no memory for %zu tokens", room);
  return special_ids(model_dir, "eos_token_id", g->ends,
                     PEN_GENERATE_END_TOKENS_MAX, &g->n_ends);
}

void pen_generator_done(struct pen_generator *g)
{
  free(g->ids);
  free(g->positions);
  free(g->choices);
  *g = (struct pen_generator){.session = NULL};
}

int pen_generator_set(struct pen_generator *g, const uint32_t *ids, size_t n)
{
  size_t same = 0;
  if (n == 0 || n > g->room)
    return pen_error_set(PEN_EUSAGE, "%zu tokens where 1 to %zu have room: "
                         "raise --max-length", n, g->room);
  while (same < g->n_cached && same < n && g->ids[same] == ids[same])
    same++;
  memcpy(g->ids, ids, n * sizeof *ids);
  g->n = n;
  g->n_cached = same < n ? same : n - 1; /* the last one's logits are wanted */
  return 0;
}

/* The next tokens that the cache lacks, with the logits of the last one. */
static int compute_chunk(struct pen_generator *g)
{
  struct pen_run_update none = {.apply = false};
  struct pen_run_result result;
  size_t n = g->n - g->n_cached;
  if (n > g->chunk)
    n = g->chunk;
  for (size_t t = 0; t < n; t++)
    g->positions[t] = (uint32_t)(g->n_cached + t);
  uint32_t doc_begin[] = {0, (uint32_t)n};
  struct pen_model_micro micro = {.n_tokens = n,
                                  .ids = g->ids + g->n_cached,
                                  .positions = g->positions,
                                  .n_docs = 1,
                                  .doc_begin = doc_begin,
                                  .cached = true};
  struct pen_shape shape = {
      .kind = PEN_STEP_LOGITS, .n_micros = 1, .n_tokens = (double)n};
  int rc = pen_model_set_micro(g->session->model, 0, &micro, PEN_LOGITS_LAST);
  if (rc == 0)
    rc = pen_run_step(g->session->run, &shape, g->update ? g->update : &none,
                      &result);
  if (rc == 0)
    g->n_cached += n;
  return rc;
}

static bool is_end(const struct pen_generator *g, uint32_t id)
{
  for (size_t i = 0; i < g->n_ends; i++)
    if (g->ends[i] == (int64_t)id)
      return true;
  return false;
}

/* Of logits that are no numbers any token would do. */
static int check_logits(const struct pen_generator *g)
{
  const float *logits = pen_run_logits(g->session->run);
  for (size_t i = 0; i < g->session->config.vocab_size; i++)
    if (!isfinite(logits[i]))
      return pen_error_set(PEN_ENONFINITE, "the model gives logits that are not "
                           "finite, after %zu tokens, first of id %zu: weights "
                           "hold NaN or infinity (penstock verify names the "
                           "tensor), or overflow in this --dtype", g->n, i);
  return 0;
}

int pen_generator_next(struct pen_generator *g, uint32_t *ret_id,
                       bool *ret_end)
{
  int rc = 0;
  if (g->n == g->room)
    return pen_error_set(PEN_ENOFIT, "the document is full with %zu tokens: "
                         "raise --max-length", g->room);
  while (rc == 0 && g->n_cached < g->n)
    rc = compute_chunk(g);
  if (rc == 0)
    rc = check_logits(g);
  if (rc < 0)
    return rc;
  uint32_t id = pen_sample(&g->sampling, pen_run_logits(g->session->run),
                           g->session->config.vocab_size, g->n, g->choices);
  g->ids[g->n++] = id;
  *ret_id = id;
  *ret_end = is_end(g, id);
  return 0;
}
