/* link.c: copies between host and device, through the calls that a run makes.
 *
 * Pinned copies are timed by the device, between marks, but for both ways at
 * once; pageable ones by the clock, since a driver copies them through buffers of
 * its own before the call returns: both ways at once takes a second thread.
 * Disadvantage: one size of large copies, one of small ones. */
#include "src/bench/link.h"

#include <math.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/thread.h"

#define SMALL_BYTES 4096
#define SMALL_COPIES 64 /* one after the other, in a run */

/* ret_seconds NULL: of work that was not timed from a mark's begin. */
static int end(const struct pen_bench_link *l, enum pen_device_queue queue,
               double *ret_seconds)
{
  uint64_t ns = 0;
  int rc = l->device->marks->set(l->device, queue, 0);
  if (rc == 0)
    rc = l->device->marks->sync(l->device, queue, 0, ret_seconds ? &ns : NULL);
  if (ret_seconds)
    *ret_seconds = fmax((double)ns, 1) * 1e-9;
  return rc;
}

/* `memory`: either of the two of the host. */
static int copy(const struct pen_bench_link *l, char *memory,
                enum pen_device_queue queue, size_t bytes)
{
  size_t half = l->bytes / 2;
  return queue == PEN_DEVICE_UPLOAD
             ? l->device->upload(l->device, l->arena, memory, bytes)
             : l->device->download(l->device, memory + half, l->arena + half,
                                   bytes);
}

/* ---- pinned ---- */

static int time_pinned(const struct pen_bench_link *l,
                       enum pen_device_queue queue, double *ret_seconds)
{
  int rc = l->device->marks->begin(l->device, queue, 0);
  if (rc == 0)
    rc = copy(l, l->host, queue, l->bytes / 2);
  return rc < 0 ? rc : end(l, queue, ret_seconds);
}

static int time_both_pinned(const struct pen_bench_link *l, double *ret_seconds)
{
  uint64_t start = pen_clock_ns();
  int rc = copy(l, l->host, PEN_DEVICE_UPLOAD, l->bytes / 2);
  if (rc == 0)
    rc = copy(l, l->host, PEN_DEVICE_DOWNLOAD, l->bytes / 2);
  if (rc == 0)
    rc = end(l, PEN_DEVICE_UPLOAD, NULL);
  if (rc == 0)
    rc = end(l, PEN_DEVICE_DOWNLOAD, NULL);
  *ret_seconds = (double)(pen_clock_ns() - start) * 1e-9;
  return rc;
}

int pen_bench_link_pinned(const struct pen_bench_options *options,
                          const struct pen_bench_link *link,
                          struct pen_bench_table *table,
                          struct pen_machine *machine)
{
  double up[PEN_BENCH_RUNS_MAX], down[PEN_BENCH_RUNS_MAX],
      both[PEN_BENCH_RUNS_MAX], warm;
  size_t n = options->n_runs;
  double half = (double)(link->bytes / 2);
  int rc = time_both_pinned(link, &warm);
  for (size_t i = 0; rc == 0 && i < n; i++) {
    rc = time_pinned(link, PEN_DEVICE_UPLOAD, &up[i]);
    if (rc == 0)
      rc = time_pinned(link, PEN_DEVICE_DOWNLOAD, &down[i]);
    if (rc == 0)
      rc = time_both_pinned(link, &both[i]);
  }
  if (rc < 0)
    return rc;
  machine->upload = pen_bench_add(table, "bytes/s", half, up, n,
                                  PEN_BENCH_NO_CEILING, "copy to the device");
  machine->download = pen_bench_add(table, "bytes/s", half, down, n,
                                    PEN_BENCH_NO_CEILING, "copy from the device");
  pen_bench_add(table, "bytes/s", 2 * half, both, n,
                (struct pen_bench_ceiling){machine->upload + machine->download,
                                           "their sum alone"},
                "copies both ways at once");
  return 0;
}

/* ---- pageable ---- */

