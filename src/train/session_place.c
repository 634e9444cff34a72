/* session_place.c: where a session's bytes go: by the rule, or where there is a
 * profile of the machine by search.
 *
 * Main thread.  Disadvantage: what tables a schedule needs is only known once
 * there is one, so a placement is sometimes made twice. */
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "src/train/drives.h"
#include "src/train/session.h"

#define TILE_ELEMS_LEAST (16 * PEN_NORM_CHUNK_ELEMS) /* 12 MiB of state */
#define TILE_ELEMS_MOST (80 * PEN_NORM_CHUNK_ELEMS)  /* 60 MiB */
#define TILES_OF_A_BLOCK 64
#define TILE_ELEMS_INFERENCE PEN_NORM_CHUNK_ELEMS

static size_t whole_chunks(size_t elems)
{
  return (elems + PEN_NORM_CHUNK_ELEMS - 1) / PEN_NORM_CHUNK_ELEMS *
         PEN_NORM_CHUNK_ELEMS;
}

static size_t largest_block(const struct pen_workload *w)
{
  size_t largest = 1;
  for (size_t b = 0; b < w->n_blocks; b++)
    if (w->blocks[b].elems > largest)
      largest = w->blocks[b].elems;
  return largest;
}

/* No tile is larger than the largest block: the rest would never be used. */
static size_t clamp_tile(const struct pen_workload *w, size_t tile)
{
  size_t largest = whole_chunks(largest_block(w));
  return largest < tile ? largest : tile;
}

/* Large blocks have large tiles, so that a schedule and its proof stay short. */
static size_t choose_tile(const struct pen_workload *w)
{
  size_t tile = whole_chunks(largest_block(w) / TILES_OF_A_BLOCK);
  if (tile < TILE_ELEMS_LEAST)
    tile = TILE_ELEMS_LEAST;
  if (tile > TILE_ELEMS_MOST)
    tile = TILE_ELEMS_MOST;
  return clamp_tile(w, tile);
}

/* Whole norm chunks of state, rounded up. */
static size_t tile_of(const struct pen_state_format *format, uint64_t bytes)
{
  uint64_t chunk = pen_state_bytes(format, PEN_NORM_CHUNK_ELEMS);
  return (bytes + chunk - 1) / chunk * PEN_NORM_CHUNK_ELEMS;
}

static void fill_wish(struct pen_fit_wish *wish, const struct pen_workload *w,
                      const struct pen_machine_settings *m, bool inference)
{
  wish->inference = inference;
  if (inference)
    wish->tile_elems = TILE_ELEMS_INFERENCE;
  else
    wish->tile_elems = m->tile_bytes   ? tile_of(w->state, m->tile_bytes)
                       : m->tile_elems ? whole_chunks(clamp_tile(w, m->tile_elems))
                                       : choose_tile(w);
}

/* A placement within `host` bytes with all that the memory list has by now. */
struct place {
  struct pen_session *session;
  uint64_t host;
  bool whether; /* it fits is all that is asked */
  uint64_t tables;   /* of the schedule that the rule's placement has, */
  size_t tile_elems; /* with tiles of so many elements */
};

static int fit_beside(const struct place *at, const struct pen_fit_wish *wish,
                      uint64_t tables, struct pen_placement *ret_placement)
{
  const struct pen_session *s = at->session;
  struct pen_fit_limits limits = {
      .device_bytes =
          s->machine.device_bytes ? s->machine.device_bytes : PEN_ALL_BYTES,
      .host_bytes = at->host,
      .host_taken_bytes = s->memory.total[PEN_TIER_HOST] + tables,
      .has_nvme = s->machine.n_nvme_dirs > 0};
  return pen_fit(pen_model_workload(s->model), wish, &limits, ret_placement);
}

/* Room for the schedule's tables is needed too, and how much is known only once
 * there is a placement: so room is set aside for those of the last try until
 * they fit, or are in the number that is said to be missing.  What does not fit
 * has a layout all the same, but where only whether it fits is asked. */
