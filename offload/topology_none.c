/* topology_none.c: without hwloc, every allowed CPU is a core of one node.
 *
 * Main thread, at the start.  Disadvantage: on a machine of several nodes memory
 * lies where the kernel happens to put it; the source's name says why. */
#include "offload/topology.h"

#include <errno.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/thread.h"

int pen_topology_read(struct pen_topology *ret_topology)
{
  struct pen_topology t = {.source = "built without hwloc",
                           .n_nodes = 1,
                           .quota_cpus = pen_thread_quota_cpus()};
  uint32_t *allowed = NULL;
  int rc = pen_thread_allowed_cpus(&allowed, &t.n_cpus);
  if (rc < 0)
    return rc;
  t.cpus = calloc(t.n_cpus, sizeof *t.cpus);
  for (uint32_t i = 0; t.cpus && i < t.n_cpus; i++)
    t.cpus[i] = (struct pen_topology_cpu){.number = allowed[i], .core = i};
  free(allowed);
  if (!t.cpus)
    return pen_error_set(-ENOMEM, "no memory for a topology of %zu CPUs",
                         t.n_cpus);
  t.n_cores = t.n_cpus;
  *ret_topology = t;
  return 0;
}

int pen_topology_describe(const char *synthetic, const uint32_t *allowed,
                          size_t n_allowed, struct pen_topology *ret_topology)
{
  (void)allowed;
  (void)n_allowed;
  (void)ret_topology;
  return pen_error_set(PEN_EUNSUPPORTED,
                       "\"%s\" cannot be read: built without hwloc", synthetic);
}

void pen_topology_done(struct pen_topology *topology)
{
  free(topology->cpus);
  *topology = (struct pen_topology){0};
}
