/* touch.c: first touch of an arena by the node that will use it.
 *
 * Nothing is asked of the kernel's memory policy: a mapping stays one mapping,
 * `numactl` still rules where a user gives a policy, and a full node's pages come
 * from another instead of failing.  Main thread, and while an arena is touched as
 * many threads as will compute: the kernel clears pages, some 10 GB/s a thread.
 * Disadvantage: a huge page (2 MiB) lies where its first byte was touched, so
 * arrays of a tile smaller than a huge page per node stay together on one. */
#include "offload/touch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/error.h"
#include "base/thread.h"
#include "kernels/device.h"

#define LOOK_PAGES 4096
/* Between two looks at whether to stop: some 50 ms; whole huge pages. */
#define PIECE_BYTES ((size_t)256 << 20)

static size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

void pen_touch_each(const struct pen_layout *layout,
                    const struct pen_division *division, enum pen_tier tier,
                    void (*fn)(void *ctx, const struct pen_touch_range *range),
                    void *ctx)
{
  for (size_t s = 0; s < layout->n_slots; s++) {
    const struct pen_slot *slot = &layout->slots[s];
    if (slot->tier != tier)
      continue;
    bool updates = slot->array_bytes || slot->state_elems;
    const struct pen_pool_teams *teams =
        updates ? &division->update : &division->compute;
    for (size_t at = 0, n; at < slot->bytes; at += n) {
      n = updates ? pen_layout_array_bytes(layout, slot, at) : slot->bytes;
      n = smaller(n, slot->bytes - at);
      size_t begin = (size_t)slot->offset + at;
      for (size_t node = 0; node < division->n_nodes; node++) {
        struct pen_touch_range range = {
            begin + pen_pool_border(n, teams, node),
            begin + pen_pool_border(n, teams, node + 1), node};
        if (range.begin < range.end)
          fn(ctx, &range);
      }
    }
  }
}

/* ---- touching ---- */

/* A thread of a node: of the node's ranges it touches every `n_threads`-th. */
struct toucher {
  const struct pen_layout *layout;
  const struct pen_division *division;
  enum pen_tier tier;
  char *base;
  const volatile sig_atomic_t *stop;
  size_t node, index, n_threads, page;
  size_t n_seen; /* ranges of the node so far */
  struct pen_thread thread;
  struct pen_error error;
};

static void touch_range(void *ctx, const struct pen_touch_range *range)
{
  struct toucher *t = ctx;
  if (range->node != t->node || t->n_seen++ % t->n_threads != t->index)
    return;
  size_t begin = range->begin / t->page * t->page;
  size_t end = range->end / t->page * t->page, n;
  int rc = 0;
  for (; begin < end && !t->error.code; begin += n) {
    n = smaller(end - begin, PIECE_BYTES);
    rc = t->stop && __atomic_load_n(t->stop, __ATOMIC_RELAXED)
             ? pen_error_set(PEN_ESTOPPED, "stopped while memory was taken")
             : pen_device_host_back(t->base + begin, n);
    if (rc < 0)
      pen_error_take(&t->error);
  }
}

static void touch_ranges(void *arg)
{
  struct toucher *t = arg;
  const struct pen_division *d = t->division;
  size_t begin = d->node_cpus[t->node];
  if (d->binds && pen_thread_bind(d->cpus + begin,
                                  d->node_cpus[t->node + 1] - begin) < 0)
    pen_error_clear();
  pen_touch_each(t->layout, d, t->tier, touch_range, t);
}

static size_t threads_of(const struct pen_division *division, size_t node)
{
  size_t n = division->compute.n[node];
  return n ? n : 1;
}

int pen_touch_arena(const struct pen_layout *layout,
                    const struct pen_division *division, enum pen_tier tier,
                    void *base, const volatile sig_atomic_t *stop)
{
  size_t n = 0, n_started = 0;
  int rc = 0;
  for (size_t node = 0; node < division->n_nodes; node++)
    n += threads_of(division, node);
  struct toucher *touchers = calloc(n, sizeof *touchers);
  if (!touchers)
    return pen_error_set(-ENOMEM, "no memory for %zu threads that touch memory",
                         n);
  for (size_t node = 0; node < division->n_nodes; node++)
    for (size_t i = 0; i < threads_of(division, node) && rc == 0; i++) {
      struct toucher *t = &touchers[n_started];
      *t = (struct toucher){.layout = layout,
                            .division = division,
                            .tier = tier,
                            .base = base,
                            .stop = stop,
                            .node = node,
                            .index = i,
                            .n_threads = threads_of(division, node),
                            .page = (size_t)sysconf(_SC_PAGESIZE)};
      rc = pen_thread_create(&t->thread, "touch", touch_ranges, t);
      n_started += rc == 0;
    }
  for (size_t i = 0; i < n_started; i++) {
    pen_thread_join(&touchers[i].thread);
    if (rc == 0 && touchers[i].error.code)
      rc = pen_error_put(&touchers[i].error);
  }
  free(touchers);
  return rc;
}

/* ---- looking ---- */

struct look {
  const struct pen_division *division;
  const char *base;
  size_t step, next; /* bytes between pages asked for; the next one's offset */
  size_t n;
  void *pages[LOOK_PAGES];
  uint32_t wanted[LOOK_PAGES];
};

static void look_at(void *ctx, const struct pen_touch_range *range)
{
  struct look *l = ctx;
  for (; l->next < range->end && l->n < LOOK_PAGES; l->next += l->step) {
    l->pages[l->n] = (void *)(l->base + l->next);
    l->wanted[l->n++] = l->division->node_number[range->node];
  }
}

int pen_touch_look(const struct pen_layout *layout,
                   const struct pen_division *division, enum pen_tier tier,
                   const void *base, size_t *ret_n_pages, size_t *ret_n_there)
{
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  size_t pages = (size_t)layout->tier_bytes[tier] / page;
  struct look look = {.division = division,
                      .base = base,
                      .step = (pages / LOOK_PAGES + 1) * page};
  int status[LOOK_PAGES];
  size_t n_there = 0;
  pen_touch_each(layout, division, tier, look_at, &look);
  if (syscall(SYS_move_pages, 0, look.n, look.pages, NULL, status, 0) < 0)
    return pen_error_set(-errno, "the kernel does not tell where pages lie");
  for (size_t i = 0; i < look.n; i++)
    n_there += status[i] >= 0 && (uint32_t)status[i] == look.wanted[i];
  *ret_n_pages = look.n;
  *ret_n_there = n_there;
  return 0;
}
