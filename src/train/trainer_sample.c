/* trainer_sample.c: what the model says in the middle of its training.
 *
 * Steps of kind logits on the run's own session, greedy; the first one carries
 * the pending update, like an evaluation, so that samples change no number of
 * the run.  Main thread.  Disadvantage: training waits meanwhile. */
#include "base/error.h"
#include "base/log.h"
#include "src/train/trainer.h"

static size_t room(const struct pen_trainer *t)
{
  return t->set.n_sample_prompt + t->set.n_sample_new;
}

int pen_trainer_shape_samples(const struct pen_trainer *t,
                              struct pen_session_shape *shape)
{
  return t->set.samples_every
             ? pen_generator_shape(t->set.model.dir, room(t), shape)
             : 0;
}

int pen_trainer_open_samples(struct pen_trainer *t)
{
  struct pen_sampling greedy = {.greedy = true, .top_p = 1};
  if (!t->set.samples_every)
    return 0;
  pen_generate_warn_of_room(t->session.config.max_positions, room(t),
                            "--max-new-tokens", t->set.n_sample_prompt);
  return pen_generator_init(&t->sampler, &t->session, t->set.model.dir, &greedy,
                            room(t));
}

int pen_trainer_sample(struct pen_trainer *t, double epoch)
{
  struct pen_generator *g = &t->sampler;
  const char *text = NULL;
  bool end = false;
  uint32_t id;
  g->update = &t->update;
  g->n_cached = 0; /* other weights made what is there */
  int rc = pen_generator_set(g, t->set.sample_prompt, t->set.n_sample_prompt);
  while (rc == 0 && !end && g->n < g->room) {
    if (t->set.stop && *t->set.stop) {
      if (t->cursor.step == t->n_steps) /* else it is owed by whoever goes on */
        pen_log_warn("step %llu: told to stop, so its sample was left out",
                     (unsigned long long)t->cursor.step);
      return 0;
    }
    rc = pen_generator_next(g, &id, &end);
  }
  if (rc == -PEN_ENONFINITE) { /* steps tell whether the run is lost */
    pen_log_warn("step %llu: no sample: %s", (unsigned long long)t->cursor.step,
                 pen_error_text());
    pen_error_clear();
    return 0;
  }
  if (rc == 0 && t->set.read_sample)
    rc = t->set.read_sample(t->set.read_sample_ctx, g->ids, g->n, &text);
  if (rc < 0)
    return rc;
  pen_log_info("step %llu: sample: %s", (unsigned long long)t->cursor.step,
               text ? text : "(see sample_ids in log.jsonl)");
  return pen_runlog_append_sample(t->log, t->cursor.step, epoch, text, g->ids,
                                  g->n);
}
