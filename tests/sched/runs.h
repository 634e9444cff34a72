/* runs.h: one little training of the toy on real lanes with a real store, and
 * all that came of it: for tests that where bytes live, and what carries them,
 * never changes a number. */
#ifndef PEN_TESTS_SCHED_RUNS_H
#define PEN_TESTS_SCHED_RUNS_H

#include "offload/run.h"
#include "tests/sched/toy.h"

#define RUNS_STEPS 6
#define RUNS_STEPS_MAX 200

/* What the run is asked to do, wherever it does it. */
struct runs_course {
  int n_steps;       /* at most RUNS_STEPS_MAX */
  double max_norm;   /* 0: never clipped */
  int poison_step;   /* this step's gradient has a NaN; -1: none */
  int poison_every;  /* and so has each of so many; 0: none */
  int drain_every;   /* a drain after each of so many; 0: none */
};

struct runs_outcome {
  int n_steps;
  double losses[2 * RUNS_STEPS_MAX];
  double norms[RUNS_STEPS_MAX];
  float *state; /* p, m, v of every element, block after block */
  size_t n_state;
  float *weights;
  uint64_t nonfinite;
  bool failed;
  float logits[TOY_MICROS_MAX * 16 * 3];
  size_t n_stood, n_redone, n_discarded; /* steps with early updates */
};

/* Where it runs; NULL: on the host. */
struct runs_on {
  const struct pen_device *device;
  /* Makes compute's calls run on the device. */
  void (*wrap)(struct pen_compute *compute);
  bool may_fail; /* a step that fails ends the training: `failed` */
};

struct runs {
  struct toy toy;
  struct pen_layout layout;
  struct pen_run_plan plan;
  struct pen_store *store;
  struct pen_topology topology;
  struct pen_division division;
  struct pen_pool *pool;
  struct pen_run *run;
  struct runs_outcome *outcome;
  bool may_fail;
  const char *dir;
  size_t threads;
  struct runs_course course;
  volatile sig_atomic_t stop; /* not 0: loading gives up */
};

/* A run that is loaded and can step, on a machine taken to have as many nodes;
 * fails through cmocka. */
void runs_init(struct runs *t, const struct pen_placement *p, enum toy_kind kind,
               size_t threads, size_t nodes, const struct runs_on *on);
void runs_done(struct runs *t);

/* A whole training of a course, with early updates in most steps where the
 * placement has any; the caller frees the outcome. */
struct runs_outcome *runs_of(const struct pen_placement *p, enum toy_kind kind,
                             size_t threads, size_t nodes,
                             const struct runs_course *course,
                             const struct runs_on *on);
/* The same of RUNS_STEPS steps. */
struct runs_outcome *runs_outcome(const struct pen_placement *p, enum toy_kind kind,
                                  size_t threads, size_t nodes,
                                  int poison_step, const struct runs_on *on);
void runs_outcome_free(struct runs_outcome *o);

/* Are they equal bit for bit?  Else *text says where they differ first. */
bool runs_same(const struct runs_outcome *got, const struct runs_outcome *want,
               char *text, size_t bytes);

#endif
