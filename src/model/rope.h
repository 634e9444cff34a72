/* rope.h: tables of rotary position embedding, with every way of scaling. */
#ifndef PEN_SRC_MODEL_ROPE_H
#define PEN_SRC_MODEL_ROPE_H

#include <stddef.h>

#include "src/model/config.h"

/* Angle per position of pair i in [0, head_dim / 2): theta^(-2i / head_dim),
 * scaled as transformers' modeling_rope_utils does. */
double pen_rope_frequency(const struct pen_rope_config *rope, size_t head_dim,
                          size_t i);

/* cosines, sines [n_positions, head_dim / 2], times the attention factor;
 * computed in double and rounded once. */
void pen_rope_fill(const struct pen_rope_config *rope, size_t head_dim,
                   size_t n_positions, float *cosines, float *sines);

#endif
