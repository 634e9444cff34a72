/* nvme_sweep.c: updates in transfers of several sizes, several depths of each, and
 * the least in flight that comes near the peak. */
#include <stdlib.h>

#include "base/error.h"
#include "base/size.h"
#include "src/bench/nvme_drive.h"

#define SWEEP_SECONDS 0.2
#define PEAK_SHARE 0.95

struct point {
  size_t request, depth;
  double seconds[PEN_BENCH_RUNS_MAX], rate;
};

static int try_points(struct pen_bench_drive *d, const struct pen_bench_drives *drives,
                      struct point *points, size_t *ret_n)
{
  size_t n_runs = d->o->n_runs, n = 0;
  int rc = 0;
  for (size_t i = 0; rc == 0 && i < drives->n_requests; i++)
    for (size_t k = 0; rc == 0 && k < drives->n_depths; k++) {
      struct point *at = &points[n];
      *at = (struct point){.request = (size_t)drives->requests[i],
                           .depth = (size_t)drives->depths[k]};
      if (d->file.bytes / 4 / at->request < at->depth)
        continue; /* the file is too small for so much in flight */
      struct pen_bench_pattern p = {PEN_BENCH_UPDATE, at->request, at->depth,
                          SWEEP_SECONDS};
      rc = pen_bench_drive_measure(d, &p, n_runs, at->seconds);
      n += rc == 0;
    }
  *ret_n = n;
  return rc;
}

/* The peak's rows are held against it, and the least in flight that comes near
 * it is told. */
static void tell_points(const struct pen_bench_drive *d, struct point *points, size_t n,
                        struct pen_bench_table *table)
{
  const struct point *best = NULL, *least = NULL;
  char size[PEN_SIZE_TEXT_BYTES];
  for (size_t i = 0; i < n; i++) {
    points[i].rate = 1 / pen_bench_median(points[i].seconds, d->o->n_runs);
    best = best && best->rate >= points[i].rate ? best : &points[i];
  }
  for (size_t i = 0; i < n; i++) {
    size_t bytes = points[i].request * points[i].depth;
    bool near = points[i].rate >= PEAK_SHARE * best->rate;
    if (near && (!least || bytes < least->request * least->depth))
      least = &points[i];
    pen_size_format(points[i].request, size);
    pen_bench_add(table, "bytes/s", 1, points[i].seconds, d->o->n_runs,
                  (struct pen_bench_ceiling){n > 1 ? best->rate : 0,
                                             "the sweep's peak"},
                  "%s sweep, %s x %zu", d->dir, size, points[i].depth);
  }
  if (n < 2)
    return; /* nothing was swept */
  pen_size_format(least->request, size);
  pen_bench_note(table, "%s: %.0f %% of the peak are reached with %zu transfers "
                 "of %s in flight, both ways together", d->dir,
                 100 * least->rate / best->rate, least->depth, size);
}

int pen_bench_drive_sweep(struct pen_bench_drive *d, const struct pen_bench_drives *drives,
                 struct pen_bench_table *table)
{
  size_t n_points = drives->n_requests * drives->n_depths, n;
  if (!n_points)
    return 0;
  struct point *points = calloc(n_points, sizeof *points);
  if (!points)
    return pen_error_set(PEN_ENOFIT, "no memory for a sweep of %zu points",
                         n_points);
  int rc = try_points(d, drives, points, &n);
  if (rc == 0)
    tell_points(d, points, n, table);
  free(points);
  return rc;
}

