/* trace.c: preallocated events per lane; Chrome trace JSON out.
 *
 * Each lane's array has one writer at a time, so recording takes no lock; the
 * reader (pen_trace_save) runs when the lanes rest.  A viewer's track holds one
 * thing at a time, so what overlaps on a lane is spread over several tracks.
 * Invariant: n_events <= capacity.  Disadvantage: the newest events are the
 * ones dropped. */
#include "base/trace.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/size.h"

#define LANE_NAME_BYTES 32
#define TRACKS_MAX 64 /* of one lane */

struct lane {
  struct pen_trace_event *events; /* [capacity] */
  size_t n_events;
  uint64_t n_dropped;
  char name[LANE_NAME_BYTES];
};

struct pen_trace {
  size_t n_lanes, capacity;
  struct pen_trace_event *events; /* [n_lanes, capacity] */
  struct lane lanes[];
};

int pen_trace_create(size_t n_lanes, size_t n_events_per_lane,
                     struct pen_trace **ret_trace)
{
  size_t n_events, n_bytes, n_struct_bytes;
  struct pen_trace *trace = NULL;
  if (pen_size_mul(n_lanes, n_events_per_lane, &n_events) &&
      pen_size_mul(n_events, sizeof(struct pen_trace_event), &n_bytes) &&
      pen_size_mul(n_lanes, sizeof(struct lane), &n_struct_bytes) &&
      pen_size_add(n_struct_bytes, sizeof *trace, &n_struct_bytes))
    trace = calloc(1, n_struct_bytes);
  if (trace)
    trace->events = malloc(n_bytes ? n_bytes : 1);
  if (!trace || !trace->events) {
    free(trace);
    return pen_error_set(-ENOMEM, "cannot make a trace of %zu lanes with %zu "
                         "events each", n_lanes, n_events_per_lane);
  }
  memset(trace->events, 0, n_bytes); /* touch: no page faults when recording */
  trace->n_lanes = n_lanes;
  trace->capacity = n_events_per_lane;
  for (size_t i = 0; i < n_lanes; i++) {
    trace->lanes[i].events = trace->events + i * n_events_per_lane;
    snprintf(trace->lanes[i].name, LANE_NAME_BYTES, "lane %zu", i);
  }
  *ret_trace = trace;
  return 0;
}

void pen_trace_name_lane(struct pen_trace *trace, size_t lane, const char *name)
{
  snprintf(trace->lanes[lane].name, LANE_NAME_BYTES, "%s", name);
}

void pen_trace_record(struct pen_trace *trace, size_t lane,
                      const struct pen_trace_event *event)
{
  if (!trace)
    return;
  struct lane *l = &trace->lanes[lane];
  if (l->n_events < trace->capacity)
    l->events[l->n_events++] = *event;
  else
    l->n_dropped++;
}

uint64_t pen_trace_n_dropped(const struct pen_trace *trace)
{
  uint64_t n = 0;
  for (size_t i = 0; i < trace->n_lanes; i++)
    n += trace->lanes[i].n_dropped;
  return n;
}

static void put_string(FILE *f, const char *text)
{
  fputc('"', f);
  for (const unsigned char *p = (const unsigned char *)text; *p; p++)
    if (*p == '"' || *p == '\\')
      fprintf(f, "\\%c", *p);
    else if (*p < 0x20)
      fprintf(f, "\\u%04x", *p);
    else
      fputc(*p, f);
  fputc('"', f);
}

/* Microseconds with nanosecond digits: Chrome's unit. */
static void put_us(FILE *f, const char *key, uint64_t ns)
{
  fprintf(f, ",\"%s\":%" PRIu64 ".%03u", key, ns / 1000, (unsigned)(ns % 1000));
}

static void put_arg(FILE *f, const char **separator, const char *key,
                    int32_t value)
{
  if (value == PEN_TRACE_NONE)
    return;
  fprintf(f, "%s\"%s\":%" PRId32, *separator, key, value);
  *separator = ",";
}

static void put_event(FILE *f, size_t tid, uint64_t start_ns,
                      const struct pen_trace_event *event)
{
  fputs(",\n{\"ph\":\"X\",\"pid\":1", f);
  fprintf(f, ",\"tid\":%zu,\"name\":", tid);
  put_string(f, event->name ? event->name : "");
  put_us(f, "ts", event->begin_ns - start_ns);
  put_us(f, "dur", event->end_ns > event->begin_ns
                       ? event->end_ns - event->begin_ns : 0);
  fputs(",\"args\":{", f);
  const char *separator = "";
  put_arg(f, &separator, "block", event->block);
  put_arg(f, &separator, "micro", event->micro);
  put_arg(f, &separator, "tile", event->tile);
  fputs("}}", f);
}

