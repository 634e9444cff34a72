/* channel.h: a bounded queue of 64-bit words between any number of threads. */
#ifndef PEN_BASE_CHANNEL_H
#define PEN_BASE_CHANNEL_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pen_channel {
  pthread_mutex_t mutex; /* guards all below */
  pthread_cond_t not_empty, not_full;
  uint64_t *words; /* [capacity], a ring */
  size_t capacity, first, n_words;
  bool closed;
};

/* Makes an open channel for up to `capacity` (> 0) words.  Only this
 * allocates.  -ENOMEM. */
int pen_channel_init(struct pen_channel *channel, size_t capacity);

/* Frees; nothing for a zeroed channel.  No thread may be in it. */
void pen_channel_done(struct pen_channel *channel);

/* Puts a word in, waiting for room.  False, nothing put, once closed. */
bool pen_channel_put(struct pen_channel *channel, uint64_t word);

/* As pen_channel_put, but false instead of waiting. */
bool pen_channel_try_put(struct pen_channel *channel, uint64_t word);

/* Takes the oldest word, waiting for one.  After a close what is queued still
 * comes out; then false, *ret_word untouched. */
bool pen_channel_take(struct pen_channel *channel, uint64_t *ret_word);

/* As pen_channel_take, but false instead of waiting. */
bool pen_channel_try_take(struct pen_channel *channel, uint64_t *ret_word);

/* No more puts; wakes all who wait.  Closing twice is allowed. */
void pen_channel_close(struct pen_channel *channel);

/* Pointers travel as words. */
static inline bool pen_channel_put_pointer(struct pen_channel *channel, void *p)
{
  return pen_channel_put(channel, (uint64_t)(uintptr_t)p);
}

/* The oldest pointer, waiting; NULL when closed and empty (so do not put
 * NULL). */
static inline void *pen_channel_take_pointer(struct pen_channel *channel)
{
  uint64_t word = 0;
  pen_channel_take(channel, &word);
  return (void *)(uintptr_t)word;
}

#endif
