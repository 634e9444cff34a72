/* attention_oracle.h: attention and its gradients in double, each result with
 * the distance that an fp32 or bf16 computation of it may have. */
#ifndef PEN_TESTS_GPU_ATTENTION_ORACLE_H
#define PEN_TESTS_GPU_ATTENTION_ORACLE_H

#include "kernels/ops.h"

struct attention_bound {
  double value, allowed;
};

/* Dense arrays: q, d_o, o [tokens, heads, dim]; k, v [tokens, kv_heads, dim];
 * lse [heads, tokens] (used by backward alone).  Strides in `a` are ignored.
 * elem: what probabilities and results are rounded to. */
struct attention_case {
  const struct pen_attention *a;
  enum pen_elem elem;
  const double *q, *k, *v, *o, *d_o, *lse;
};

void attention_oracle(const struct attention_case *c,
                      struct attention_bound *o, struct attention_bound *lse);
void attention_oracle_backward(const struct attention_case *c,
                               struct attention_bound *dq,
                               struct attention_bound *dk,
                               struct attention_bound *dv);

#endif
