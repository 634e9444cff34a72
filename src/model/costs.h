/* costs.h: what a block's arithmetic takes, for planning. */
#ifndef PEN_SRC_MODEL_COSTS_H
#define PEN_SRC_MODEL_COSTS_H

#include "src/model/params.h"

/* Fills the costs of the table's blocks beside products.  document_tokens: mean
 * length of documents. */
void pen_costs_fill(struct pen_params *params, double document_tokens);

#endif
