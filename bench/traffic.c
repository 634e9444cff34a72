/* traffic.c: the traffic of `penstock bench nvme` on a file that others may use in
 * between, with a list of the requests that the drive was given.
 *
 * Prints a path that leads to the file as long as this runs: it has no name of
 * its own.  Then each line WAY REQUEST DEPTH BYTES of standard input (way: 0
 * reads, 1 writes, 2 both; request: bytes of a transfer) moves that many bytes,
 * fewer if SIGINT comes, and is answered with what was moved and how many requests
 * were in flight at most; the end of input ends it, and the file.  In the file
 * --list each request is a line then: r or w, offset and bytes, in the order in
 * which the engine got them.  Disadvantage: what is read is not compared, since
 * others write. */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/error.h"
#include "bench/arguments.h"
#include "bench/report.h"
#include "src/bench/traffic.h"

/* ---- what the drive is given ---- */

#define LIST_MAX ((size_t)1 << 20) /* requests of a slice that are noted */

/* An engine in front of another: it notes, and hands on. */
static struct recorder {
  const struct pen_engine *inner;
  struct pen_engine engine; /* inner, but for the rings it makes */
  struct pen_engine ring;   /* theirs, but for these two hooks */
  int (*submit)(struct pen_engine_ring *ring,
                const struct pen_engine_request *requests, size_t n);
  int (*reap)(struct pen_engine_ring *ring, size_t min, size_t max,
              struct pen_engine_completion *ret_completions);
  struct pen_engine_request *list; /* [LIST_MAX] */
  size_t n, n_flying, n_flying_max;
  uint64_t bytes; /* completed */
} recorder;

static int record_submit(struct pen_engine_ring *ring,
                         const struct pen_engine_request *requests, size_t n)
{
  struct recorder *r = &recorder;
  for (size_t i = 0; i < n && r->n < LIST_MAX; i++)
    r->list[r->n++] = requests[i];
  r->n_flying += n;
  r->n_flying_max = r->n_flying > r->n_flying_max ? r->n_flying : r->n_flying_max;
  return r->submit(ring, requests, n);
}

static int record_reap(struct pen_engine_ring *ring, size_t min, size_t max,
                       struct pen_engine_completion *ret_completions)
{
  struct recorder *r = &recorder;
  int n = r->reap(ring, min, max, ret_completions);
  for (int i = 0; i < n; i++)
    r->bytes += ret_completions[i].result > 0
                    ? (uint64_t)ret_completions[i].result : 0;
  r->n_flying -= n > 0 ? (size_t)n : 0;
  return n;
}

static int record_create(const struct pen_engine *engine, size_t depth,
                         struct pen_engine_file *const *files, size_t n_files,
                         const struct pen_engine_region *regions,
                         size_t n_regions, struct pen_engine_ring **ret_ring)
{
  struct recorder *r = &recorder;
  (void)engine;
  int rc = r->inner->ring_create(r->inner, depth, files, n_files, regions,
                                 n_regions, ret_ring);
  if (rc < 0)
    return rc;
  r->ring = *(*ret_ring)->engine;
  r->submit = r->ring.ring_submit;
  r->reap = r->ring.ring_reap;
  r->ring.ring_submit = record_submit;
  r->ring.ring_reap = record_reap;
  (*ret_ring)->engine = &r->ring;
  r->n = r->n_flying = r->n_flying_max = 0;
  r->bytes = 0;
  return 0;
}

static int record_begin(struct pen_bench_file *file)
{
  recorder.list = calloc(LIST_MAX, sizeof *recorder.list);
  recorder.inner = file->engine;
  recorder.engine = *file->engine;
  recorder.engine.ring_create = record_create;
  file->engine = &recorder.engine;
  return recorder.list ? 0 : pen_error_set(PEN_ENOFIT, "no memory for a list");
}

static int write_list(const char *path)
{
  FILE *f = fopen(path, "we");
  if (!f)
    return pen_error_set(-errno, "cannot write %s", path);
  for (size_t i = 0; i < recorder.n; i++) {
    const struct pen_engine_request *q = &recorder.list[i];
    fprintf(f, "%c %" PRIu64 " %zu\n", q->write ? 'w' : 'r', q->offset, q->bytes);
  }
  bool whole = !ferror(f);
  whole &= fclose(f) == 0;
  return !whole ? pen_error_set(-errno, "cannot write %s", path) : 0;
}

/* ---- lines ---- */

static volatile sig_atomic_t interrupted;

static void interrupt(int signal)
{
  (void)signal;
  interrupted = 1;
}

/* Made durable in the end, as bench nvme does. */
static int move(struct pen_bench_file *file,
                const struct pen_bench_traffic_options *o, uint64_t bytes)
{
  struct pen_bench_traffic *t = NULL;
  uint64_t moved;
  double passed;
  int rc = pen_bench_traffic_open(file, o, &t);
  if (rc == 0)
    rc = pen_bench_traffic_move(t, bytes, 0, &moved, &passed);
  if (rc == -PEN_ESTOPPED) {
    pen_error_clear();
    rc = 0;
  }
  if (rc == 0)
    rc = pen_bench_traffic_sync(t, &passed);
  pen_bench_traffic_close(&t);
  return rc;
}

static int serve(struct pen_bench_file *file, const char *list)
{
  char line[128];
  int rc = 0;
  while (rc == 0 && fgets(line, sizeof line, stdin)) {
    struct pen_bench_traffic_options o = {.blind = true, .stop = &interrupted};
    unsigned way;
    uint64_t bytes;
    if (sscanf(line, "%u %zu %zu %" SCNu64, &way, &o.request, &o.depth, &bytes) != 4 ||
        way >= PEN_BENCH_WAYS || !o.depth || !o.request ||
        o.request % PEN_BENCH_GRAIN)
      return pen_error_set(PEN_EUSAGE, "%.60s is not WAY REQUEST DEPTH BYTES", line);
    o.way = (enum pen_bench_way)way;
    interrupted = 0;
    rc = move(file, &o, bytes);
    if (rc == 0)
      rc = write_list(list);
    if (rc == 0)
      printf("%" PRIu64 " %zu\n", recorder.bytes, recorder.n_flying_max);
    fflush(stdout);
  }
  return rc;
}

int main(int argc, char **argv)
{
  struct pen_arguments a;
  struct pen_bench_file file = {.fd = -1};
  pen_arguments_parse(PEN_TRAFFIC, argc, argv, &a);
  const struct pen_engine *engine = NULL;
  signal(SIGINT, interrupt);
  int rc = pen_engine_parse("auto", &engine);
  if (rc == 0)
    rc = pen_bench_file_open(engine, a.directory, a.size, &file);
  if (rc == 0)
    rc = pen_bench_traffic_fill(&file, NULL);
  if (rc == 0)
    rc = pen_bench_file_look(&file);
  if (rc == 0) {
    printf("/proc/%ld/fd/%d\n", (long)getpid(), file.fd);
    fflush(stdout);
    rc = record_begin(&file);
  }
  if (rc == 0)
    rc = serve(&file, a.list);
  if (rc == 0)
    rc = pen_bench_file_look(&file);
  pen_bench_file_close(&file);
  pen_engine_release(&engine);
  pen_arguments_done(&a);
  if (rc < 0)
    pen_report_fail();
  return 0;
}
