/* bench.h: measures what this machine can do, with our own kernels and engines,
 * and puts it into a machine profile. */
#ifndef PEN_SRC_BENCH_BENCH_H
#define PEN_SRC_BENCH_BENCH_H

#include <stddef.h>
#include <stdint.h>

#include "base/pool.h"
#include "kernels/adamw.h"
#include "kernels/isa.h"
#include "offload/machine.h"

#define PEN_BENCH_ROWS_MAX 512
#define PEN_BENCH_NOTES_MAX 64
#define PEN_BENCH_RUNS_MAX 64

/* Elements that one item of the pool works on. */
#define PEN_BENCH_RANGE_ELEMS ((size_t)1 << 18)

struct pen_bench_row {
  char name[400]; /* with a directory, where there is one */
  const char *unit; /* static text: what median, least and most count */
  double median, least, most;
  double of_ceiling; /* median as a share of the ceiling above it; 0: it is one */
  char ceiling[80];  /* what that is */
  size_t n_runs;
};

struct pen_bench_table {
  struct pen_bench_row rows[PEN_BENCH_ROWS_MAX];
  size_t n_rows;
  char notes[PEN_BENCH_NOTES_MAX][900]; /* what numbers do not say */
  size_t n_notes;
};

/* Sorts them; the middle one, of an even number the upper. */
double pen_bench_median(double *values, size_t n);

/* What a row is held against. */
struct pen_bench_ceiling {
  double rate; /* 0: nothing */
  const char *name;
};
#define PEN_BENCH_NO_CEILING ((struct pen_bench_ceiling){0, ""})

/* Adds a row from amount / seconds [n_runs] (sorted by this).  Returns the
 * median rate. */
double pen_bench_add(struct pen_bench_table *table, const char *unit,
                     double amount, double *seconds, size_t n_runs,
                     struct pen_bench_ceiling ceiling, const char *format, ...)
    __attribute__((format(printf, 7, 8)));
void pen_bench_note(struct pen_bench_table *table, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#define PEN_BENCH_LIST_MAX 64

struct pen_bench_options {
  size_t threads; /* the most of the list, at least 1: what the profile says */
  size_t thread_list[PEN_BENCH_LIST_MAX], n_thread_list; /* rising */
  enum pen_isa isa;
  size_t n_runs; /* 1 .. PEN_BENCH_RUNS_MAX, after one that is not counted */
  uint64_t bytes; /* of RAM, or of a file on each drive */
};

/* Each fills its part of the profile and adds its rows. */
int pen_bench_memory(const struct pen_bench_options *options,
                     struct pen_bench_table *table,
                     struct pen_machine *machine);
int pen_bench_gemm(const struct pen_bench_options *options,
                   struct pen_bench_table *table, struct pen_machine *machine);
/* Attention, and passes over the elements of a layer. */
int pen_bench_passes(const struct pen_bench_options *options,
                     struct pen_bench_table *table,
                     struct pen_machine *machine);
/* Beside the memory's in-place speed, measured in turn with it. */
int pen_bench_adam(const struct pen_bench_options *options,
                   struct pen_bench_table *table, struct pen_machine *machine);

/* CUDA device `number`: its link, memory and products; -PEN_EUNSUPPORTED, saying
 * why, where there is none.  The profile's link is its own from then on. */
int pen_bench_device(const struct pen_bench_options *options, uint64_t number,
                     struct pen_bench_table *table, struct pen_machine *machine);

/* Its link alone, pageable memory and small copies too. */
int pen_bench_device_link(const struct pen_bench_options *options,
                          uint64_t number, struct pen_bench_table *table,
                          struct pen_machine *machine);

/* Seconds of one pass of a[i], b[i], c[i] *= factor, in place, over n fp32
 * elements each, by all workers: 24 bytes of traffic an element, and the access
 * pattern nearest to an optimizer's that does no more. */
double pen_bench_update_pass(struct pen_pool *pool, size_t n, float *a,
                             float *b, float *c);

/* AdamW over long arrays [n] each. */
struct pen_bench_adamw {
  enum pen_isa isa;
  struct pen_adamw_params params;
  size_t n;
  float *p, *m, *v;
  uint16_t *grad, *weight;
};

/* Sets the level and the constants of a step like any other. */
int pen_bench_adamw_init(enum pen_isa isa, struct pen_bench_adamw *job);
/* Seconds of one update of all of them. */
double pen_bench_adamw_pass(struct pen_pool *pool, struct pen_bench_adamw *job);

/* The same step on the compact formats, in the memory of such a job, whose numbers
 * it spoils.  ceiling: bytes/s of memory in place; 0: not known. */
void pen_bench_state(const struct pen_bench_options *options,
                     struct pen_pool *pool, const struct pen_bench_adamw *adamw,
                     double ceiling, struct pen_bench_table *table,
                     struct pen_machine *machine);

/* Touched pages, huge ones where there are, at addresses that do not lie a
 * power of two apart; PEN_ENOFIT.  bare: touched by nobody yet.  Free with
 * pen_bench_unmap. */
int pen_bench_map(size_t bytes, void **ret_memory);
int pen_bench_map_bare(size_t bytes, void **ret_memory);
void pen_bench_unmap(void **memory, size_t bytes);

#endif
