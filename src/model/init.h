/* init.h: the first weights of a new model. */
#ifndef PEN_SRC_MODEL_INIT_H
#define PEN_SRC_MODEL_INIT_H

#include <stddef.h>
#include <stdint.h>

#include "src/model/params.h"

/* out [n] = elements [begin, begin + n) of a block of a new model: matrices
 * normal with standard deviation config.init_std, norms 1, biases, padding and
 * padded vocabulary rows 0.  An element depends on (seed, tensor name, index in
 * the tensor) alone, so that blocks, order and threads do not matter.  Any
 * thread; allocates nothing. */
int pen_init_elems(const struct pen_params *params, uint64_t seed,
                   size_t block, size_t begin, size_t n, float *out);

#endif
