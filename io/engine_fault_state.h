/* engine_fault_state.h: what the two halves of the fault engine share. */
#ifndef PEN_IO_ENGINE_FAULT_STATE_H
#define PEN_IO_ENGINE_FAULT_STATE_H

#include <pthread.h>

#include "io/engine.h"
#include "io/engine_fault.h"

/* A write that is not synced: not yet below, if power may be cut. */
struct pen_fault_write {
  struct pen_fault_write *next;
  uint64_t offset;
  size_t bytes;
  char *data; /* aligned */
};

struct pen_fault_file {
  struct pen_engine_file base;
  struct pen_engine_file *inner;
  struct pen_fault_file *next; /* in state->files */
  struct pen_fault_write *first, **last;
};

/* A name that is not synced: made, or moved from somewhere. */
struct pen_fault_name {
  struct pen_fault_name *next;
  char *path;
  char *from; /* NULL: made */
};

struct pen_fault_state {
  struct pen_engine row; /* what callers hold; row.context is this */
  const struct pen_engine *inner;
  struct pen_engine_fault_config config;
  bool logs; /* power may be cut: un-synced writes are kept here */

  pthread_mutex_t mutex; /* over all below and every file's writes */
  uint64_t n_requests;
  uint64_t random; /* state of the generator */
  bool cut;
  struct pen_fault_file *files;
  struct pen_fault_name *names;
};

/* What shall happen to one request. */
struct pen_fault_verdict {
  int code;       /* 0: go on */
  size_t bytes;   /* of them are to be reported moved */
  unsigned delay; /* reaps by which its completion is held back */
  bool cut_now;   /* power is to be cut once this request is under way */
};

static inline struct pen_fault_state *
pen_fault_state(const struct pen_engine *engine)
{
  return engine->context;
}

/* All with the mutex held. */
uint64_t pen_fault_random(struct pen_fault_state *state);
struct pen_fault_verdict pen_fault_judge(struct pen_fault_state *state,
                                         bool transfer, size_t bytes);
void pen_fault_cut_power(struct pen_fault_state *state);
int pen_fault_log_write(struct pen_fault_file *file, const void *buffer,
                        size_t bytes, uint64_t offset);
bool pen_fault_logged(const struct pen_fault_file *file, size_t bytes,
                      uint64_t offset);
/* Reads below and puts what is logged over it. */
int64_t pen_fault_read_logged(struct pen_fault_file *file, void *buffer,
                              size_t bytes, uint64_t offset);

/* The ring half's hooks. */
int pen_fault_ring_create(const struct pen_engine *engine, size_t depth,
                          struct pen_engine_file *const *files, size_t n_files,
                          const struct pen_engine_region *regions,
                          size_t n_regions, struct pen_engine_ring **ret_ring);
void pen_fault_ring_free(struct pen_engine_ring **ring);
int pen_fault_ring_submit(struct pen_engine_ring *ring,
                          const struct pen_engine_request *requests, size_t n);
int pen_fault_ring_reap(struct pen_engine_ring *ring, size_t min, size_t max,
                        struct pen_engine_completion *ret_completions);

#endif
