/* share.h: how fast tasks run that want the same resources at once. */
#ifndef PEN_OFFLOAD_SHARE_H
#define PEN_OFFLOAD_SHARE_H

#include <stddef.h>

#define PEN_SHARE_RESOURCES_MAX 64

/* What part of each resource a task takes at full speed, 0 .. 1 (more where it
 * cannot reach full speed even alone). */
struct pen_share_demand {
  double part[PEN_SHARE_RESOURCES_MAX];
};

/* Tasks of equal demand, which are equally fast. */
struct pen_share_group {
  const struct pen_share_demand *demand; /* of each */
  size_t n_tasks;
  double speed; /* result, 0 .. 1 of full */
};

/* Sets the speeds, max-min fair: all tasks grow alike until a resource is full;
 * those that use it stay there, the others grow on.  So no task could be faster
 * without making one that is no faster slower (dominant resource fairness; Ghodsi
 * et al., NSDI 2011).  Pure. */
void pen_share_speeds(struct pen_share_group *groups, size_t n_groups,
                      size_t n_resources);

#endif
