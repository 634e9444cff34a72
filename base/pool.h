/* pool.h: worker threads that share the items of one call after another. */
#ifndef PEN_BASE_POOL_H
#define PEN_BASE_POOL_H

#include <stddef.h>

struct pen_pool;

/* Makes a pool of n_threads workers (>= 1), the calling thread counted: it
 * starts n_threads - 1 threads named "NAME-1", "NAME-2" ...  The pool is
 * owned by the caller (pen_pool_free). */
int pen_pool_create(size_t n_threads, const char *name,
                    struct pen_pool **ret_pool);

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
