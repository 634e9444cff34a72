/* params_part.h: what the files that build a parameter table share.  For
 * src/model/params*.c only. */
#ifndef PEN_SRC_MODEL_PARAMS_PART_H
#define PEN_SRC_MODEL_PARAMS_PART_H

#include "src/model/params.h"

/* Names are taken; NULL: out of memory.  All return 0 or a negative code. */

/* A printf into new memory; NULL when it is out. */
char *pen_params_text(const char *format, ...)
    __attribute__((format(printf, 1, 2)));

/* Starts the next tensor. */
int pen_params_add_tensor(struct pen_params *p, char *name,
                          enum pen_param_role role, size_t layer, size_t rows,
                          size_t cols, size_t *ret_tensor);

/* Opens the next block; puts rows [row_begin, +rows) of a tensor at its end;
 * closes it: elements up to `split` have one decay, the rest the other. */
void pen_params_begin_block(struct pen_params *p,
                            enum pen_param_block_kind kind);
void pen_params_add(struct pen_params *p, size_t tensor, size_t row_begin,
                    size_t rows);
int pen_params_end_block(struct pen_params *p, size_t split, bool first_decays,
                         char *name);

/* Tensors that a layer's block of this kind has. */
size_t pen_params_count_tensors(const struct pen_model_config *c,
                                enum pen_param_block_kind kind);

/* A layer's block, or two; and the experts of all layers. */
int pen_params_add_layer(struct pen_params *p, size_t layer);
int pen_params_add_experts(struct pen_params *p);

#endif
