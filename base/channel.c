/* channel.c: ring, one mutex, two conditions.
 *
 * Invariant: n_words <= capacity; the words are first, first + 1, ... modulo
 * capacity.  Disadvantage: a lock per word; meant for tasks, not elements. */
#include "base/channel.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "base/error.h"

int pen_channel_init(struct pen_channel *channel, size_t capacity)
{
  assert(capacity > 0);
  uint64_t *words = calloc(capacity, sizeof *words);
  if (!words)
    return pen_error_set(-ENOMEM, "cannot make a channel of %zu words",
                         capacity);
  *channel = (struct pen_channel){ .words = words, .capacity = capacity };
  pthread_mutex_init(&channel->mutex, NULL);
  pthread_cond_init(&channel->not_empty, NULL);
  pthread_cond_init(&channel->not_full, NULL);
  return 0;
}

void pen_channel_done(struct pen_channel *channel)
{
  if (!channel->words)
    return;
  pthread_cond_destroy(&channel->not_full);
  pthread_cond_destroy(&channel->not_empty);
  pthread_mutex_destroy(&channel->mutex);
  free(channel->words);
  *channel = (struct pen_channel){ 0 };
}

static bool put(struct pen_channel *channel, uint64_t word, bool wait)
{
  pthread_mutex_lock(&channel->mutex);
  while (wait && !channel->closed && channel->n_words == channel->capacity)
    pthread_cond_wait(&channel->not_full, &channel->mutex);
  bool ok = !channel->closed && channel->n_words < channel->capacity;
  if (ok) {
    size_t room = channel->capacity - channel->first;
    size_t at = channel->n_words < room ? channel->first + channel->n_words
                                        : channel->n_words - room;
    channel->words[at] = word;
    channel->n_words++;
    pthread_cond_signal(&channel->not_empty);
  }
  pthread_mutex_unlock(&channel->mutex);
  return ok;
}

static bool take(struct pen_channel *channel, uint64_t *ret_word, bool wait)
{
  pthread_mutex_lock(&channel->mutex);
  while (wait && !channel->closed && channel->n_words == 0)
    pthread_cond_wait(&channel->not_empty, &channel->mutex);
  bool ok = channel->n_words > 0;
  if (ok) {
    *ret_word = channel->words[channel->first];
    channel->first = (channel->first + 1) % channel->capacity;
    channel->n_words--;
    pthread_cond_signal(&channel->not_full);
  }
  pthread_mutex_unlock(&channel->mutex);
  return ok;
}

bool pen_channel_put(struct pen_channel *channel, uint64_t word)
{
  return put(channel, word, true);
}

bool pen_channel_try_put(struct pen_channel *channel, uint64_t word)
{
  return put(channel, word, false);
}

bool pen_channel_take(struct pen_channel *channel, uint64_t *ret_word)
{
  return take(channel, ret_word, true);
}

bool pen_channel_try_take(struct pen_channel *channel, uint64_t *ret_word)
{
  return take(channel, ret_word, false);
}

void pen_channel_close(struct pen_channel *channel)
{
  pthread_mutex_lock(&channel->mutex);
  channel->closed = true;
  pthread_cond_broadcast(&channel->not_empty);
  pthread_cond_broadcast(&channel->not_full);
  pthread_mutex_unlock(&channel->mutex);
}
