/* traffic.c: slots, each a buffer with one transfer in flight.
 *
 * Invariant: of two transfers in flight that touch the same bytes neither
 * writes.  Slots that would are left empty until the other is done.  Disadvantage: one thread issues and checks everything, so a very
 * fast drive is held back by one core. */
#include "src/bench/traffic.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/error.h"
#include "io/transfer.h"
#include "kernels/device.h"

#define FILL_DEPTH 4

struct slot {
  bool busy;
  bool write;      /* what it does, or does next */
  uint64_t offset; /* where, while busy */
};

struct pen_bench_traffic {
  struct pen_bench_file *file;
  struct pen_bench_traffic_options o;
  struct pen_transfer_queue *queue;
  unsigned char *buffers; /* [depth, request] */
  struct slot *slots;     /* [depth] */
  struct pen_transfer_done *done; /* [depth] */
  size_t n_units;          /* transfers in a region: the file, or half of it */
  uint64_t n_reads, n_writes; /* begun */
  size_t n_flying;
};

const char *pen_bench_way_name(enum pen_bench_way way)
{
  static const char *const names[] = {"read", "written", "read and written"};
  return names[way];
}

void pen_bench_traffic_close(struct pen_bench_traffic **traffic)
{
  struct pen_bench_traffic *t = *traffic;
  if (!t)
    return;
  pen_transfer_queue_free(&t->queue);
  void *buffers = t->buffers;
  pen_device_host_free(&buffers, t->o.depth * t->o.request);
  free(t->slots);
  free(t->done);
  free(t);
  *traffic = NULL;
}

/* Every second slot of an update begins with a write, of new bytes: if all read
 * first, they would all write next, and so on, and the drive would do one thing
 * at a time. */
static void begin_slot(struct pen_bench_traffic *t, size_t i)
{
  struct slot *slot = &t->slots[i];
  slot->write = t->o.way == PEN_BENCH_WRITE ||
                (t->o.way == PEN_BENCH_UPDATE && i % 2);
  if (slot->write)
    pen_bench_file_fill(t->file, t->buffers + i * t->o.request, t->o.request);
}

static int take_memory(struct pen_bench_traffic *t)
{
  size_t bytes = t->o.depth * t->o.request;
  t->slots = calloc(t->o.depth, sizeof *t->slots);
  t->done = calloc(t->o.depth, sizeof *t->done);
  void *buffers = NULL; /* as a run's: small pages would cut requests small */
  if (!t->slots || !t->done || pen_device_host_alloc(bytes, &buffers) < 0)
    return pen_error_set(PEN_ENOFIT, "no memory for %zu transfers of %zu bytes; "
                         "lower --request-size or --io-depth",
                         t->o.depth, t->o.request);
  t->buffers = buffers;
  for (size_t i = 0; i < t->o.depth; i++)
    begin_slot(t, i);
  struct pen_engine_region region = {t->buffers, bytes};
  bool fits = bytes <= PEN_ENGINE_REGION_BYTES_MAX;
  return pen_transfer_queue_create(t->file->engine, t->o.depth, &t->file->file,
                                   1, &region, fits, NULL, NULL, &t->queue);
}

int pen_bench_traffic_open(struct pen_bench_file *file,
                           const struct pen_bench_traffic_options *options,
                           struct pen_bench_traffic **ret_traffic)
{
  bool halves = options->way == PEN_BENCH_UPDATE;
  uint64_t region = file->bytes / (halves ? 2 : 1);
  uint64_t n_units = region / options->request;
  if (n_units < 2 * options->depth)
    return pen_error_set(PEN_EUSAGE, "%zu transfers of %zu bytes in flight need "
                         "a file of %" PRIu64 " bytes, --bench-size makes one of %"
                         PRIu64,
                         options->depth, options->request,
                         (uint64_t)options->request * options->depth * 2 *
                             (halves ? 2 : 1),
                         file->bytes);
  struct pen_bench_traffic *t = calloc(1, sizeof *t);
  if (!t)
    return pen_error_set(PEN_ENOFIT, "no memory to measure a drive with");
  t->file = file;
  t->o = *options;
  t->n_units = (size_t)n_units;
  int rc = take_memory(t);
  if (rc < 0)
    pen_bench_traffic_close(&t);
  else
    *ret_traffic = t;
  return rc;
}

/* ---- moving ---- */

/* Where transfer `number` of this direction goes. */
static uint64_t place(const struct pen_bench_traffic *t, bool write,
                      uint64_t number)
{
  uint64_t unit = number % t->n_units;
  if (t->o.way == PEN_BENCH_UPDATE && (number / t->n_units + write) % 2)
    unit += t->n_units;
  return unit * t->o.request;
}

/* A slow transfer of the last lap may still be there. */
static bool is_taken(const struct pen_bench_traffic *t, uint64_t offset,
                     bool write)
{
  for (size_t i = 0; i < t->o.depth; i++)
    if (t->slots[i].busy && t->slots[i].offset == offset &&
        (write || t->slots[i].write))
      return true;
  return false;
}