struct way {
  const struct pen_bench_link *link;
  enum pen_device_queue queue;
  int code;
  struct pen_error error;
};

static void run_way(void *arg)
{
  struct way *w = arg;
  w->code = copy(w->link, w->link->pageable, w->queue, w->link->bytes / 2);
  if (w->code == 0)
    w->code = end(w->link, w->queue, NULL);
  pen_error_take(&w->error);
}

static int time_pageable(const struct pen_bench_link *l,
                         enum pen_device_queue queue, double *ret_seconds)
{
  uint64_t start = pen_clock_ns();
  struct way way = {.link = l, .queue = queue};
  run_way(&way);
  *ret_seconds = (double)(pen_clock_ns() - start) * 1e-9;
  return way.code < 0 ? pen_error_put(&way.error) : 0;
}

static int time_both_pageable(const struct pen_bench_link *l,
                              double *ret_seconds)
{
  struct way up = {.link = l, .queue = PEN_DEVICE_UPLOAD};
  struct way down = {.link = l, .queue = PEN_DEVICE_DOWNLOAD};
  struct pen_thread thread = {.running = false};
  uint64_t start = pen_clock_ns();
  int rc = pen_thread_create(&thread, "download", run_way, &down);
  if (rc < 0)
    return rc;
  run_way(&up);
  pen_thread_join(&thread);
  *ret_seconds = (double)(pen_clock_ns() - start) * 1e-9;
  if (up.code < 0)
    return pen_error_put(&up.error);
  return down.code < 0 ? pen_error_put(&down.error) : 0;
}

/* Each waited for. */
static int time_small(const struct pen_bench_link *l, double *ret_seconds)
{
  uint64_t start = pen_clock_ns();
  int rc = 0;
  for (int i = 0; rc == 0 && i < SMALL_COPIES; i++) {
    rc = copy(l, l->host, PEN_DEVICE_UPLOAD, SMALL_BYTES);
    if (rc == 0)
      rc = end(l, PEN_DEVICE_UPLOAD, NULL);
  }
  *ret_seconds = (double)(pen_clock_ns() - start) * 1e-9;
  return rc;
}

int pen_bench_link_pageable(const struct pen_bench_options *options,
                            const struct pen_bench_link *link,
                            struct pen_bench_table *table,
                            const struct pen_machine *machine)
{
  const struct pen_machine *m = machine;
  double up[PEN_BENCH_RUNS_MAX], down[PEN_BENCH_RUNS_MAX],
      both[PEN_BENCH_RUNS_MAX], small[PEN_BENCH_RUNS_MAX], warm;
  size_t n = options->n_runs;
  double half = (double)(link->bytes / 2);
  int rc = time_both_pageable(link, &warm);
  for (size_t i = 0; rc == 0 && i < n; i++) {
    rc = time_pageable(link, PEN_DEVICE_UPLOAD, &up[i]);
    if (rc == 0)
      rc = time_pageable(link, PEN_DEVICE_DOWNLOAD, &down[i]);
    if (rc == 0)
      rc = time_both_pageable(link, &both[i]);
    if (rc == 0)
      rc = time_small(link, &small[i]);
  }
  if (rc < 0)
    return rc;
  pen_bench_add(table, "bytes/s", half, up, n,
                (struct pen_bench_ceiling){m->upload, "pinned memory"},
                "copy to the device, pageable memory");
  pen_bench_add(table, "bytes/s", half, down, n,
                (struct pen_bench_ceiling){m->download, "pinned memory"},
                "copy from the device, pageable memory");
  pen_bench_add(table, "bytes/s", 2 * half, both, n,
                (struct pen_bench_ceiling){m->upload + m->download,
                                           "both ways alone, pinned memory"},
                "copies both ways at once, pageable memory");
  pen_bench_add(table, "copies/s", SMALL_COPIES, small, n, PEN_BENCH_NO_CEILING,
                "copy of %d bytes to the device, each waited for", SMALL_BYTES);
  return 0;
}
