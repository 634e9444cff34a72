/* workload.h: what the schedule knows of a model: blocks, bytes, and one table
 * of functions to call on them.  No layer, head or token is seen from here. */
#ifndef PEN_OFFLOAD_WORKLOAD_H
#define PEN_OFFLOAD_WORKLOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/state.h"

/* Element counts of blocks, and where tensors begin inside them, are multiples
 * of this, so that every tensor starts on a 64-byte line in every precision.
 * Padding elements are zero in weights, gradients and state, and stay zero. */
#define PEN_BLOCK_ALIGN_ELEMS 64

/* The gradient norm is summed in chunks of this many elements of a block,
 * whatever the tiles; tile sizes are multiples of it. */
#define PEN_NORM_CHUNK_ELEMS ((size_t)65536)

/* The elements [begin, end) of a block, decayed by AdamW or not. */
struct pen_block_range {
  size_t begin;
  size_t end;
  bool decays;
};

/* The unit of weight streaming: a decoder layer, the final norm, or a range of
 * vocabulary rows of the embedding or of the head. */
struct pen_block {
  const char *name; /* borrowed from the model, for messages and traces */
  size_t elems;     /* parameters with padding; multiple of 64 */
  const struct pen_block_range *ranges; /* ascending, covering [0, elems) */
  size_t n_ranges;
  size_t saved_bytes; /* device bytes one micro-batch keeps for backward when
                         not recomputed: a head's block its logits; 0 where
                         nothing is (rows, norm) */
  /* Of forward: operations of products, of multiply-adds outside of them (what
   * every pair of tokens costs), and elements that other operations pass over.
   * Backward takes PEN_BACKWARD_ times as much.  Of an expert: of all tokens, on
   * average. */
  double forward_flops_per_token;
  double forward_vector_flops_per_token;
  double forward_pass_elems_per_token;

  /* A body block's experts: blocks of their own, each of which does a part of
   * the work for what is routed to it; none where these are equal. */
  size_t experts_begin, experts_end;
  /* Of an expert: the body block it belongs to, and the part of all tokens that
   * it gets on average. */
  size_t owner;
  double share;
};

#define PEN_BACKWARD_PRODUCTS 2.0
#define PEN_BACKWARD_VECTOR 2.5 /* five products of pairs for two */
#define PEN_BACKWARD_PASSES 2.0

static inline size_t pen_block_n_experts(const struct pen_block *block)
{
  return block->experts_end - block->experts_begin;
}

/* Blocks in order of first use: rows (only of an untied embedding), body,
 * head; then all experts, which so are the first to leave a tier that is short.
 * With a tied embedding the rows ARE the head's blocks. */
struct pen_workload {
  const struct pen_block *blocks;
  size_t n_blocks;
  size_t rows_begin, rows_end; /* blocks that hold the embedding table */
  size_t body_begin, body_end; /* run forward in this order, backward reversed */
  size_t head_begin, head_end; /* run in this order in both passes */
  size_t experts_begin, experts_end;

  size_t weight_elem_bytes; /* 2 bf16, 4 fp32: weights and stored gradients */
  const struct pen_state_format *state; /* how optimizer state is kept */
  size_t n_micros_max;      /* micro-batches a step can have */
  /* Bytes of one micro-batch at its largest: */
  size_t act_bytes;   /* the activation between two blocks, [T, D] */
  size_t dhead_bytes; /* fp32 gradient of the head's input, [T, D] */
  size_t stats_bytes; /* running softmax statistics of the head */
  size_t work_bytes;  /* device workspace of any one compute call */
  size_t logits_bytes; /* fp32 logits a PEN_STEP_LOGITS step returns; may be 0 */
  size_t inputs_bytes; /* what put_inputs writes */
  /* fp32 gradients of the embedding's rows that a whole step can take, at most:
   * fewer than it has where a step has fewer tokens. */
  size_t rows_bytes;
  /* Where blocks have experts: */
  size_t mix_bytes;     /* what such a block and its experts hand each other */
  size_t routes_bytes;  /* who goes where, kept for backward */
  size_t balance_bytes; /* what all of them together tell the loss of balance;
                           0: there is none */

