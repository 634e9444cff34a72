/* stripe.h: how much of a store lies in which directory.
 *
 * Shares in proportion to weights; and for scratch bytes, which have no
 * extents, a pattern of PEN_STRIPE_BYTES pieces that repeats.  Pure functions;
 * any thread. */
#ifndef PEN_IO_STRIPE_H
#define PEN_IO_STRIPE_H

#include <stddef.h>
#include <stdint.h>

#define PEN_STRIPE_BYTES ((size_t)1 << 20)
#define PEN_STRIPE_PERIOD 64 /* pieces after which the pattern repeats */
#define PEN_STRIPE_DIRS_MAX 16

struct pen_stripe {
  uint32_t period;
  uint32_t shares[PEN_STRIPE_DIRS_MAX];  /* pieces of each directory in it */
  uint8_t dir_of[PEN_STRIPE_PERIOD];     /* [period] */
  uint8_t rank_of[PEN_STRIPE_PERIOD];    /* among the directory's own */
};

/* Splits `total` units in proportion to weights [n] (NULL: equal) by largest
 * remainder: the parts add up to `total` exactly. */
void pen_stripe_split(const double *weights, size_t n, uint64_t total,
                      uint64_t *ret_parts);

/* -PEN_EFORMAT when the shares do not add up to 1..PEN_STRIPE_PERIOD. */
int pen_stripe_init(struct pen_stripe *stripe, const uint32_t *shares,
                    size_t n);

/* Bytes of directory `dir` when `total` bytes are striped. */
uint64_t pen_stripe_bytes(const struct pen_stripe *stripe, uint64_t total,
                          size_t dir);

/* Where byte `position` lies; returns how many bytes follow there. */
size_t pen_stripe_locate(const struct pen_stripe *stripe, uint64_t position,
                         uint32_t *ret_dir, uint64_t *ret_offset);

#endif
