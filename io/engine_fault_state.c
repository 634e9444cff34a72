/* engine_fault_state.c: which request fails, and what a power cut leaves.
 *
 * Un-synced writes are kept here, in order, and are written below only at a
 * sync; a power cut writes a seeded subset of their sectors instead.
 * Invariant: below lies exactly what would be on the drives.
 * Any thread, under the state's mutex.  Disadvantage: un-synced bytes are held
 * a second time in memory, and this engine does allocate. */
#include "io/engine_fault_state.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"

#define SECTOR 512
#define BLOCK PEN_ENGINE_ALIGN

/* splitmix64 (Steele, Lea, Flood 2014). */
uint64_t pen_fault_random(struct pen_fault_state *state)
{
  uint64_t z = state->random += UINT64_C(0x9e3779b97f4a7c15);
  z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
  return z ^ z >> 31;
}

static bool strikes(struct pen_fault_state *state,
                    enum pen_engine_fault_kind kind, uint64_t number)
{
  unsigned percent = state->config.faults[kind].percent;
  return state->config.faults[kind].at == number ||
         (percent && pen_fault_random(state) % 100 < percent);
}

struct pen_fault_verdict pen_fault_judge(struct pen_fault_state *state,
                                         bool transfer, size_t bytes)
{
  static const struct {
    enum pen_engine_fault_kind kind;
    int code;
    bool transfer_only;
  } codes[] = {
      {PEN_FAULT_EIO, -EIO, false},      {PEN_FAULT_ENOSPC, -ENOSPC, false},
      {PEN_FAULT_EINVAL, -EINVAL, false}, {PEN_FAULT_EINTR, -EINTR, true},
      {PEN_FAULT_EAGAIN, -EAGAIN, true},
  };
  struct pen_fault_verdict verdict = {.bytes = bytes};
  uint64_t number = state->n_requests++;
  if (state->cut) {
    verdict.code = -EIO;
    return verdict;
  }
  if (strikes(state, PEN_FAULT_KILL, number))
    kill(getpid(), SIGKILL);
  verdict.cut_now = strikes(state, PEN_FAULT_CUT, number);
  for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
    if (strikes(state, codes[i].kind, number) &&
        (transfer || !codes[i].transfer_only) && !verdict.code)
      verdict.code = codes[i].code;
  if (strikes(state, PEN_FAULT_SHORT, number) && transfer && bytes > 1)
    verdict.bytes = 1 + (size_t)(pen_fault_random(state) % (bytes - 1));
  if (strikes(state, PEN_FAULT_LATE, number))
    verdict.delay = 1 + (unsigned)(pen_fault_random(state) % 8);
  return verdict;
}

int pen_fault_log_write(struct pen_fault_file *file, const void *buffer,
                        size_t bytes, uint64_t offset)
{
  struct pen_fault_write *w = calloc(1, sizeof *w);
  char *data = aligned_alloc(BLOCK, (bytes + BLOCK - 1) / BLOCK * BLOCK);
  if (!w || !data) {
    free(w);
    free(data);
    return -ENOMEM;
  }
  memcpy(data, buffer, bytes);
  *w = (struct pen_fault_write){
      .offset = offset, .bytes = bytes, .data = data};
  *file->last = w;
  file->last = &w->next;
  return 0;
}

bool pen_fault_logged(const struct pen_fault_file *file, size_t bytes,
                      uint64_t offset)
{
  for (const struct pen_fault_write *w = file->first; w; w = w->next)
    if (w->offset < offset + bytes && offset < w->offset + w->bytes)
      return true;
  return false;
}

int64_t pen_fault_read_logged(struct pen_fault_file *file, void *buffer,
                              size_t bytes, uint64_t offset)
{
  int64_t got =
      file->inner->engine->read_at(file->inner, buffer, bytes, offset);
  for (const struct pen_fault_write *w = file->first; w && got > 0;
       w = w->next) {
    uint64_t end = offset + (uint64_t)got;
    uint64_t from = w->offset > offset ? w->offset : offset;
    uint64_t to = w->offset + w->bytes < end ? w->offset + w->bytes : end;
    if (from < to)
      memcpy((char *)buffer + (from - offset), w->data + (from - w->offset),
             (size_t)(to - from));
  }
  return got;
}

/* The sectors of one write that fate chooses go below. */
static void apply_some(struct pen_fault_state *state,
                       struct pen_fault_file *file,
                       const struct pen_fault_write *w, char *block)
{
  for (size_t at = 0; at < w->bytes; at += BLOCK) {
    size_t n = w->bytes - at < BLOCK ? w->bytes - at : BLOCK;
    if (pen_engine_read_whole(file->inner, block, BLOCK, w->offset + at, NULL))
      continue;
    for (size_t s = 0; s < n; s += SECTOR)
      if (pen_fault_random(state) & 1)
        memcpy(block + s, w->data + at + s, n - s < SECTOR ? n - s : SECTOR);
    pen_engine_write_whole(file->inner, block, BLOCK, w->offset + at, NULL);
  }
}

static void forget_writes(struct pen_fault_file *file)
{
  while (file->first) {
    struct pen_fault_write *w = file->first;
    file->first = w->next;
    free(w->data);
    free(w);
  }
  file->last = &file->first;
}

/* Newest first, each name is kept or undone. */
static void settle_names(struct pen_fault_state *state)
{
  while (state->names) {
    struct pen_fault_name *name = state->names;
    state->names = name->next;
    if (pen_fault_random(state) & 1) {
      if (name->from)
        state->inner->rename(state->inner, name->path, name->from);
      else
        state->inner->remove(state->inner, name->path);
    }
    free(name->path);
    free(name->from);
    free(name);
  }
}

void pen_fault_cut_power(struct pen_fault_state *state)
{
  struct pen_error standing; /* what happens below is nobody's failure */
  pen_error_take(&standing);
  state->cut = true;
  char *block = aligned_alloc(BLOCK, BLOCK);
  for (struct pen_fault_file *f = state->files; f && block; f = f->next) {
    for (const struct pen_fault_write *w = f->first; w; w = w->next)
      apply_some(state, f, w, block);
    forget_writes(f);
  }
  free(block);
  settle_names(state);
  pen_error_put(&standing);
}
