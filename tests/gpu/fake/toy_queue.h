/* toy_queue.h: the toy's calls of the compute lane, run in a stream of the fake
 * runtime. */
#ifndef PEN_TESTS_GPU_FAKE_TOY_QUEUE_H
#define PEN_TESTS_GPU_FAKE_TOY_QUEUE_H

#include "offload/workload.h"

struct CUstream_st;

/* For the next toy_queue_wrap. */
void toy_queue_use(struct CUstream_st *stream);
/* Replaces the calls of the compute lane; the table stays in use for as long as
 * the run.  One at a time. */
void toy_queue_wrap(struct pen_compute *compute);

#endif