  /* Constant numbers that calls of the compute lane read, in RAM; a device with
   * memory of its own gets a copy once.  tables_bytes may be 0. */
  const void *tables;
  size_t tables_bytes;

  /* Memory in which calls of the compute lane keep what later steps need, and
   * nobody else looks; may be 0. */
  size_t kept_bytes;
};

/* Does the block hold rows of the embedding, or of the head? */
static inline bool pen_workload_is_rows(const struct pen_workload *w,
                                        size_t block)
{
  return block >= w->rows_begin && block < w->rows_end;
}

static inline bool pen_workload_is_head(const struct pen_workload *w,
                                        size_t block)
{
  return block >= w->head_begin && block < w->head_end;
}

static inline bool pen_workload_is_tied(const struct pen_workload *w)
{
  return w->rows_begin == w->head_begin;
}

/* Result of finishing a block's gradient. */
struct pen_finish_result {
  double *chunk_sumsq; /* out, one per PEN_NORM_CHUNK_ELEMS of the block */
  uint64_t *nonfinite; /* out, elements that are Inf or NaN */
};

/* What calls of the compute lane read beside weights and activations, where
 * they compute. */
struct pen_inputs {
  const void *tables; /* the workload's */
  const void *micro;  /* what put_inputs wrote for the micro-batch */
  void *kept;         /* [kept_bytes], at first with anything in it */
};

/* AdamW where the device keeps state: of a block's elements [begin, begin +
 * elems), each decayed or not as the block's ranges say. */
struct pen_device_update {
  const struct pen_adamw_params *params;
  size_t begin, elems;
  uint64_t key;     /* of random rounding, as in state.h */
  void *state;      /* arrays of the workload's format */
  void *half;       /* [elems], in and out; NULL: the format has none */
  const void *grad; /* [elems], as weight in the run's dtype */
  void *weight;     /* out */
};

/* The rows of the embedding that a step's tokens take: the i-th is number ids[i] of
 * all rows, of which a block has [begin, end), `width` elements each, and number i
 * of arrays that hold the step's rows alone. */
struct pen_step_rows {
  const uint32_t *ids; /* [n] */
  size_t n;
  size_t begin, end;
  size_t width;
};

/* What the model computes.  `micro` counts within the step; the model's `ctx`
 * holds that step's batches.  Every pointer is inside a slot the running task
 * declared.  Weights and activations have the run's dtype (bf16 or fp32).
 * Threads: gather, gather_ahead, scatter, put_inputs, keep_rows and finish_rows run
 * on the update lane and read and write RAM; all else is of the compute lane, may return before
 * its work is done, and touches no array of its slots itself, since they may
 * lie in a device's memory.  All return 0 or a negative code with its text set;
 * none allocates, blocks or logs. */
struct pen_compute {
  void *ctx;

  /* x[t] = row ids[t] of the embedding, for the tokens whose row lies in this
   * rows block; the other rows of x are left alone. */
  int (*gather)(void *ctx, size_t block, size_t micro, const void *w, void *x);
  /* The same for all of its tokens, from an array of the step's rows alone; and
   * which these are, of a rows block. */
  int (*gather_ahead)(void *ctx, size_t micro, const void *rows, void *x);
  void (*rows)(void *ctx, size_t block, struct pen_step_rows *ret_rows);

  /* inputs [inputs_bytes] = all that the compute lane's calls need to know of
   * this micro-batch, as they will get it. */
  int (*put_inputs)(void *ctx, size_t micro, void *inputs);

  /* y = block(x).  saved: block's saved_bytes to fill, or NULL when backward
   * will recompute (or there is none).  y never aliases x. */
  int (*forward)(void *ctx, size_t block, size_t micro,
                 const struct pen_inputs *in, const void *w, const void *x,
                 void *y, void *saved, void *work);

  /* d: in dL/dy, out dL/dx, in place.  grad [elems] += dL/dw.  saved NULL:
   * forward is recomputed from x first, giving the same bits. */
  int (*backward)(void *ctx, size_t block, size_t micro,
                  const struct pen_inputs *in, const void *w, const void *x,
                  const void *saved, void *d, float *grad, void *work);

