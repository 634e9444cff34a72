/* soak.c: a series of windows, each with its bytes, seconds and temperature.
 *
 * When there are as many as are kept, neighbours are joined and windows become
 * twice as long.  Main thread.  Disadvantage: written again and again, a small
 * file leaves a drive's cache more room than new data would; a file as large as
 * what is written does not. */
#include "src/bench/soak.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/error.h"
#include "src/bench/traffic.h"

#define KEPT PEN_PLATEAU_WINDOWS_MAX
#define LOOK_EVERY 16  /* windows between two looks at the series */
#define WARM 3.0       /* degrees below the limit that count as there */
#define SLOW_WINDOWS 3 /* in a row end what had come back */
#define SEEK_MORE 1.25 /* times the cache's size is sought after idling */

struct series {
  size_t n;
  double bytes[KEPT], seconds[KEPT], rates[KEPT];
  struct pen_disk_heat heat[KEPT];
  double window_s;
  uint64_t written;
};

struct soak {
  const struct pen_bench_soak_options *o;
  struct pen_bench_traffic *traffic;
  struct series s;
  struct pen_plateau plateaus[PEN_PLATEAUS_MAX];
  size_t n_plateaus;
};

static void put(struct series *s, size_t i, double bytes, double seconds,
                struct pen_disk_heat heat)
{
  s->bytes[i] = bytes;
  s->seconds[i] = seconds;
  s->rates[i] = bytes / seconds;
  s->heat[i] = heat;
}

/* Of two neighbours the later one's heat is kept, and any alarm. */
static void halve(struct series *s)
{
  for (size_t i = 0; i < KEPT / 2; i++) {
    struct pen_disk_heat heat = s->heat[2 * i + 1];
    heat.alarm |= s->heat[2 * i].alarm;
    put(s, i, s->bytes[2 * i] + s->bytes[2 * i + 1],
        s->seconds[2 * i] + s->seconds[2 * i + 1], heat);
  }
  s->n = KEPT / 2;
  s->window_s *= 2;
}

static bool is_stopped(const struct soak *k)
{
  return k->o->stop && *k->o->stop;
}

static int add_window(struct soak *k)
{
  struct series *s = &k->s;
  struct pen_disk_heat heat = {NAN, NAN, false};
  uint64_t bytes;
  double seconds;
  int rc = pen_bench_traffic_move(k->traffic, 0, s->window_s, &bytes, &seconds);
  if (rc < 0)
    return rc;
  if (k->o->disk)
    pen_disk_heat(k->o->disk, &heat);
  if (s->n == KEPT)
    halve(s);
  put(s, s->n++, (double)bytes, seconds, heat);
  s->written += bytes;
  return 0;
}

/* ---- the first drop, and what comes after ---- */

/* Index of the first plateau that is slower than the one before; 0: none. */
static size_t first_drop(const struct soak *k)
{
  for (size_t i = 1; i < k->n_plateaus; i++)
    if (k->plateaus[i].rate < k->plateaus[i - 1].rate)
      return i;
  return 0;
}

static double sum(const double *values, size_t begin, size_t end)
{
  double total = 0;
  for (size_t i = begin; i < end; i++)
    total += values[i];
  return total;
}

/* The lower rate has lasted, as long as the higher one did and settle_s. */
static bool has_settled(struct soak *k)
{
  const struct series *s = &k->s;
  k->n_plateaus = pen_plateau_find(s->rates, s->n, k->plateaus);
  size_t drop = first_drop(k);
  if (!drop)
    return false;
  size_t cut = k->plateaus[drop].begin;
  double after = sum(s->seconds, cut, s->n);
  return after >= k->o->settle_s && after >= sum(s->seconds, 0, cut);
}

static int write_until_settled(struct soak *k)
{
  uint64_t before = 0, last = 0; /* what the next window may write, about */
  int rc = 0;
  for (size_t i = 1; rc == 0 && k->s.written + last < k->o->most_bytes; i++) {
    if (is_stopped(k))
      return 0;
    before = k->s.written;
    rc = add_window(k);
    last = k->s.written - before;
    if (rc == 0 && i % LOOK_EVERY == 0 && has_settled(k))
      return 0;
  }
  return rc;
}

enum pen_bench_why pen_bench_why_of(const struct pen_disk_heat *heat)
{
  if (heat->alarm || heat->celsius >= heat->limit - WARM)
    return PEN_BENCH_WHY_HEAT;
  return isnan(heat->celsius) || isnan(heat->limit) ? PEN_BENCH_WHY_UNKNOWN
                                                    : PEN_BENCH_WHY_CACHE;
}

