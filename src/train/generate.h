/* generate.h: a document that grows token by token, on a session with a cache
 * of keys and values. */
#ifndef PEN_SRC_TRAIN_GENERATE_H
#define PEN_SRC_TRAIN_GENERATE_H

#include "src/train/sample.h"
#include "src/train/session.h"

#define PEN_GENERATE_END_TOKENS_MAX 16
/* Tokens of a prompt that go through the model at once. */
#define PEN_GENERATE_CHUNK_TOKENS ((size_t)512)

struct pen_generator {
  struct pen_session *session; /* borrowed */
  struct pen_sampling sampling;
  size_t room;                 /* most tokens of the document */
  size_t chunk;                /* most tokens of a step */
  uint32_t *ids;               /* [room] */
  size_t n, n_cached;          /* tokens; of them in the cache */
  uint32_t *positions;         /* [chunk] */
  struct pen_sample_choice *choices; /* [vocabulary] */
  int64_t ends[PEN_GENERATE_END_TOKENS_MAX];
  size_t n_ends;
  /* What the first step applies, where gradients of a training run wait; NULL:
   * nothing waits.  Borrowed. */
  const struct pen_run_update *update;
};

/* Adds to `shape` what a generator of `room` tokens needs, of memory its own
 * included.  A shape that has max_tokens keeps them. */
int pen_generator_shape(const char *model_dir, size_t room,
                        struct pen_session_shape *shape);

/* Makes a generator on a session that was opened with such a shape and started.
 * End tokens are those of the model's generation_config.json, else config.json.
 * After any return pen_generator_done is right. */
int pen_generator_init(struct pen_generator *g, struct pen_session *session,
                       const char *model_dir,
                       const struct pen_sampling *sampling, size_t room);
void pen_generator_done(struct pen_generator *g);

/* Makes the document these n ids, at least one; -PEN_EUSAGE where there is not
 * room for them.  What it begins with that was there before is not computed
 * again. */
int pen_generator_set(struct pen_generator *g, const uint32_t *ids, size_t n);

/* The next token, which joins the document; *ret_end: it is an end token.
 * -PEN_ENOFIT when the document is full, -PEN_ENONFINITE for logits that are no
 * finite numbers. */
int pen_generator_next(struct pen_generator *g, uint32_t *ret_id,
                       bool *ret_end);

/* Warns of a document of `room` tokens that is longer than the model's positions,
 * which `option` would keep to, given `before` tokens that it does not count. */
void pen_generate_warn_of_room(size_t positions, size_t room, const char *option,
                               size_t before);

/* A model's begin token by its generation_config.json, else config.json; -1
 * where neither has one. */
int pen_generate_begin_token(const char *model_dir, int64_t *ret_id);

#endif