  /* What a block with experts does instead of forward.  routes: who goes where;
   * counts [experts]: how much of the micro-batch each expert gets; mix: what
   * they take, and nothing yet of what they give.  balance [balance_bytes]: adds
   * to it, the first such block begins it; NULL: not wanted. */
  int (*route)(void *ctx, size_t block, size_t micro,
               const struct pen_inputs *in, const void *w, const void *x,
               void *routes, uint32_t *counts, void *mix, void *work,
               void *balance);
  /* Adds one expert's part to mix.  counts are the block's, in RAM; called only
   * where this expert's is not 0. */
  int (*expert)(void *ctx, size_t block, size_t micro, const uint32_t *counts,
                const void *w, const void *routes, void *mix, void *work);
  /* y = x + what the experts gave. */
  int (*join)(void *ctx, size_t block, size_t micro, const void *x,
              const void *mix, void *y);

  /* And instead of backward.  mix: what the experts took, and nothing yet of
   * gradients. */
  int (*join_backward)(void *ctx, size_t block, size_t micro,
                       const struct pen_inputs *in, const void *w,
                       const void *x, void *mix, void *work);
  /* d: dL/dy of the block.  Adds to the gradients in mix; grad += dL/dw. */
  int (*expert_backward)(void *ctx, size_t block, size_t micro,
                         const uint32_t *counts, const void *w,
                         const void *routes, const void *d, void *mix,
                         float *grad, void *work);
  /* d: in dL/dy, out dL/dx.  grad += dL/dw.  balance: of all blocks; may be
   * NULL. */
  int (*route_backward)(void *ctx, size_t block, size_t micro,
                        const struct pen_inputs *in, const void *w,
                        const void *x, const void *routes, void *mix, void *d,
                        float *grad, void *work, const void *balance);

  /* Start of a micro-batch's softmax statistics. */
  int (*head_begin)(void *ctx, size_t micro, float *stats);
  /* Adds one block of the vocabulary to the statistics.  saved: as in
   * forward. */
  int (*head_forward)(void *ctx, size_t block, size_t micro,
                      const struct pen_inputs *in, const void *w,
                      const void *x, float *stats, void *saved, void *work);
  /* Loss summed over the micro-batch's target tokens; with the loss of balance
   * where balance is not NULL. */
  int (*head_loss)(void *ctx, size_t micro, const struct pen_inputs *in,
                   const float *stats, const void *balance, double *ret_loss);
  /* dx (+)= of this block (first block of the head overwrites);
   * grad [elems] += dL/dw.  Gradients are of the SUMMED loss.  saved: as in
   * backward. */
  int (*head_backward)(void *ctx, size_t block, size_t micro,
                       const struct pen_inputs *in, const void *w,
                       const void *x, const float *stats, const void *saved,
                       float *dx, float *grad, void *work);
  /* d = dx rounded to the activations' dtype. */
  int (*head_end)(void *ctx, size_t micro, const float *dx, void *d);
  /* Fills this block's columns of the logits the caller asked for. */
  int (*head_logits)(void *ctx, size_t block, size_t micro,
                     const struct pen_inputs *in, const void *w, const void *x,
                     float *logits, void *work);

  /* stored [elems] = grad rounded to the stored dtype; result over the STORED
   * values. */
  int (*finish)(void *ctx, size_t block, const float *grad, void *stored,
                struct pen_finish_result *result);

  /* Only rows of the step's own tokens get a gradient as embeddings: arrays of
   * rows_bytes hold them alone, in an order of the model's own.
   * sums += the rows of d, in token order. */
  int (*scatter)(void *ctx, size_t micro, const void *d, float *sums);
  /* Of a block that is the head's too: stored [elems] = grad rounded, and the
   * step's rows of it as they are, into their places in kept. */
  int (*keep_rows)(void *ctx, size_t block, const float *grad, void *stored,
                   float *kept);
  /* The step's rows of stored [elems] = kept + sums, rounded; kept, which may be
   * used up: NULL where the block is only the embedding's, and all other rows
   * are 0.  result as of finish. */
  int (*finish_rows)(void *ctx, size_t block, const float *sums, float *kept,
                     void *stored, struct pen_finish_result *result);

  /* The bits of the update lane's; update is read before the return. */
  int (*update)(void *ctx, size_t block,
                const struct pen_device_update *update);
};

#endif
