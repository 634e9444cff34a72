/* rope.h: tables of rotary position embedding, with every way of scaling. */
#ifndef PEN_SRC_MODEL_ROPE_H
#define PEN_SRC_MODEL_ROPE_H

#include <stdbool.h>
#include <stddef.h>

#include "src/model/config.h"

/* Angle per position of pair i in [0, dim / 2): theta^(-2i / dim), scaled as
 * transformers' modeling_rope_utils does.  is_long: in sequences that are longer
 * than original_max_positions. */
double pen_rope_frequency(const struct pen_rope_config *rope, bool is_long,
                          size_t i);

/* Rows of a table for positions [0, n_positions): twice as many where long
 * sequences turn otherwise than short ones. */
size_t pen_rope_rows(const struct pen_rope_config *rope, size_t n_positions);

/* The row of position 0 in a sequence of this length. */
size_t pen_rope_first_row(const struct pen_rope_config *rope,
                          size_t n_positions, size_t length);

/* cosines, sines [pen_rope_rows, dim / 2], times the attention factor; computed
 * in double and rounded once. */
void pen_rope_fill(const struct pen_rope_config *rope, size_t n_positions,
                   float *cosines, float *sines);

#endif
