/* pool.h: worker threads that share the items of one call after another. */
#ifndef PEN_BASE_POOL_H
#define PEN_BASE_POOL_H

#include <stddef.h>
#include <stdint.h>

#define PEN_POOL_TEAMS_MAX 64

struct pen_pool;

/* Workers that belong together, such as those of one NUMA node. */
struct pen_pool_teams {
  size_t n_teams;               /* 1 to PEN_POOL_TEAMS_MAX */
  size_t n[PEN_POOL_TEAMS_MAX]; /* workers of each, numbered team after team */
  /* Called on each started thread before its first item; NULL: nothing.  The
   * caller's own thread, worker 0, is the caller's to prepare. */
  void (*enter)(void *ctx, size_t team);
  void *ctx; /* borrowed until the pool is freed */
};

/* Makes a pool of n_threads workers (>= 1), the calling thread counted: it
 * starts n_threads - 1 threads named "NAME-1", "NAME-2" ...  The pool is
 * owned by the caller (pen_pool_free). */
int pen_pool_create(size_t n_threads, const char *name,
                    struct pen_pool **ret_pool);

/* The same, its workers in teams: as many threads as they have members.  Team t
 * begins with the items [pen_pool_border(n_items, teams, t), border t + 1) and
 * helps the others when these are all taken, so that a team touches the same
 * part of equal jobs again and again.  teams is copied. */
int pen_pool_create_teams(const struct pen_pool_teams *teams, const char *name,
                          struct pen_pool **ret_pool);

/* Where team `team`'s share of n things begins: in proportion to its members,
 * rounded down; n for team n_teams. */
size_t pen_pool_border(size_t n, const struct pen_pool_teams *teams,
                       size_t team);

/* Calls fn(ctx, item, worker) once for each item in [0, n_items), on any
 * worker in any order; the caller is worker 0.  Returns when all are done;
 * all they wrote is then visible to the caller.  Allocates nothing.  With one
 * thread, or one item, all runs inline.  One caller at a time; fn must not
 * call pen_pool_run on the same pool.
 * For results that do not depend on the number of threads, an item must be a
 * fixed range of elements and write only its own. */
void pen_pool_run(struct pen_pool *pool, size_t n_items,
                  void (*fn)(void *ctx, size_t item, size_t worker), void *ctx);

/* Workers, the caller counted. */
size_t pen_pool_n_threads(const struct pen_pool *pool);

/* Ends the threads and frees; sets NULL.  Not while pen_pool_run runs. */
void pen_pool_free(struct pen_pool **pool);

#endif