/* By the hottest of the windows about the change. */
static enum pen_bench_why why(const struct series *s,
                              const struct pen_plateau *before,
                              const struct pen_plateau *p)
{
  if (p->rate > before->rate)
    return PEN_BENCH_WHY_FASTER;
  enum pen_bench_why found = PEN_BENCH_WHY_UNKNOWN;
  size_t from = p->begin < 2 ? 0 : p->begin - 2;
  for (size_t i = from; i < p->end && i < p->begin + 2; i++) {
    enum pen_bench_why one = pen_bench_why_of(&s->heat[i]);
    if (one == PEN_BENCH_WHY_HEAT)
      return one;
    found = one == PEN_BENCH_WHY_CACHE ? one : found;
  }
  return found;
}

static void tell(const struct soak *k, struct pen_bench_soak *r)
{
  const struct series *s = &k->s;
  r->n_levels = k->n_plateaus;
  r->written_bytes = s->written;
  for (size_t i = 0; i < k->n_plateaus; i++) {
    const struct pen_plateau *p = &k->plateaus[i];
    r->levels[i] = (struct pen_bench_soak_level){
        .from_bytes = (uint64_t)sum(s->bytes, 0, p->begin),
        .bytes = (uint64_t)sum(s->bytes, p->begin, p->end),
        .seconds = sum(s->seconds, p->begin, p->end),
        .rate = p->rate,
        .celsius = s->heat[p->end - 1].celsius,
        .why = i ? why(s, p - 1, p) : PEN_BENCH_WHY_UNKNOWN};
  }
  size_t drop = first_drop(k);
  r->dropped = drop > 0;
  if (!drop)
    return;
  size_t cut = k->plateaus[drop].begin;
  r->cache_bytes = r->levels[drop].from_bytes;
  r->burst = sum(s->bytes, 0, cut) / sum(s->seconds, 0, cut);
  r->sustained = sum(s->bytes, cut, s->n) / sum(s->seconds, cut, s->n);
}

/* ---- coming back ---- */

static void sleep_for(const struct soak *k, double seconds)
{
  uint64_t end = pen_clock_ns() + (uint64_t)(seconds * 1e9);
  while (!is_stopped(k) && pen_clock_ns() < end) {
    double left = (double)(end - pen_clock_ns()) * 1e-9;
    struct timespec t = {0, (long)(1e9 * fmin(fmax(left, 1e-3), 0.1))};
    nanosleep(&t, NULL);
  }
}

/* Bytes until several windows in a row are nearer to the sustained rate. */
static int seek(struct soak *k, const struct pen_bench_soak *r,
                uint64_t *ret_bytes)
{
  double border = sqrt(r->burst * r->sustained), window = k->o->window_s;
  uint64_t fast = 0, moved = 0, bytes, slow_bytes = 0;
  size_t n_slow = 0;
  int rc = 0;
  while (rc == 0 && n_slow < SLOW_WINDOWS && !is_stopped(k) &&
         (double)moved < SEEK_MORE * (double)r->cache_bytes &&
         k->s.written < k->o->most_bytes) {
    double seconds;
    rc = pen_bench_traffic_move(k->traffic, 0, window, &bytes, &seconds);
    if (rc < 0)
      break;
    bool slow = (double)bytes / seconds < border;
    n_slow = slow ? n_slow + 1 : 0;
    slow_bytes = slow ? slow_bytes + bytes : 0;
    moved += bytes;
    k->s.written += bytes;
    fast = moved - slow_bytes;
  }
  *ret_bytes = fast;
  return rc;
}

static int idle(struct soak *k, struct pen_bench_soak *r)
{
  double seconds;
  int rc = pen_bench_traffic_sync(k->traffic, &seconds);
  if (rc == 0)
    sleep_for(k, k->o->idle_s);
  if (rc == 0 && !is_stopped(k)) {
    rc = seek(k, r, &r->recovered_bytes);
    r->idled = rc == 0;
  }
  r->written_bytes = k->s.written;
  return rc;
}

int pen_bench_soak(struct pen_bench_file *file,
                   const struct pen_bench_soak_options *options,
                   struct pen_bench_soak *ret_soak)
{
  const struct pen_bench_traffic_options how = {.way = PEN_BENCH_WRITE,
                                                .request = options->request,
                                                .depth = options->depth};
  struct pen_bench_soak r = {.n_levels = 0};
  struct soak *k = calloc(1, sizeof *k);
  if (!k)
    return pen_error_set(PEN_ENOFIT, "no memory for a series of rates");
  k->o = options;
  k->s.window_s = options->window_s;
  double seconds;
  int rc = pen_bench_traffic_open(file, &how, &k->traffic);
  if (rc == 0)
    rc = write_until_settled(k);
  if (rc == 0) {
    k->n_plateaus = pen_plateau_find(k->s.rates, k->s.n, k->plateaus);
    tell(k, &r);
  }
  if (rc == 0 && r.dropped && options->idle_s > 0 && !is_stopped(k))
    rc = idle(k, &r);
  if (rc == 0)
    rc = pen_bench_traffic_sync(k->traffic, &seconds);
  r.stopped = is_stopped(k);
  pen_bench_traffic_close(&k->traffic);
  free(k);
  if (rc == 0)
    *ret_soak = r;
  return rc;
}
