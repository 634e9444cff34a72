/* touch.h: which node's threads touch which bytes of an arena first, and so on
 * which node's memory they lie. */
#ifndef PEN_OFFLOAD_TOUCH_H
#define PEN_OFFLOAD_TOUCH_H

#include <signal.h>

#include "offload/division.h"
#include "offload/layout.h"

/* Bytes [begin, end) of an arena. */
struct pen_touch_range {
  size_t begin, end;
  size_t node;
};

/* Calls fn for the ranges of `tier`'s arena, rising and without gaps: each array
 * of a slot (pen_layout_array_bytes) is cut among the nodes as the items of a pool
 * are, by update workers where there are several arrays, else by compute
 * workers.  Pure. */
void pen_touch_each(const struct pen_layout *layout,
                    const struct pen_division *division, enum pen_tier tier,
                    void (*fn)(void *ctx, const struct pen_touch_range *range),
                    void *ctx);

/* Backs an arena that pen_device_host_map made with memory: the ranges of a node
 * are touched by as many threads as will compute there, bound to it where the
 * division binds; a range's pages begin where the one before ends.  -ENOMEM when
 * there is less, -PEN_ESTOPPED once *stop is not 0 (NULL: never). */
int pen_touch_arena(const struct pen_layout *layout,
                    const struct pen_division *division, enum pen_tier tier,
                    void *base, const volatile sig_atomic_t *stop);

/* Asks the kernel where pages lie, at most some thousands of them spread over the
 * arena: how many it was asked for, and how many lie on their range's node.
 * -errno: the kernel does not tell. */
int pen_touch_look(const struct pen_layout *layout,
                   const struct pen_division *division, enum pen_tier tier,
                   const void *base, size_t *ret_n_pages, size_t *ret_n_there);

#endif