static int fit(const struct place *at, const struct pen_fit_wish *wish,
               struct pen_layout *ret_layout, struct pen_run_plan *ret_plan)
{
  const struct pen_session *s = at->session;
  const struct pen_workload *w = pen_model_workload(s->model);
  struct pen_placement placement;
  uint64_t tables = 0;
  for (;;) {
    int fits = fit_beside(at, wish, tables, &placement);
    if (fits < 0 && (fits != -PEN_ENOFIT || at->whether))
      return fits;
    int rc = pen_layout_init(ret_layout, w, &placement);
    if (rc == 0)
      rc = pen_run_plan(w, ret_layout, false, ret_plan);
    if (rc < 0)
      return rc;
    if (ret_plan->table_bytes <= tables ||
        (fits == 0 && s->memory.total[PEN_TIER_HOST] + ret_plan->table_bytes +
                              ret_layout->tier_bytes[PEN_TIER_HOST] <=
                          at->host))
      return fits;
    tables = ret_plan->table_bytes;
    pen_layout_done(ret_layout);
    pen_error_clear();
  }
}

/* Tables are taken to grow with the number of tiles; what is chosen is laid out
 * again with its own. */
static int fit_candidate(void *ctx, const struct pen_fit_wish *wish,
                         struct pen_placement *ret_placement)
{
  const struct place *at = ctx;
  uint64_t tables = at->tables;
  if (wish->tile_elems < at->tile_elems)
    tables = tables / wish->tile_elems * at->tile_elems;
  return fit_beside(at, wish, tables, ret_placement);
}

static int measure_rule(struct place *at, const struct pen_fit_wish *wish)
{
  struct place whole = *at;
  struct pen_layout layout = {.n_slots = 0};
  struct pen_run_plan plan;
  whole.whether = false; /* other placements may fit */
  int rc = fit(&whole, wish, &layout, &plan);
  if (rc == 0 || rc == -PEN_ENOFIT) {
    at->tables = plan.table_bytes;
    at->tile_elems = wish->tile_elems;
    rc = 0;
  }
  pen_error_clear();
  pen_layout_done(&layout);
  return rc;
}

/* The search may settle what options leave open; the tile only at a first
 * start, since all state would have to be moved for another one. */
static struct pen_search_free left_open(const struct pen_session *s)
{
  const struct pen_machine_settings *m = &s->machine;
  const struct pen_fit_wish *asked = &m->wish;
  bool drives = m->n_nvme_dirs > 0;
  return (struct pen_search_free){
      .group = !asked->group_size,
      .recompute = asked->recompute_blocks == PEN_FIT_RECOMPUTE_AUTO,
      .weight_slots = !asked->weight_slots,
      .gradient_slots = !asked->gradient_slots,
      .tile_slots = !asked->tile_slots,
      .state = asked->state == PEN_FIT_AUTO && !asked->unified,
      .state_blocks = asked->state == PEN_FIT_AUTO && !asked->state_host_most && drives,
      .activations = asked->activations == PEN_FIT_AUTO && !asked->unified,
      .weights = asked->weights == PEN_FIT_AUTO && !asked->unified,
      .gradients = asked->gradients == PEN_FIT_AUTO && drives,
      .tile = !m->tile_bytes && !m->tile_elems && drives,
      .threads = !m->threads && asked->unified,
      .update_threads = !m->update_threads,
      .early = m->searches_speculative};
}

/* Lets the profile choose what `wish` leaves open.  One that lacks a rate leaves
 * the rule in its place. */
static int search(struct pen_session *s, const struct pen_session_shape *shape,
                  struct place *at, struct pen_fit_wish *wish)
{
  const struct pen_workload *w = pen_model_workload(s->model);
  const struct pen_machine_settings *m = &s->machine;
  struct pen_machine machine = *m->profile;
  int rc = pen_drives_choose(&s->machine, &machine);
  if (wish->unified) /* the cores compute, whatever device there is */
    pen_machine_without_device(&machine);
  struct pen_search_problem problem = {
      .workload = w,
      .simulate = pen_session_simulate_options(s, &machine),
      .shape = {.kind = PEN_STEP_TRAIN,
                .n_micros = shape->max_micros,
                .n_tokens = (double)(shape->max_micros * shape->max_tokens),
                .speculates = true},
      .free = left_open(s),
      .commits = shape->commits,
      .drains = m->updates_after_backward,
      .tile_least = clamp_tile(w, TILE_ELEMS_LEAST),
      .tile_most = clamp_tile(w, TILE_ELEMS_MOST),
      .place = fit_candidate,
      .ctx = at};
  if (rc == 0)
    rc = measure_rule(at, wish);
  if (rc == 0)
    rc = pen_search(&problem, wish, &s->found);
  if (rc == 0) {
    *wish = s->found.wish;
  } else if (rc == -PEN_EUSAGE) {
    if (!shape->unproved)
      pen_log_warn("%s; until then placement is by the fixed rule",
                   pen_error_text());
    pen_error_clear();
    rc = 0;
  }
  return rc;
}

