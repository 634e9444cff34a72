/* speculation.c: counts of early updates, and the rule that leaves them out.
 *
 * A step that misses costs its early updates twice, so that they pay only while
 * most stand.  Pure.  Disadvantage: a run that is resumed begins to count anew. */
#include "src/train/speculation.h"

static unsigned n_misses(uint32_t bits)
{
  unsigned n = 0;
  for (; bits; bits &= bits - 1)
    n++;
  return n;
}

bool pen_speculation_may(const struct pen_speculation *speculation)
{
  return n_misses(speculation->misses) < PEN_SPECULATION_MISSES;
}

void pen_speculation_note(struct pen_speculation *speculation,
                          enum pen_speculation_outcome outcome, bool missed)
{
  uint32_t kept = (UINT32_C(1) << PEN_SPECULATION_STEPS) - 1;
  speculation->misses = (speculation->misses << 1 | missed) & kept;
  speculation->n[outcome]++;
}

const char *pen_speculation_name(enum pen_speculation_outcome outcome)
{
  static const char *const names[PEN_SPECULATION_OUTCOMES] = {
      "waited", "stood", "redone", "discarded"};
  return names[outcome];
}
