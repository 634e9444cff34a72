/* division.c: threads in proportion to the CPUs of each node.
 *
 * Pure but for `enter`.  Workers are bound to a node and not to a CPU: the kernel
 * then still moves them away from other programs' work.  Disadvantage: a node
 * with more memory but as many CPUs gets no larger share; where a node is full
 * the kernel takes another's pages. */
#include "offload/division.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/thread.h"

_Static_assert(PEN_POOL_TEAMS_MAX >= PEN_TOPOLOGY_NODES_MAX,
               "a team for each node");

/* The CPUs node after node, as numbers that a thread can be bound to. */
static int list_cpus(const struct pen_topology *t, struct pen_division *d)
{
  size_t n = 0;
  d->cpus = malloc(t->n_cpus * sizeof *d->cpus);
  if (!d->cpus)
    return pen_error_set(-ENOMEM, "no memory for a list of %zu CPUs",
                         t->n_cpus);
  for (size_t node = 0; node < t->n_nodes; node++) {
    d->node_number[node] = t->node_number[node];
    d->node_cpus[node] = n;
    for (size_t i = 0; i < t->n_cpus; i++)
      if (t->cpus[i].node == node)
        d->cpus[n++] = t->cpus[i].number;
  }
  d->node_cpus[t->n_nodes] = n;
  return 0;
}

static void enter_team(void *ctx, size_t team)
{
  const struct pen_division *d = ctx;
  size_t begin = d->node_cpus[team];
  if (pen_thread_bind(d->cpus + begin, d->node_cpus[team + 1] - begin) < 0)
    pen_error_clear(); /* the mask shrank since it was read: stay in it */
}

static void fill_teams(struct pen_division *d, size_t threads,
                       struct pen_pool_teams *teams)
{
  struct pen_pool_teams by_cpus = {.n_teams = d->n_nodes};
  for (size_t node = 0; node < d->n_nodes; node++)
    by_cpus.n[node] = d->node_cpus[node + 1] - d->node_cpus[node];
  *teams = (struct pen_pool_teams){
      .n_teams = d->n_nodes, .enter = enter_team, .ctx = d};
  for (size_t node = 0; node < d->n_nodes; node++)
    teams->n[node] = pen_pool_border(threads, &by_cpus, node + 1) -
                     pen_pool_border(threads, &by_cpus, node);
}

int pen_division_make(const struct pen_topology *topology,
                      const struct pen_division_wish *wish,
                      struct pen_division *ret_division)
{
  size_t quota = topology->quota_cpus, cpus = topology->n_cpus;
  size_t usable = quota && quota < cpus ? quota : cpus;
  size_t threads = wish->threads ? wish->threads : usable;
  size_t updaters = wish->update_threads ? wish->update_threads : threads;
  struct pen_division *d = ret_division;
  *d = (struct pen_division){
      .binds = wish->numa && topology->n_nodes > 1,
      .n_nodes = 1,
      .compute = {.n_teams = 1, .n = {threads}},
      .update = {.n_teams = 1, .n = {updaters}}};
  if (!d->binds)
    return 0;
  d->n_nodes = topology->n_nodes;
  int rc = list_cpus(topology, d);
  if (rc < 0)
    return rc;
  fill_teams(d, threads, &d->compute);
  fill_teams(d, updaters, &d->update);
  return 0;
}

void pen_division_done(struct pen_division *division)
{
  free(division->cpus);
  *division = (struct pen_division){0};
}

static size_t first_team(const struct pen_pool_teams *teams)
{
  size_t team = 0;
  while (teams->n[team] == 0)
    team++;
  return team;
}

void pen_division_enter(const struct pen_division *division,
                        enum pen_lane lane)
{
  const struct pen_division *d = division;
  if (!d || !d->binds)
    return;
  if (lane == PEN_LANE_COMPUTE)
    enter_team((void *)d, first_team(&d->compute));
  else if (lane == PEN_LANE_UPDATE)
    enter_team((void *)d, first_team(&d->update));
  else if (pen_thread_bind(d->cpus, d->node_cpus[d->n_nodes]) < 0)
    pen_error_clear();
}

static size_t sum(const struct pen_pool_teams *teams)
{
  size_t n = 0;
  for (size_t t = 0; t < teams->n_teams; t++)
    n += teams->n[t];
  return n;
}

/* "16 compute (8 + 8)", appended. */
static void put_threads(char *text, size_t *n, const char *what,
                        const struct pen_pool_teams *teams)
{
  size_t room = PEN_DIVISION_TEXT_BYTES;
  const char *mark = " (";
  *n += (size_t)snprintf(text + *n, room - *n, "%zu %s", sum(teams), what);
  for (size_t t = 0; teams->n_teams > 1 && t < teams->n_teams; t++) {
    if (*n + 8 >= room / 2)
      break; /* very many nodes: the sum must do */
    *n += (size_t)snprintf(text + *n, room - *n, "%s%zu", mark, teams->n[t]);
    mark = " + ";
  }
  if (teams->n_teams > 1)
    *n += (size_t)snprintf(text + *n, room - *n, ")");
}

const char *pen_division_text(const struct pen_division *division,
                              const struct pen_topology *topology,
                              char ret_text[PEN_DIVISION_TEXT_BYTES])
{
  const struct pen_topology *t = topology;
  size_t n = 0, room = PEN_DIVISION_TEXT_BYTES;
  n += (size_t)snprintf(ret_text, room,
                        "%zu CPUs of %zu cores on %zu node%s (%s)", t->n_cpus,
                        t->n_cores, t->n_nodes, t->n_nodes > 1 ? "s" : "",
                        t->source);
  if (t->quota_cpus)
    n += (size_t)snprintf(ret_text + n, room - n, ", quota %zu",
                          t->quota_cpus);
  n += (size_t)snprintf(ret_text + n, room - n, "; ");
  put_threads(ret_text, &n, "compute", &division->compute);
  n += (size_t)snprintf(ret_text + n, room - n, " and ");
  put_threads(ret_text, &n, "update threads", &division->update);
  snprintf(ret_text + n, room - n, "%s",
           division->binds  ? ", each on its node, where its part of memory is "
                              "touched first"
           : t->n_nodes > 1 ? ", not bound: --numa off"
                            : ", not bound: one node");
  return ret_text;
}
