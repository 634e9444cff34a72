/* generate.c: one forward over everything so far for each new token.
 *
 * Main thread.  Disadvantage: without a cache of keys and values the work of a
 * token grows with the length; right, and slow for long texts. */
#include "src/train/generate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/rng.h"
#include "io/files.h"
#include "io/json.h"
#include "src/train/session.h"

#define END_TOKENS_MAX 16

struct generation {
  const struct pen_generate_settings *set;
  struct pen_session session;
  uint32_t *ids, *positions; /* [n_prompt + max_new_tokens] */
  size_t n;
  int64_t ends[END_TOKENS_MAX];
  size_t n_ends;
};

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

static int start(struct generation *g)
{
  const struct pen_generate_settings *s = g->set;
  size_t most = s->n_prompt + s->max_new_tokens;
  struct pen_session_shape shape = {.max_tokens = most,
                                    .max_micros = 1,
                                    .max_logit_rows = 1,
                                    .other_bytes = 2 * most * sizeof *g->ids,
                                    .inference = true};
  int rc = special_ids(s->model.dir, "eos_token_id", g->ends, END_TOKENS_MAX,
                       &g->n_ends);
  if (rc == 0)
    rc = pen_session_open(&g->session, &s->model, &s->machine, &shape, most);
  if (rc < 0)
    return rc;
  g->ids = calloc(most, sizeof *g->ids);
  g->positions = calloc(most, sizeof *g->positions);
  if (!g->ids || !g->positions)
    return pen_error_set(PEN_ENOFIT, "no memory for %zu tokens", most);
  for (size_t i = 0; i < most; i++)
    g->positions[i] = (uint32_t)i;
  memcpy(g->ids, s->prompt, s->n_prompt * sizeof *g->ids);
  g->n = s->n_prompt;
  rc = pen_session_start(&g->session, NULL, NULL, NULL);
  return rc < 0 ? rc : pen_session_load(&g->session);
}

static uint32_t most_likely(const float *logits, size_t n)
{
  size_t best = 0;
  for (size_t i = 1; i < n; i++)
    if (logits[i] > logits[best])
      best = i;
  return (uint32_t)best;
}

/* Inverse of the cumulative distribution at a number drawn for this place. */
static uint32_t draw(const struct generation *g, const float *logits, size_t n)
{
  double t = g->set->temperature, sum = 0;
  double most = logits[most_likely(logits, n)];
  for (size_t i = 0; i < n; i++)
    sum += exp((logits[i] - most) / t);
  double left = sum * pen_rng_double(g->set->seed, 0, g->n);
  for (size_t i = 0; i < n; i++) {
    left -= exp((logits[i] - most) / t);
    if (left < 0)
      return (uint32_t)i;
  }
  return most_likely(logits, n);
}

static int next_token(struct generation *g, uint32_t *ret_id)
{
  uint32_t doc_begin[] = {0, (uint32_t)g->n};
  struct pen_batch view = {.n_tokens = g->n,
                           .n_docs = 1,
                           .ids = g->ids,
                           .positions = g->positions,
                           .targets = NULL,
                           .doc_begin = doc_begin};
  struct pen_shape shape = {
      .kind = PEN_STEP_LOGITS, .n_micros = 1, .n_tokens = (double)g->n};
  struct pen_run_update none = {.apply = false};
  struct pen_run_result result;
  int rc = pen_session_set_micro(&g->session, 0, &view, PEN_LOGITS_LAST);
  if (rc == 0)
    rc = pen_run_step(g->session.run, &shape, &none, &result);
  if (rc < 0)
    return rc;
  const float *logits = pen_run_logits(g->session.run);
  size_t vocab = g->session.config.vocab_size;
  *ret_id = g->set->greedy ? most_likely(logits, vocab)
                           : draw(g, logits, vocab);
  return 0;
}

static bool is_end(const struct generation *g, uint32_t id)
{
  for (size_t i = 0; i < g->n_ends; i++)
    if (g->ends[i] == (int64_t)id)
      return true;
  return false;
}

int pen_generate(const struct pen_generate_settings *settings,
                 uint32_t **ret_ids, size_t *ret_n)
{
  struct generation g = {.set = settings};
  int rc = start(&g);
  for (size_t i = 0; rc == 0 && i < settings->max_new_tokens; i++) {
    uint32_t id;
    rc = next_token(&g, &id);
    if (rc < 0)
      break;
    g.ids[g.n++] = id;
    if (is_end(&g, id))
      break;
  }
  pen_session_close(&g.session);
  free(g.positions);
  if (rc < 0) {
    free(g.ids);
    return rc;
  }
  *ret_ids = g.ids;
  *ret_n = g.n;
  return 0;
}
