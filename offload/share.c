/* share.c: progressive filling.
 *
 * Each round fills at least one resource or brings every task to full speed, so
 * rounds are at most resources + 1.  Pure; any thread.  Disadvantage: a task
 * held back by one resource keeps no claim on what it would take of others. */
#include "offload/share.h"

#include <stdbool.h>

#define FULL 1e-12 /* what is left of a resource that counts as none */

/* Resources that any task takes: most machines have few. */
static size_t find_used(const struct pen_share_group *groups, size_t n_groups,
                        size_t n_resources, size_t *used)
{
  size_t n = 0;
  for (size_t r = 0; r < n_resources; r++)
    for (size_t i = 0; i < n_groups; i++)
      if (groups[i].demand->part[r] > 0) {
        used[n++] = r;
        break;
      }
  return n;
}

/* How much all growing tasks may grow until the next resource is full. */
static double next_step(const double *left, const double *wanted,
                        size_t n_used, double level)
{
  double step = 1 - level;
  for (size_t u = 0; u < n_used; u++)
    if (wanted[u] > 0 && left[u] < step * wanted[u])
      step = left[u] / wanted[u];
  return step;
}

static bool is_held(const struct pen_share_demand *demand, const double *left,
                    const size_t *used, size_t n_used)
{
  for (size_t u = 0; u < n_used; u++)
    if (demand->part[used[u]] > 0 && left[u] <= FULL)
      return true;
  return false;
}

void pen_share_speeds(struct pen_share_group *groups, size_t n_groups,
                      size_t n_resources)
{
  double left[PEN_SHARE_RESOURCES_MAX], wanted[PEN_SHARE_RESOURCES_MAX];
  size_t used[PEN_SHARE_RESOURCES_MAX];
  size_t n_used = find_used(groups, n_groups, n_resources, used);
  double level = 0;
  size_t growing = n_groups;
  for (size_t u = 0; u < n_used; u++)
    left[u] = 1;
  for (size_t i = 0; i < n_groups; i++)
    groups[i].speed = -1; /* grows with the level */
  while (growing) {
    for (size_t u = 0; u < n_used; u++) {
      wanted[u] = 0;
      for (size_t i = 0; i < n_groups; i++)
        if (groups[i].speed < 0)
          wanted[u] += (double)groups[i].n_tasks * groups[i].demand->part[used[u]];
    }
    double step = next_step(left, wanted, n_used, level);
    level += step;
    for (size_t u = 0; u < n_used; u++)
      left[u] -= step * wanted[u];
    for (size_t i = 0; i < n_groups; i++)
      if (groups[i].speed < 0 && (level >= 1 - FULL ||
                                  is_held(groups[i].demand, left, used, n_used))) {
        groups[i].speed = level;
        growing--;
      }
  }
}