/* oneDNN does, for each size. */
static bool makes_much_code(const struct pen_session *s,
                            const struct pen_session_shape *shape)
{
  return (shape->sizes_vary || shape->inference) &&
         strcmp(pen_session_products(s), "onednn") == 0;
}

/* Where less fits now than when it was found: -PEN_ENOFIT. */
static int take_known(struct place *at, const struct pen_search_result *known)
{
  struct pen_session *s = at->session;
  int rc = fit(at, &known->wish, &s->layout, &s->plan);
  if (rc == 0) {
    s->found = *known;
  } else {
    pen_layout_done(&s->layout);
    pen_error_clear();
  }
  return rc;
}

static int choose(struct place *at, const struct pen_session_shape *shape,
                  struct pen_fit_wish *wish)
{
  struct pen_session *s = at->session;
  int rc = 0;
  if (s->machine.profile && !shape->inference &&
      (!s->backend || pen_machine_has_device(s->machine.profile)))
    rc = search(s, shape, at, wish);
  if (rc == 0 || rc == -PEN_ENOFIT)
    rc = fit(at, wish, &s->layout, &s->plan);
  return rc;
}

/* A plan may be of another machine; a run has the addresses of this process. */
static bool has_few_addresses(const struct pen_session_shape *shape,
                              uint64_t host_bytes)
{
  return !shape->config_only && pen_memory_addresses() <= host_bytes;
}

static int check_host(const struct place *at, bool few_addresses, int rc)
{
  const char *name = few_addresses                      ? "what ulimit -v leaves"
                     : at->session->machine.host_bytes ? "--host-memory"
                                                       : "the RAM available now";
  if (rc == 0)
    return pen_memory_check(&at->session->memory, at->host, name);
  return few_addresses ? pen_error_context(rc, "with what ulimit -v leaves") : rc;
}

/* What the slots leave of the limits is not theirs. */
int pen_session_place(struct pen_session *s,
                      const struct pen_session_shape *shape)
{
  const struct pen_workload *w = pen_model_workload(s->model);
  uint64_t host = s->machine.host_bytes;
  if (!host)
    host = pen_memory_available();
  bool few_addresses = has_few_addresses(shape, host);
  if (few_addresses)
    host = pen_memory_addresses();
  struct pen_fit_wish wish = s->machine.wish;
  fill_wish(&wish, w, &s->machine, shape->inference);
  pen_memory_add(&s->memory, "batches and sequence tables", PEN_TIER_HOST,
                 shape->other_bytes);
  pen_memory_add(&s->memory, "timeline", PEN_TIER_HOST, shape->trace_bytes);
  pen_memory_add(&s->memory, "libraries, program, stacks (allowance)",
                 PEN_TIER_HOST,
                 PEN_MEMORY_LIBRARY_BYTES +
                     (makes_much_code(s, shape) ? PEN_MEMORY_SIZES_BYTES : 0));
  struct place at = {.session = s, .host = host, .whether = shape->whether};
  int rc = shape->known ? take_known(&at, shape->known) : -PEN_ENOFIT;
  if (rc == -PEN_ENOFIT)
    rc = choose(&at, shape, &wish);
  if (rc == 0 && !shape->unproved)
    rc = pen_run_plan(w, &s->layout, true, &s->plan);
  if (rc < 0 && rc != -PEN_ENOFIT)
    return rc;
  pen_memory_add_layout(&s->memory, &s->layout);
  pen_memory_add(&s->memory, "schedule and its proof", PEN_TIER_HOST,
                 s->plan.table_bytes);
  return check_host(&at, few_addresses, rc);
}

