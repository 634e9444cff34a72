/* rng.h: random numbers that are a function of (seed, stream, index).
 *
 * Philox4x32-10 of Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as
 * easy as 1, 2, 3" (SC 2011): nothing to save, any number can be made alone,
 * and the number of threads cannot matter. */
#ifndef PEN_BASE_RNG_H
#define PEN_BASE_RNG_H

#include <stdint.h>

/* The raw generator: 128 random bits of a counter and a key. */
void pen_rng_philox(const uint32_t counter[4], const uint32_t key[2],
                    uint32_t ret_bits[4]);

/* Number `index` of `stream` under `seed`, uniform over all 2^32 / 2^64. */
uint32_t pen_rng_u32(uint64_t seed, uint64_t stream, uint64_t index);
uint64_t pen_rng_u64(uint64_t seed, uint64_t stream, uint64_t index);

/* Uniform in [0, n), n > 0, by 128-bit multiplication: bias below n / 2^64. */
uint64_t pen_rng_below(uint64_t seed, uint64_t stream, uint64_t index,
                       uint64_t n);

/* Uniform in [0, 1): a multiple of 2^-53. */
double pen_rng_double(uint64_t seed, uint64_t stream, uint64_t index);

/* Two independent standard normal numbers (Box and Muller): elements 2 index
 * and 2 index + 1 of a normal sequence.  Uses libm's log, sqrt, cos, sin. */
void pen_rng_normal_pair(uint64_t seed, uint64_t stream, uint64_t index,
                         double ret_pair[2]);

#endif
