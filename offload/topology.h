/* topology.h: which CPUs this process may use, and how they lie: threads of
 * cores, cores of NUMA nodes. */
#ifndef PEN_OFFLOAD_TOPOLOGY_H
#define PEN_OFFLOAD_TOPOLOGY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PEN_TOPOLOGY_NODES_MAX 64

struct pen_topology_cpu {
  uint32_t number; /* the system's */
  uint32_t node;   /* from 0, among the nodes that have an allowed CPU */
  uint32_t core;   /* from 0, among all cores that have one */
};

struct pen_topology {
  const char *source; /* who said so, for people */
  bool knows_nodes;   /* false: there may be more than the one that is told */
  struct pen_topology_cpu *cpus; /* [n_cpus] allowed ones, node after node */
  size_t n_cpus, n_cores, n_nodes; /* each at least 1 */
  uint32_t node_number[PEN_TOPOLOGY_NODES_MAX]; /* the system's */
  size_t quota_cpus; /* what the cgroup's quota allows; 0: no quota */
};

/* This machine and what its affinity mask, cpuset and quota leave.  A machine of
 * more than PEN_TOPOLOGY_NODES_MAX nodes is told as one of one node.  -ENOMEM.
 * done frees what is in it; zeroed ones too. */
int pen_topology_read(struct pen_topology *ret_topology);

/* A machine described in hwloc's synthetic form ("numa:2 core:8 pu:2"), of which
 * only `allowed` [n_allowed] CPUs may be used (NULL: all), with no quota.
 * -PEN_EUSAGE: no such form, or no CPU is left; -PEN_EUNSUPPORTED: built
 * without hwloc. */
int pen_topology_describe(const char *synthetic, const uint32_t *allowed,
                          size_t n_allowed, struct pen_topology *ret_topology);

void pen_topology_done(struct pen_topology *topology);

#endif
