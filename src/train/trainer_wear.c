/* trainer_wear.c: what a run has written to drives, held against --max-write.
 *
 * Main thread, between steps.  Disadvantage: only bytes under --nvme-path
 * count, not those of checkpoints and models in the output directory; and what
 * a process wrote after its last logged step is not known to the next one. */
#include "base/error.h"
#include "base/size.h"
#include "src/train/trainer.h"

uint64_t pen_trainer_written(const struct pen_trainer *t)
{
  struct pen_store_counters counters = {.bytes_written = 0};
  if (t->store)
    pen_store_counters(t->store, &counters);
  return t->written_before + counters.bytes_written;
}

/* Only where every tile is in the store do steps commit. */
uint64_t pen_trainer_written_per_step(const struct pen_trainer *t)
{
  const struct pen_layout *l = &t->session.layout;
  const struct pen_run_plan *plan = &t->session.plan;
  uint64_t interval = t->set.commit_interval;
  if (!t->set.durable || l->n_store_tiles < l->n_tiles)
    return plan->nvme_between_bytes;
  return (plan->nvme_written_bytes + (interval - 1) * plan->nvme_between_bytes) /
         interval;
}

/* A step, and the pending update that a clean stop applies; what is updated
 * early may have to be done again in both. */
bool pen_trainer_may_write(const struct pen_trainer *t)
{
  uint64_t most = t->set.max_write;
  uint64_t step = t->session.plan.nvme_written_bytes +
                  t->session.plan.nvme_redone_bytes;
  return !most || !t->store || pen_trainer_written(t) + 2 * step <= most;
}

int pen_trainer_begin_wear(struct pen_trainer *t)
{
  char written[PEN_SIZE_TEXT_BYTES], step[PEN_SIZE_TEXT_BYTES];
  char most[PEN_SIZE_TEXT_BYTES];
  t->written_before = pen_runlog_nvme_written(t->log);
  if (t->cursor.step >= t->n_steps || pen_trainer_may_write(t))
    return 0;
  pen_size_format(pen_trainer_written(t), written);
  pen_size_format(t->session.plan.nvme_written_bytes, step);
  pen_size_format(t->set.max_write, most);
  return pen_error_set(PEN_ESTOPPED,
                       "--max-write %s leaves no room for a step: this run has "
                       "written %s to drives, a step writes %s and a clean stop "
                       "as much again; raise it to go on",
                       most, written, step);
}
