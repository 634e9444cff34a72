/* share.c: progressive filling.
 *
 * Each round fills at least one resource or brings every task to full speed, so
 * rounds are at most resources + 1.  Pure; any thread.  Disadvantage: a task
 * held back by one resource keeps no claim on what it would take of others. */
#include "offload/share.h"

#include <stdbool.h>

#define FULL 1e-12 /* what is left of a resource that counts as none */

/* How much all growing tasks may grow until the next resource is full. */
static double next_step(const double *left, const double *wanted,
                        size_t n_resources, double level)
{
  double step = 1 - level;
  for (size_t r = 0; r < n_resources; r++)
    if (wanted[r] > 0 && left[r] < step * wanted[r])
      step = left[r] / wanted[r];
  return step;
}

static bool is_held(const struct pen_share_demand *demand, const double *left,
                    size_t n_resources)
{
  for (size_t r = 0; r < n_resources; r++)
    if (demand->part[r] > 0 && left[r] <= FULL)
      return true;
  return false;
}

void pen_share_speeds(const struct pen_share_demand *const *demands,
                      size_t n_tasks, size_t n_resources, double *ret_speeds)
{
  double left[PEN_SHARE_RESOURCES_MAX], wanted[PEN_SHARE_RESOURCES_MAX];
  double level = 0;
  size_t growing = n_tasks;
  for (size_t r = 0; r < n_resources; r++)
    left[r] = 1;
  for (size_t i = 0; i < n_tasks; i++)
    ret_speeds[i] = -1; /* grows with the level */
  while (growing) {
    for (size_t r = 0; r < n_resources; r++) {
      wanted[r] = 0;
      for (size_t i = 0; i < n_tasks; i++)
        if (ret_speeds[i] < 0)
          wanted[r] += demands[i]->part[r];
    }
    double step = next_step(left, wanted, n_resources, level);
    level += step;
    for (size_t r = 0; r < n_resources; r++)
      left[r] -= step * wanted[r];
    for (size_t i = 0; i < n_tasks; i++)
      if (ret_speeds[i] < 0 && (level >= 1 - FULL ||
                                is_held(demands[i], left, n_resources))) {
        ret_speeds[i] = level;
        growing--;
      }
  }
}
