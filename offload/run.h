/* run.h: executes schedules on real lanes: the one place where tasks become
 * work.
 *
 * Threads: create, step, load and free on one thread (main), which is also the
 * compute lane; one thread each for upload, download, update, read and write,
 * and where the first three lanes are queues of a device one more for each.
 * After create, a step takes no memory. */
#ifndef PEN_OFFLOAD_RUN_H
#define PEN_OFFLOAD_RUN_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/pool.h"
#include "base/trace.h"
#include "io/store.h"
#include "kernels/adamw.h"
#include "kernels/device.h"
#include "offload/division.h"
#include "offload/schedule.h"

struct pen_run;

/* Called on the write lane, while main waits in pen_run_step; `stop` is looked at
 * by main. */
struct pen_run_hooks {
  void *ctx;
  /* Before a commit: what must be durable before the state it belongs to; NULL:
   * nothing. */
  int (*before_commit)(void *ctx);
  /* While a step with shape.save runs; the pointers are borrowed for the call. */
  /* state: the arrays of tile->elems, as the layout's format has them; half:
   * its halves, NULL where it has none. */
  int (*save_tile)(void *ctx, uint32_t tile, const void *state,
                   const void *half);
  int (*save_block)(void *ctx, uint32_t block, const void *weights);
  /* Not 0: pen_run_create and pen_run_load give up, within a tile, -PEN_ESTOPPED;
   * NULL: never. */
  const volatile sig_atomic_t *stop;
  bool ends_steps; /* a step too, between tasks of compute; after that the run is
                      good for nothing */
};

struct pen_run_options {
  const struct pen_workload *workload; /* all borrowed until free */
  const struct pen_compute *compute;
  const struct pen_layout *layout;
  const struct pen_device *device;
  struct pen_store *store;   /* NULL where nothing lives on NVMe */
  struct pen_pool *update_pool;
  const struct pen_division *division; /* NULL: threads and memory anywhere */
  struct pen_trace *trace;   /* NULL: none; else PEN_LANES lanes */
  struct pen_run_hooks hooks;
  enum pen_isa isa;
  size_t io_depth;           /* transfers in flight per I/O lane */
};

/* Bytes pen_run_create will take for tables, per tier arenas aside, from the
 * schedules of every kind of step, built and, with `proves`, checked.  Also the
 * work of the largest training step. */
struct pen_run_plan {
  size_t table_bytes;
  size_t n_tasks, n_accesses;
  struct pen_cost step_cost;
  uint64_t nvme_written_bytes; /* by a training step in full flight that commits */
  uint64_t nvme_between_bytes; /* by one that does not */
  uint64_t nvme_redone_bytes; /* and on top if its update is done again */
};
int pen_run_plan(const struct pen_workload *workload,
                 const struct pen_layout *layout, bool proves,
                 struct pen_run_plan *ret_plan);

/* Takes all memory, starts the lanes.  Caller owns *ret_run. */
int pen_run_create(const struct pen_run_options *options,
                   const struct pen_run_plan *plan, struct pen_run **ret_run);
/* Stops the lanes; NULL is fine; sets NULL. */
void pen_run_free(struct pen_run **run);

/* Fills every tile's state through `load` and makes the weights from it.
 * load: p, m, v [n] to fill for elements [begin, begin + n) of a tile, all of
 * them at once where the format is fp32, in pieces where it is not;
 * PEN_RUN_IN_STORE says that they were read from the run's store, where they
 * need not be written again. */
#define PEN_RUN_IN_STORE 1
typedef int (*pen_run_loader)(void *ctx, uint32_t tile, size_t begin, size_t n,
                              float *p, float *m, float *v);
int pen_run_load(struct pen_run *run, pen_run_loader load, void *ctx);

/* The update that the next step applies to gradients that wait; ignored when
 * none do. */
struct pen_run_update {
  bool apply; /* false: discard them (non-finite) */
  struct pen_adamw_params params;
  uint64_t seed, number; /* random rounding is a function of both: the run's
                            seed, and which applied update it is */
  /* Of a TRAIN step that speculates, what its own update will be unless it is
   * clipped or skipped: where params and number of the next step's update have
   * other bits, that is done again. */
  struct pen_adamw_params guess;
  uint64_t guess_number;
  bool commit; /* once they are done, if any state is in the store; a step
                  that saves always commits */
  uint64_t step; /* what the commit says */
  const void *meta; /* borrowed until the step ends */
  size_t meta_bytes;
};

struct pen_run_result {
  double loss_sum;          /* over target tokens of the step */
  double sumsq;             /* of the stored gradient (TRAIN) */
  uint64_t nonfinite;       /* gradient elements (TRAIN) */
  uint32_t nonfinite_block; /* the first with any; PEN_NONE */
  uint64_t wall_ns;
  uint64_t busy_ns[PEN_LANES];
};

/* Builds, checks and runs one step.  A failure leaves the run unusable except
 * for free; what was committed stays. */
int pen_run_step(struct pen_run *run, const struct pen_shape *shape,
                 const struct pen_run_update *update,
                 struct pen_run_result *ret_result);
/* Do gradients wait for an update? */
bool pen_run_is_pending(const struct pen_run *run);
/* Did the newest step update blocks during backward?  And does that stand if
 * `update` is what is applied next? */
bool pen_run_is_speculated(const struct pen_run *run);
bool pen_run_stands(const struct pen_run *run,
                    const struct pen_run_update *update);

/* After a TRAIN or EVAL step: the loss of each micro-batch, summed over its
 * targets. */
void pen_run_losses(struct pen_run *run, size_t n_micros, double *ret_losses);

/* After a LOGITS step: what compute wrote.  Borrowed until the next step. */
const float *pen_run_logits(struct pen_run *run);
/* Bytes of the host arena that the device copies from and to at full speed. */
size_t pen_run_pinned_bytes(const struct pen_run *run);
/* How many pages of the arena in RAM were looked at, and how many of them lie on
 * the node that the division wants; -errno where the kernel does not tell. */
int pen_run_look(const struct pen_run *run, size_t *ret_n_pages,
                 size_t *ret_n_there);
/* One line on each I/O lane's engine, or NULL. */
const char *pen_run_io_note(const struct pen_run *run);

#endif