static uint64_t earliest_ns(const struct pen_trace *trace)
{
  uint64_t ns = UINT64_MAX;
  for (size_t i = 0; i < trace->n_lanes; i++)
    for (size_t j = 0; j < trace->lanes[i].n_events; j++)
      if (trace->lanes[i].events[j].begin_ns < ns)
        ns = trace->lanes[i].events[j].begin_ns;
  return ns;
}

static int by_begin(const void *a, const void *b)
{
  uint64_t x = ((const struct pen_trace_event *)a)->begin_ns;
  uint64_t y = ((const struct pen_trace_event *)b)->begin_ns;
  return (x > y) - (x < y);
}

/* The first track that is free when the event begins. */
static size_t take_track(uint64_t free_ns[TRACKS_MAX],
                         const struct pen_trace_event *event)
{
  size_t track = 0;
  while (track + 1 < TRACKS_MAX && free_ns[track] > event->begin_ns)
    track++;
  free_ns[track] = event->end_ns;
  return track;
}

/* Tracks of lane i: i + 1, and further ones behind all lanes' first. */
static size_t tid_of(const struct pen_trace *trace, size_t lane, size_t track)
{
  return 1 + lane + track * trace->n_lanes;
}

static void put_track_name(FILE *f, const struct pen_trace *trace, size_t lane,
                           size_t track)
{
  char name[LANE_NAME_BYTES + 24];
  size_t tid = tid_of(trace, lane, track);
  snprintf(name, sizeof name, "%s", trace->lanes[lane].name);
  if (track)
    snprintf(name + strlen(name), 24, " %zu", track + 1);
  fprintf(f, ",\n{\"ph\":\"M\",\"pid\":1,\"tid\":%zu,"
          "\"name\":\"thread_name\",\"args\":{\"name\":", tid);
  put_string(f, name);
  fprintf(f, "}},\n{\"ph\":\"M\",\"pid\":1,\"tid\":%zu,"
          "\"name\":\"thread_sort_index\",\"args\":{\"sort_index\":%zu}}",
          tid, lane * TRACKS_MAX + track);
}

static void put_lane(FILE *f, struct pen_trace *trace, size_t lane,
                     uint64_t start_ns)
{
  struct lane *l = &trace->lanes[lane];
  uint64_t free_ns[TRACKS_MAX] = { 0 };
  size_t n_tracks = 1;
  qsort(l->events, l->n_events, sizeof *l->events, by_begin);
  for (size_t i = 0; i < l->n_events; i++) {
    size_t track = take_track(free_ns, &l->events[i]);
    put_event(f, tid_of(trace, lane, track), start_ns, &l->events[i]);
    if (track >= n_tracks)
      n_tracks = track + 1;
  }
  for (size_t track = 0; track < n_tracks; track++)
    put_track_name(f, trace, lane, track);
}

static void put_trace(FILE *f, struct pen_trace *trace)
{
  uint64_t start_ns = earliest_ns(trace);
  fputs("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n"
        "{\"ph\":\"M\",\"pid\":1,\"name\":\"process_name\","
        "\"args\":{\"name\":\"penstock\"}}", f);
  for (size_t i = 0; i < trace->n_lanes; i++)
    put_lane(f, trace, i, start_ns);
  fprintf(f, "\n],\"otherData\":{\"dropped_events\":%" PRIu64 "}}\n",
          pen_trace_n_dropped(trace));
}

int pen_trace_save(struct pen_trace *trace, const char *path)
{
  size_t n = strlen(path) + sizeof ".tmp";
  char *temporary = malloc(n);
  if (!temporary)
    return pen_error_set(-ENOMEM, "cannot save trace %s", path);
  snprintf(temporary, n, "%s.tmp", path);
  int r = 0;
  FILE *f = fopen(temporary, "we");
  if (!f) {
    r = pen_error_set(-errno, "cannot write trace %s", temporary);
    goto out;
  }
  put_trace(f, trace);
  errno = EIO; /* fflush of an already failed stream may set none */
  if (fflush(f) || ferror(f) || fsync(fileno(f)))
    r = pen_error_set(-errno, "cannot write trace %s", temporary);
  if (fclose(f) && !r)
    r = pen_error_set(-errno, "cannot write trace %s", temporary);
  if (!r && rename(temporary, path))
    r = pen_error_set(-errno, "cannot rename trace %s to %s", temporary, path);
  if (r)
    unlink(temporary);
out:
  free(temporary);
  return r;
}

void pen_trace_free(struct pen_trace **ref)
{
  struct pen_trace *trace = *ref;
  if (!trace)
    return;
  free(trace->events);
  free(trace);
  *ref = NULL;
}