/* Begins what the slot does next, unless it has to wait for another. */
static int begin(struct pen_bench_traffic *t, size_t i)
{
  struct slot *slot = &t->slots[i];
  unsigned char *buffer = t->buffers + i * t->o.request;
  uint64_t *number = slot->write ? &t->n_writes : &t->n_reads;
  slot->offset = place(t, slot->write, *number);
  if (is_taken(t, slot->offset, slot->write))
    return 0;
  if (slot->write && t->o.fresh)
    pen_bench_file_fill(t->file, buffer, t->o.request);
  if (slot->write)
    pen_bench_file_stamp(t->file, buffer, t->o.request, slot->offset);
  struct pen_transfer transfer = {.write = slot->write, .offset = slot->offset,
                                  .buffer = buffer, .bytes = t->o.request,
                                  .tag = i};
  int rc = pen_transfer_submit(t->queue, &transfer);
  if (rc < 0)
    return rc;
  slot->busy = true;
  ++*number;
  t->n_flying++;
  return 0;
}

static int begin_all(struct pen_bench_traffic *t)
{
  int rc = 0;
  for (size_t i = 0; rc == 0 && t->n_flying < t->o.depth && i < t->o.depth; i++)
    if (!t->slots[i].busy)
      rc = begin(t, i);
  return rc;
}

static int finish(struct pen_bench_traffic *t, const struct pen_transfer_done *d)
{
  struct slot *slot = &t->slots[d->tag];
  int rc = d->code;
  slot->busy = false;
  t->n_flying--;
  if (rc == 0 && !slot->write && !t->o.blind)
    rc = pen_bench_file_check(t->file, t->buffers + d->tag * t->o.request,
                              t->o.request, slot->offset, t->o.whole);
  if (t->o.way == PEN_BENCH_UPDATE)
    slot->write = !slot->write;
  return rc;
}

static int reap(struct pen_bench_traffic *t, uint64_t *bytes)
{
  int n = pen_transfer_reap(t->queue, 1, t->o.depth, t->done);
  int rc = n < 0 ? n : 0;
  for (int i = 0; i < n; i++) {
    int code = finish(t, &t->done[i]);
    rc = rc < 0 ? rc : code;
    *bytes += t->o.request;
  }
  return rc;
}

int pen_bench_traffic_move(struct pen_bench_traffic *traffic, uint64_t bytes,
                           double seconds, uint64_t *ret_bytes,
                           double *ret_seconds)
{
  struct pen_bench_traffic *t = traffic;
  uint64_t start = pen_clock_ns(), moved = 0;
  double passed = 0;
  int rc = begin_all(t);
  while (rc == 0 && (moved < bytes || passed < seconds)) {
    if (t->o.stop && *t->o.stop)
      return pen_error_set(PEN_ESTOPPED, "stopped; what was measured until then "
                           "is not kept, and the file is gone");
    rc = reap(t, &moved);
    if (rc == 0)
      rc = begin_all(t);
    passed = (double)(pen_clock_ns() - start) * 1e-9;
  }
  if (rc < 0)
    return rc;
  *ret_bytes = moved;
  *ret_seconds = passed;
  return 0;
}

int pen_bench_traffic_sync(struct pen_bench_traffic *traffic,
                           double *ret_seconds)
{
  uint64_t moved = 0;
  int rc = 0;
  while (rc == 0 && traffic->n_flying)
    rc = reap(traffic, &moved);
  uint64_t start = pen_clock_ns();
  if (rc == 0)
    rc = traffic->file->engine->sync(traffic->file->file);
  if (rc == 0)
    *ret_seconds = (double)(pen_clock_ns() - start) * 1e-9;
  return rc;
}

/* ---- the whole file ---- */

/* `depth` transfers stay in flight beyond the last one that counts: they have
 * gone round, and write or read the file's beginning again. */
static int go_round(struct pen_bench_file *file, enum pen_bench_way way,
                    const volatile sig_atomic_t *stop)
{
  bool small = file->bytes < 2 * FILL_DEPTH * PEN_BENCH_FILL_BYTES;
  const struct pen_bench_traffic_options o = {
      .way = way, .depth = FILL_DEPTH, .fresh = true, .whole = true, .stop = stop,
      .request = small ? PEN_BENCH_GRAIN : PEN_BENCH_FILL_BYTES};
  struct pen_bench_traffic *t = NULL;
  uint64_t moved;
  double seconds;
  int rc = pen_bench_traffic_open(file, &o, &t);
  if (rc == 0)
    rc = pen_bench_traffic_move(t, file->bytes, 0, &moved, &seconds);
  if (rc == 0)
    rc = pen_bench_traffic_sync(t, &seconds);
  pen_bench_traffic_close(&t);
  return rc;
}

int pen_bench_traffic_fill(struct pen_bench_file *file,
                           const volatile sig_atomic_t *stop)
{
  return go_round(file, PEN_BENCH_WRITE, stop);
}

int pen_bench_traffic_verify(struct pen_bench_file *file,
                             const volatile sig_atomic_t *stop)
{
  return go_round(file, PEN_BENCH_READ, stop);
}
