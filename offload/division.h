/* division.h: who runs where: a machine's CPUs divided among the threads of a
 * run, and memory among its nodes, so that bytes lie where they are used. */
#ifndef PEN_OFFLOAD_DIVISION_H
#define PEN_OFFLOAD_DIVISION_H

#include <stdbool.h>

#include "base/pool.h"
#include "offload/schedule.h"
#include "offload/topology.h"

struct pen_division_wish {
  size_t threads, update_threads; /* 0: as many as there are CPUs; as threads */
  bool numa;                      /* false: bind nothing, whatever the machine */
};

/* Compute and update workers are teams, one per node, in proportion to the
 * node's allowed CPUs; a worker may run on all CPUs of its node.  Compute and
 * updates share these CPUs: they need them at different times.  Transfers mostly
 * wait, and may run anywhere.  Memory follows the workers. */
struct pen_division {
  bool binds; /* false: one node, or not wanted; then there is one team each */
  size_t n_nodes;
  struct pen_pool_teams compute, update; /* their `enter` binds */
  uint32_t node_number[PEN_TOPOLOGY_NODES_MAX];   /* the system's */
  size_t node_cpus[PEN_TOPOLOGY_NODES_MAX + 1];   /* where each begins: */
  uint32_t *cpus; /* [node_cpus[n_nodes]] node after node; NULL: binds nothing */
};

/* Divides.  A quota below the CPUs bounds the threads, not where they run.
 * Depends on its arguments alone; decides nothing that could change a number.
 * -ENOMEM.  ret_division must stay where it is while its teams are used; done
 * frees what is in it, zeroed ones too. */
int pen_division_make(const struct pen_topology *topology,
                      const struct pen_division_wish *wish,
                      struct pen_division *ret_division);
void pen_division_done(struct pen_division *division);

/* Binds the calling thread as the thread of a lane, worker 0 of its pool; NULL
 * and a division that binds nothing: does nothing. */
void pen_division_enter(const struct pen_division *division,
                        enum pen_lane lane);

/* One line of what was found and done; returns ret_text. */
#define PEN_DIVISION_TEXT_BYTES 512
const char *pen_division_text(const struct pen_division *division,
                              const struct pen_topology *topology,
                              char ret_text[PEN_DIVISION_TEXT_BYTES]);

#endif
