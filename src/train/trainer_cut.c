/* trainer_cut.c: how a step is cut into micro-batches, chosen where the user left
 * it open: at a run's first start only, since it changes bits, and kept with
 * the run.
 *
 * Each cut is the whole session, placed and planned, and closed again but for
 * the one that is taken.  Main thread.  Disadvantage: the simulator takes a
 * product's rate to be the same for few rows as for many, so a smaller cut must
 * gain much. */
#include <stdlib.h>

#include "base/error.h"
#include "src/train/trainer.h"

#define GAIN_OF_HALVING 0.05 /* of the step: less is left as it is */

/* The same step in micro-batches of `batch` sequences. */
static void set_cut(struct pen_trainer *t, uint64_t batch, uint64_t step)
{
  uint64_t n = t->train.order.n_sequences;
  t->set.batch_sequences = batch;
  t->set.accumulation = step / batch;
  t->train.order.batch_sequences = batch < n ? batch : n;
  t->train.order.accumulation = t->set.accumulation;
  t->eval.order.batch_sequences = t->train.order.batch_sequences;
  t->eval.order.accumulation = t->set.accumulation;
}

static void close_session(struct pen_trainer *t)
{
  pen_session_close(&t->session);
  pen_engine_release(&t->session.engine);
  pen_batch_free(&t->batch);
  free(t->ids);
  t->ids = NULL;
}

/* *ret_found: with the seconds of the step; 0: nothing says.  -PEN_ENOFIT. */
static int try_cut(struct pen_trainer *t, uint64_t batch, uint64_t step,
                   struct pen_search_result *ret_found)
{
  set_cut(t, batch, step);
  int rc = pen_trainer_open_session(t, true);
  *ret_found = t->session.found;
  close_session(t);
  return rc;
}

/* From the whole batch down by halves: the first that fits, then others while
 * each is enough faster.  Nothing fits: the smallest. */
static int choose(struct pen_trainer *t, uint64_t *ret_batch)
{
  uint64_t step = t->set.batch_sequences * t->set.accumulation;
  uint64_t best = 0, batch = t->set.batch_sequences, smallest = batch;
  for (;; batch /= 2) {
    struct pen_search_result found;
    double wanted = t->known.seconds * (1 - GAIN_OF_HALVING);
    int rc = try_cut(t, batch, step, &found);
    if (rc < 0 && rc != -PEN_ENOFIT)
      return rc;
    pen_error_clear();
    smallest = batch;
    if (rc == 0 && (!best || (found.seconds > 0 && found.seconds < wanted))) {
      best = batch;
      t->known = found;
    } else if (best) {
      break;
    }
    if ((best && t->known.seconds == 0) || batch % 2)
      break;
  }
  *ret_batch = best ? best : smallest;
  set_cut(t, *ret_batch, step);
  return 0;
}

int pen_trainer_open_cut(struct pen_trainer *t)
{
  uint64_t asked = t->set.batch_sequences, batch = asked;
  if (t->resumes || t->set.gave_batch || asked == 1)
    return pen_trainer_open_session(t, false);
  int rc = choose(t, &batch);
  if (rc == 0 && batch != asked)
    t->usual_batch = asked;
  return rc < 0 ? rc : pen_trainer_open_session(t, false);
}
