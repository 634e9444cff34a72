/* stripe.c: how much of a store lies in which directory.
 *
 * The pattern is a function of the integer shares alone, so that whoever reads
 * the shares from a file finds every byte again.  Pure functions; any thread.
 * Disadvantage: shares are multiples of 1/64; a drive with less gets no
 * scratch. */
#include "io/stripe.h"

#include "base/error.h"

void pen_stripe_split(const double *weights, size_t n, uint64_t total,
                      uint64_t *ret_parts)
{
  double sum = 0, rest[PEN_STRIPE_DIRS_MAX];
  uint64_t given = 0;
  for (size_t i = 0; i < n; i++)
    sum += weights ? weights[i] : 1;
  for (size_t i = 0; i < n; i++) {
    double part = (double)total * ((weights ? weights[i] : 1) / sum);
    ret_parts[i] = (uint64_t)part;
    rest[i] = part - (double)ret_parts[i];
    given += ret_parts[i];
  }
  while (given > total) { /* rounding of doubles at very large totals */
    size_t most = 0;
    for (size_t i = 1; i < n; i++)
      if (ret_parts[i] > ret_parts[most])
        most = i;
    uint64_t excess = given - total;
    uint64_t taken = ret_parts[most] < excess ? ret_parts[most] : excess;
    ret_parts[most] -= taken;
    given -= taken;
  }
  for (; given < total; given++) {
    size_t next = 0;
    for (size_t i = 1; i < n; i++)
      if (rest[i] > rest[next])
        next = i;
    ret_parts[next]++;
    rest[next] -= 1;
  }
}

/* Each place goes to the directory that is furthest behind its share. */
int pen_stripe_init(struct pen_stripe *stripe, const uint32_t *shares,
                    size_t n)
{
  struct pen_stripe made = {.period = 0};
  for (size_t i = 0; i < n; i++) {
    if (shares[i] > PEN_STRIPE_PERIOD)
      return pen_error_set(-PEN_EFORMAT, "stripe share %u of directory %zu",
                           shares[i], i);
    made.period += made.shares[i] = shares[i];
  }
  if (made.period < 1 || made.period > PEN_STRIPE_PERIOD)
    return pen_error_set(-PEN_EFORMAT, "stripe shares add up to %u",
                         made.period);
  uint32_t used[PEN_STRIPE_DIRS_MAX] = {0};
  for (uint32_t at = 0; at < made.period; at++) {
    size_t best = 0;
    int64_t most = INT64_MIN;
    for (size_t i = 0; i < n; i++) {
      int64_t behind = (int64_t)(at + 1) * shares[i] -
                       (int64_t)used[i] * made.period;
      if (used[i] < shares[i] && behind > most) {
        most = behind;
        best = i;
      }
    }
    made.dir_of[at] = (uint8_t)best;
    made.rank_of[at] = (uint8_t)used[best]++;
  }
  *stripe = made;
  return 0;
}

uint64_t pen_stripe_bytes(const struct pen_stripe *stripe, uint64_t total,
                          size_t dir)
{
  uint64_t period_bytes = (uint64_t)stripe->period * PEN_STRIPE_BYTES;
  uint64_t bytes = total / period_bytes * stripe->shares[dir];
  bytes *= PEN_STRIPE_BYTES;
  uint64_t left = total % period_bytes;
  for (uint32_t at = 0; left; at++) {
    uint64_t n = left < PEN_STRIPE_BYTES ? left : PEN_STRIPE_BYTES;
    if (stripe->dir_of[at] == dir)
      bytes += n;
    left -= n;
  }
  return bytes;
}

size_t pen_stripe_locate(const struct pen_stripe *stripe, uint64_t position,
                         uint32_t *ret_dir, uint64_t *ret_offset)
{
  uint64_t piece = position / PEN_STRIPE_BYTES;
  uint64_t within = position % PEN_STRIPE_BYTES;
  uint32_t at = (uint32_t)(piece % stripe->period);
  uint32_t dir = stripe->dir_of[at];
  *ret_dir = dir;
  *ret_offset = (piece / stripe->period * stripe->shares[dir] +
                 stripe->rank_of[at]) * PEN_STRIPE_BYTES + within;
  return (size_t)(PEN_STRIPE_BYTES - within);
}
