/* mixture.h: the MLP of a layer as a mixture of experts: the router, one expert
 * on the tokens that go to it, and how they are joined. */
#ifndef PEN_SRC_MODEL_MIXTURE_H
#define PEN_SRC_MODEL_MIXTURE_H

#include <stddef.h>
#include <stdint.h>

#include "src/model/layer_layout.h"

/* What all layers with experts share; offsets are in bytes, from the sizes at
 * max_tokens, 64-aligned. */
struct pen_mixture {
  size_t experts, per_token; /* 0: the model has none */
  bool normalises;
  size_t n_layers; /* that have experts */
  double balance_coef;
  /* In the routes of a micro-batch: the arrays of struct pen_routing. */
  size_t rows_at, places_at, chosen_at, weights_at, probs_at;
  /* In what router and experts hand each other: [T, C] E that the experts take;
   * [T, C] fp32 sums of what they give, or in backward of the gradient of what
   * they took; [T, per_token] gradients of weights. */
  size_t in_at, sums_at, dweights_at;
  size_t routes_bytes, mix_bytes;
  size_t balance_bytes; /* fp32 [2, experts] of route (ops.h); 0: no loss */
};

void pen_mixture_init(struct pen_mixture *m, const struct pen_params *params,
                      enum pen_elem elem, size_t max_tokens);

/* c is the router's block's call, or the expert's. */

/* As struct pen_compute says.  is_first: begins the balance. */
void pen_mixture_route(const struct pen_mixture *m,
                       const struct pen_layer_call *c, const void *x,
                       void *routes, uint32_t *counts, void *mix,
                       float *balance, bool is_first);
void pen_mixture_join(const struct pen_mixture *m,
                      const struct pen_layer_call *c, const void *x,
                      const void *mix, void *y);
void pen_mixture_join_backward(const struct pen_mixture *m,
                               const struct pen_layer_call *c, const void *x,
                               void *mix);
/* balance NULL: no loss of it; scale: pen_mixture_balance_scale. */
void pen_mixture_route_backward(const struct pen_mixture *m,
                                const struct pen_layer_call *c, const void *x,
                                const void *routes, const float *balance,
                                float scale, void *mix, void *d, float *grad);

/* Which expert it is and how many tokens each of them gets. */
struct pen_mixture_part {
  size_t expert;
  const uint32_t *counts; /* [experts], in RAM */
};

void pen_mixture_expert(const struct pen_mixture *m,
                        const struct pen_layer_call *c,
                        struct pen_mixture_part part, const void *routes,
                        void *mix);
void pen_mixture_expert_backward(const struct pen_mixture *m,
                                 const struct pen_layer_call *c,
                                 struct pen_mixture_part part,
                                 const void *routes, const void *d, void *mix,
                                 float *grad);

/* Of route_balance, for a micro-batch's summed loss: so many times coef as it
 * has targets (transformers adds coef times the balance to the mean). */
float pen_mixture_balance_scale(const struct pen_mixture *m, size_t tokens,
                                size_t targets);

#endif
