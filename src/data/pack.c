/* Best fit decreasing.
 *
 * Rows with the same room left are a stack; which rooms have a row is a tree of
 * bits, 64 to a word, so that the fullest row with enough room is found in a few
 * steps, however many rows there are.  Invariant: every row is in the stack of
 * its room.  Any thread; pure.
 *
 * Disadvantage: while packing 32 bytes of RAM per sequence, and 16 per token of
 * a row's capacity. */
#include "src/data/pack.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/error.h"

#define LEVELS 6 /* 64^6 > 2^32 */
#define NONE UINT64_MAX

/* A set of numbers below n; level 0 has a bit for each, each next one a bit for
 * each word of the one before that is not 0. */
struct set {
  uint64_t *words[LEVELS];
  uint64_t n_words[LEVELS];
};

static int set_init(struct set *set, uint64_t n)
{
  *set = (struct set){ 0 };
  for (int level = 0; level < LEVELS; level++) {
    n = (n + 63) / 64;
    set->n_words[level] = n;
    set->words[level] = calloc(n, sizeof *set->words[level]);
    if (!set->words[level])
      return -ENOMEM;
  }
  return 0;
}

static void set_done(struct set *set)
{
  for (int level = 0; level < LEVELS; level++)
    free(set->words[level]);
}

static void set_add(struct set *set, uint64_t i)
{
  for (int level = 0; level < LEVELS; level++, i /= 64)
    set->words[level][i / 64] |= UINT64_C(1) << i % 64;
}

static void set_remove(struct set *set, uint64_t i)
{
  for (int level = 0; level < LEVELS; level++, i /= 64)
    if (set->words[level][i / 64] &= ~(UINT64_C(1) << i % 64))
      return;
}

/* The smallest member from i on, or NONE. */
static uint64_t set_next(const struct set *set, uint64_t i)
{
  for (int level = 0; level < LEVELS; level++) {
    uint64_t word = i / 64;
    if (word >= set->n_words[level])
      return NONE;
    uint64_t bits = set->words[level][word] >> i % 64 << i % 64;
    if (bits) {
      i = word * 64 + (uint64_t)__builtin_ctzll(bits);
      while (level--)
        i = i * 64 + (uint64_t)__builtin_ctzll(set->words[level][i]);
      return i;
    }
    i = word + 1;
  }
  return NONE;
}

struct packer {
  const uint32_t *lengths; /* [n] */
  uint64_t n, n_rows, capacity;
  uint64_t *by_length; /* [n] ids, longest first, equal ones ascending */
  uint64_t *row_of;    /* [n] */
  uint64_t *top;       /* [capacity+1] row on the stack of this room, or NONE */
  uint64_t *below;     /* [n] of a row, in its stack */
  struct set rooms;    /* with a row */
};

/* Counting sort; `top` counts meanwhile. */
static void sort_by_length(struct packer *p)
{
  uint64_t place = 0;

  for (uint64_t i = 0; i < p->n; i++)
    p->top[p->lengths[i]]++;
  for (uint64_t length = p->capacity + 1; length-- > 0;) {
    uint64_t count = p->top[length];
    p->top[length] = place;
    place += count;
  }
  for (uint64_t i = 0; i < p->n; i++)
    p->by_length[p->top[p->lengths[i]]++] = i;
}

static void stack_push(struct packer *p, uint64_t room, uint64_t row)
{
  if (p->top[room] == NONE)
    set_add(&p->rooms, room);
  p->below[row] = p->top[room];
  p->top[room] = row;
}

static uint64_t stack_pop(struct packer *p, uint64_t room)
{
  uint64_t row = p->top[room];

  p->top[room] = p->below[row];
  if (p->top[room] == NONE)
    set_remove(&p->rooms, room);
  return row;
}

static void lay_all(struct packer *p)
{
  for (uint64_t room = 0; room <= p->capacity; room++)
    p->top[room] = NONE;
  for (uint64_t i = 0; i < p->n; i++) {
    uint64_t id = p->by_length[i], length = p->lengths[id];
    uint64_t room = set_next(&p->rooms, length), row;
    if (room == NONE) {
      room = p->capacity;
      row = p->n_rows++;
    } else {
      row = stack_pop(p, room);
    }
    p->row_of[id] = row;
    stack_push(p, room - length, row);
  }
}

/* The result, by a counting sort of the ids by row. */
static int gather(struct packer *p, struct pen_pack *ret_pack)
{
  struct pen_pack pack = { .n_rows = p->n_rows,
                           .row_begin = calloc(p->n_rows + 2, sizeof *pack.row_begin),
                           .ids = calloc(p->n, sizeof *pack.ids) };

  if (!pack.row_begin || !pack.ids) {
    pen_pack_free(&pack);
    return -ENOMEM;
  }
  /* begin[r + 1] is where row r's next id goes, and at the end where it ends */
  for (uint64_t i = 0; i < p->n; i++)
    pack.row_begin[p->row_of[i] + 2]++;
  for (uint64_t row = 0; row < p->n_rows; row++)
    pack.row_begin[row + 2] += pack.row_begin[row + 1];
  for (uint64_t i = 0; i < p->n; i++)
    pack.ids[pack.row_begin[p->row_of[i] + 1]++] = i;
  *ret_pack = pack;
  return 0;
}

int pen_pack_best_fit(const uint32_t *lengths, uint64_t n, uint32_t capacity,
                      struct pen_pack *ret_pack)
{
  struct packer p = { .lengths = lengths, .n = n, .capacity = capacity };
  uint64_t total = 0;

  for (uint64_t i = 0; i < n; i++) {
    assert(lengths[i] >= 1 && lengths[i] <= capacity);
    total += lengths[i];
  }
  if (total < p.capacity)
    p.capacity = total; /* one row holds all: no tables for what is never used */
  p.by_length = calloc(n, sizeof *p.by_length);
  p.row_of = calloc(n, sizeof *p.row_of);
  p.below = calloc(n, sizeof *p.below);
  p.top = calloc(p.capacity + 1, sizeof *p.top);
  int r = set_init(&p.rooms, p.capacity + 1);
  if (!p.by_length || !p.row_of || !p.below || !p.top)
    r = -ENOMEM;
  if (r == 0) {
    sort_by_length(&p);
    lay_all(&p);
    r = gather(&p, ret_pack);
  }
  set_done(&p.rooms);
  free(p.by_length);
  free(p.row_of);
  free(p.below);
  free(p.top);
  return r < 0 ? pen_error_set(r, "cannot pack %" PRIu64 " sequences into rows of %" PRIu32
                               " tokens", n, capacity) : 0;
}

void pen_pack_free(struct pen_pack *pack)
{
  free(pack->row_begin);
  free(pack->ids);
  *pack = (struct pen_pack){ 0 };
}
