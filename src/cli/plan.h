/* plan.h: what the files of `penstock plan` share. */
#ifndef PEN_SRC_CLI_PLAN_H
#define PEN_SRC_CLI_PLAN_H

#include "src/cli/config.h"
#include "src/train/plan.h"

/* One question: a run on a machine. */
struct pen_plan_case {
  const struct pen_config *config;
  struct pen_train_settings settings; /* with the model and data found */
  struct pen_machine machine;
  bool has_machine; /* else nothing is simulated */
};

/* From options as they stand in `config`; model, data and eval_data are what
 * they were found to be, borrowed. */
int pen_plan_case_init(struct pen_plan_case *ret_case,
                       const struct pen_config *config, const char *model,
                       const char *data, const char *eval_data);
/* Opens and simulates.  Where the machine lacks a rate, has_machine is false from
 * then on.  -PEN_ENOFIT: *ret_plan holds what would be needed.
 * After any return pen_plan_close is right. */
int pen_plan_case_open(struct pen_plan_case *question, const char *trace,
                       struct pen_plan *ret_plan);

/* RAM that the run may take. */
uint64_t pen_plan_host_limit(const struct pen_plan_case *question);

/* Other parts or other options. */
struct pen_plan_change {
  char what[256]; /* "16.0 GiB more RAM", "--max-length 512" */
  double speedup; /* of tokens/s; 0: now it fits at all */
};
#define PEN_PLAN_CHANGES_MAX 8
/* plan_change.c: of a plan that fits: those that help, the most first. */
int pen_plan_find_changes(const struct pen_plan_case *question,
                          const struct pen_plan *plan,
                          struct pen_plan_change changes[PEN_PLAN_CHANGES_MAX],
                          size_t *ret_n);
/* plan_ways.c: of one that does not: sets of changes that make it fit, the
 * cheapest first.  0 of them: options that place bytes by name forbid it. */
int pen_plan_find_ways(const struct pen_plan_case *question,
                       const struct pen_plan *plan,
                       struct pen_plan_change changes[PEN_PLAN_CHANGES_MAX],
                       size_t *ret_n);

/* plan_print.c: tbw 0: not given; changes [n_changes] as found below. */
void pen_plan_print(const struct pen_plan *plan, uint64_t tbw,
                    const struct pen_plan_change *changes, size_t n_changes);
void pen_plan_print_unfit(const struct pen_plan *plan,
                          const struct pen_plan_change *changes,
                          size_t n_changes);
int pen_plan_print_json(const struct pen_plan *plan, uint64_t tbw, bool fits,
                        const struct pen_plan_change *changes,
                        size_t n_changes);
/* A file for `train -c` with the placement that was chosen. */
int pen_plan_print_yaml(const struct pen_config *config,
                        const struct pen_plan *plan);

/* plan_sweep.c: one line a value of --sweep NAME=VALUE[,VALUE...], and a figure
 * of them for --plot. */
int pen_plan_sweep(const struct pen_config *config, const char *model,
                   const char *data, const char *eval_data);

#endif
