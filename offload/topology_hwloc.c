/* topology_hwloc.c: the machine as hwloc knows it; the one file that includes it.
 *
 * Only what the kernel tells about CPUs and memory is asked for; devices are
 * not looked for.  Main thread, at the start.  Disadvantage: where a CPU is near
 * several nodes' memory (HBM beside DRAM), the first node counts. */
#include "offload/topology.h"

#include <hwloc.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/thread.h"

static bool is_among(uint32_t cpu, const uint32_t *cpus, size_t n)
{
  for (size_t i = 0; i < n; i++)
    if (cpus[i] == cpu)
      return true;
  return !cpus; /* all */
}

/* The allowed CPUs under one object, appended to `t`; whether there are any. */
static bool add_cpus(hwloc_topology_t h, hwloc_const_cpuset_t under,
                     const uint32_t *allowed, size_t n_allowed,
                     struct pen_topology *t)
{
  size_t before = t->n_cpus;
  hwloc_obj_t pu = NULL, core = NULL;
  while ((pu = hwloc_get_next_obj_inside_cpuset_by_type(h, under, HWLOC_OBJ_PU,
                                                        pu))) {
    if (!is_among(pu->os_index, allowed, n_allowed))
      continue;
    bool known = false; /* two nodes may be near the same CPU */
    for (size_t i = 0; i < before; i++)
      known |= t->cpus[i].number == pu->os_index;
    if (known)
      continue;
    hwloc_obj_t its = hwloc_get_ancestor_obj_by_type(h, HWLOC_OBJ_CORE, pu);
    t->n_cores += !its || its != core;
    core = its;
    t->cpus[t->n_cpus++] = (struct pen_topology_cpu){
        .number = pu->os_index,
        .node = (uint32_t)t->n_nodes,
        .core = (uint32_t)t->n_cores - 1};
  }
  return t->n_cpus > before;
}

/* Node by node; then what is near none, as a part of the first. */
static void add_nodes(hwloc_topology_t h, const uint32_t *allowed,
                      size_t n_allowed, struct pen_topology *t)
{
  hwloc_obj_t node = NULL;
  bool many = hwloc_get_nbobjs_by_type(h, HWLOC_OBJ_NUMANODE) >
              PEN_TOPOLOGY_NODES_MAX;
  while (!many &&
         (node = hwloc_get_next_obj_by_type(h, HWLOC_OBJ_NUMANODE, node)))
    if (add_cpus(h, node->cpuset, allowed, n_allowed, t))
      t->node_number[t->n_nodes++] = node->os_index;
  size_t n_near = t->n_cpus;
  add_cpus(h, hwloc_get_root_obj(h)->cpuset, allowed, n_allowed, t);
  for (size_t i = n_near; i < t->n_cpus; i++)
    t->cpus[i].node = 0;
  if (t->n_nodes == 0)
    t->n_nodes = 1;
}

static int load(hwloc_topology_t h, const char *synthetic)
{
  /* "x86" would move this thread over all CPUs; the rest look for devices. */
  static const char *const not_asked[] = {"x86", "pci", "opencl", "cuda",
                                          "nvml", "gl", "levelzero", "rsmi"};
  if (synthetic)
    return hwloc_topology_set_synthetic(h, synthetic) < 0 ||
                   hwloc_topology_load(h) < 0
               ? pen_error_set(PEN_EUSAGE, "hwloc knows no machine \"%s\"",
                               synthetic)
               : 0;
  for (size_t i = 0; i < sizeof not_asked / sizeof *not_asked; i++)
    hwloc_topology_set_components(
        h, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, not_asked[i]);
  return hwloc_topology_load(h) < 0
             ? pen_error_set(-ENOMEM, "hwloc cannot read this machine")
             : 0;
}

static int make(const char *synthetic, const uint32_t *allowed,
                size_t n_allowed, struct pen_topology *ret_topology)
{
  struct pen_topology t = {.source = "hwloc", .knows_nodes = true};
  hwloc_topology_t h;
  if (hwloc_topology_init(&h) < 0)
    return pen_error_set(-ENOMEM, "no memory for a topology");
  int rc = load(h, synthetic);
  if (rc == 0) {
    int n = hwloc_get_nbobjs_by_type(h, HWLOC_OBJ_PU);
    t.cpus = calloc(n > 0 ? (size_t)n : 1, sizeof *t.cpus);
    if (!t.cpus)
      rc = pen_error_set(-ENOMEM, "no memory for a topology of %d CPUs", n);
  }
  if (rc == 0) {
    if (synthetic || !hwloc_topology_is_thissystem(h))
      t.source = "hwloc, not this machine";
    add_nodes(h, allowed, n_allowed, &t);
    if (t.n_cpus == 0)
      rc = pen_error_set(PEN_EUSAGE, "no CPU of %s may be used",
                         synthetic ? synthetic : "this machine");
  }
  hwloc_topology_destroy(h);
  if (rc < 0)
    free(t.cpus);
  else
    *ret_topology = t;
  return rc;
}

int pen_topology_read(struct pen_topology *ret_topology)
{
  uint32_t *allowed = NULL;
  size_t n = 0;
  int rc = pen_thread_allowed_cpus(&allowed, &n);
  if (rc == 0)
    rc = make(NULL, allowed, n, ret_topology);
  if (rc == 0)
    ret_topology->quota_cpus = pen_thread_quota_cpus();
  free(allowed);
  return rc;
}

int pen_topology_describe(const char *synthetic, const uint32_t *allowed,
                          size_t n_allowed, struct pen_topology *ret_topology)
{
  return make(synthetic, allowed, n_allowed, ret_topology);
}

void pen_topology_done(struct pen_topology *topology)
{
  free(topology->cpus);
  *topology = (struct pen_topology){0};
}
