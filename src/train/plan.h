/* plan.h: what a training run would take, how long its steps would last and
 * what they would do to drives, before anything is written. */
#ifndef PEN_SRC_TRAIN_PLAN_H
#define PEN_SRC_TRAIN_PLAN_H

#include "offload/simulate.h"
#include "src/train/settings.h"
#include "src/train/trainer.h"

/* What if one part of the machine were twice as fast? */
struct pen_plan_better {
  const char *what; /* static text */
  double speedup;   /* of the step */
};
#define PEN_PLAN_BETTER_MAX 6

struct pen_plan {
  struct pen_trainer trainer; /* as train would open it; never run */
  double tokens_per_step;     /* inputs, of a full step */
  size_t micros_per_step;
  uint64_t model_bytes, checkpoint_bytes; /* of one */
  uint64_t written_per_step;  /* to all drives together */
  char why_no_time[256];      /* "": nothing stood against it; the caller's */
  bool simulated;             /* only then: */
  struct pen_machine machine; /* its drives are those of --nvme-path */
  struct pen_simulate_result step;
  double exposed_seconds; /* of it: less if there were no update */
  struct pen_plan_better better[PEN_PLAN_BETTER_MAX];
  size_t n_better;
};

/* Opens the model, or only its config.json, and the data, if there are any
 * (else every sequence is as long as allowed), and lays out everything that
 * train would.  -PEN_ENOFIT: the memory table is filled all the same.  Nothing
 * is written.  After any return pen_plan_close is right. */
int pen_plan_open(const struct pen_train_settings *settings,
                  struct pen_plan *ret_plan);

/* Simulates a training step in full flight on `machine`; where settings say
 * what_if, that alone: nothing of what is exposed or would be better.  -PEN_EUSAGE where the
 * machine says nothing of a drive or a rate.  trace: a timeline file, or
 * NULL. */
int pen_plan_simulate(struct pen_plan *plan, const struct pen_machine *machine,
                      const char *trace);

/* One step alone, on any machine with as many drives as --nvme-path names. */
int pen_plan_time(const struct pen_plan *plan, const struct pen_machine *machine,
                  struct pen_simulate_result *ret_result);

void pen_plan_close(struct pen_plan *plan);

#endif
