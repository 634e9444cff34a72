/* shapes.h: what the operations of ops.h are told about their arrays; plain
 * data that host C and device code share.  Strides and counts are in elements. */
#ifndef PEN_KERNELS_SHAPES_H
#define PEN_KERNELS_SHAPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Sums over rows (gradients of norms and biases) are made per chunk of this
 * many rows, then over the chunks. */
#define PEN_OPS_ROW_CHUNK ((size_t)64)

/* fp32 elements of `partials` that such sums need. */
static inline size_t pen_ops_partials_elems(size_t rows, size_t cols)
{
  return (rows + PEN_OPS_ROW_CHUNK - 1) / PEN_OPS_ROW_CHUNK * cols;
}

/* Vectors inside rows: element (t, h, i) is at t * stride + h * dim + i. */
struct pen_heads {
  size_t tokens, heads, dim;
};

/* What lies between a network's two products; f in glu. */
enum pen_activation {
  PEN_ACTIVATION_SILU,      /* a sigmoid(a) */
  PEN_ACTIVATION_GELU_TANH, /* a (1 + tanh(sqrt(2/pi) (a + 0.044715 a^3))) / 2 */
  PEN_ACTIVATION_GELU,      /* a (1 + erf(a / sqrt 2)) / 2 */
};

#define PEN_ATTENTION_DIM_MAX ((size_t)1024) /* of a head */

/* Causal attention of packed documents, grouped queries: query head h reads
 * key head h / (heads / kv_heads); token t sees [first_key[t], t]. */
struct pen_attention {
  size_t tokens, heads, kv_heads, dim;
  float scale;               /* of q k^T */
  float softcap; /* scores s become softcap tanh(s / softcap); 0: they stay */
  const uint32_t *first_key; /* [tokens], ascending: its document's begin, or
                                where a sliding window begins */
  size_t ldq, ldk, ldv;      /* token strides of q, k and v */
  size_t ldo;                /* of o and its gradient */
  size_t ldd;                /* of dq, dk and dv */
};

/* The host's backward cuts the keys into spans that begin at these parts of 128
 * of all tiles of tokens: a causal triangle in four equal areas.  Each has its
 * own sum of dq, for the tokens from its begin on. */
enum { PEN_ATTENTION_SPANS = 4 };
#define PEN_ATTENTION_SPAN_BEGINS {0, 17, 38, 64, 128}

/* Workspace of attention's backward, fp32 elements a token: delta, and the sums
 * of dq (393 = 128 + 111 + 90 + 64) in rows of whole 64s. */
static inline size_t pen_attention_work_per_token(size_t heads, size_t dim)
{
  size_t row = (dim + 63) / 64 * 64;
  return heads * (1 + (row * 393 + 127) / 128);
}

/* Attention of new tokens of one document over all before them, whose keys and
 * values are in a cache: for each of them `pen_attention_cache_elems` elements,
 * in an order that is the backend's own. */
struct pen_attention_cache {
  size_t tokens, heads, kv_heads, dim;
  float scale, softcap;
  size_t first;    /* tokens that the cache holds already */
  size_t capacity; /* tokens it has room for, at least first + tokens */
  size_t window;   /* tokens that a token sees, itself too; 0: all before it */
  size_t ldq, ldk, ldv, ldo;
};

/* Tokens of a cache are kept in tiles of this many. */
#define PEN_OPS_CACHE_TILE ((size_t)64)

static inline size_t pen_attention_cache_elems(size_t capacity,
                                               size_t kv_heads, size_t dim)
{
  return (capacity + PEN_OPS_CACHE_TILE - 1) / PEN_OPS_CACHE_TILE *
         PEN_OPS_CACHE_TILE * kv_heads * dim;
}

/* Which experts the tokens of a micro-batch go to.  The arrays are filled by
 * route and read by all else. */
struct pen_routing {
  size_t tokens, experts, per_token;
  bool normalise;   /* a token's weights are made to sum to 1 */
  uint32_t *counts; /* [experts]: how many tokens each gets */
  uint32_t *rows;   /* [tokens * per_token]: these tokens, expert after expert,
                       each one's in order */
  uint32_t *places; /* [tokens * per_token]: where a row's weight is */
  uint32_t *chosen; /* [tokens, per_token]: experts, the most probable first */
  float *weights;   /* [tokens, per_token] */
  float *probs;     /* [tokens, experts] */
};

/* The tokens of one expert, none of them twice; arrays as in pen_routing. */
struct pen_expert_rows {
  size_t n, dim;
  const uint32_t *rows, *places;
  const float *weights; /* NULL: all 1 */
};

/* fp32 statistics of the softmax over the vocabulary, [3, tokens]. */
enum { PEN_XENT_MAX, PEN_XENT_SUM, PEN_XENT_TARGET, PEN_XENT_ROWS };

/* Logits of some tokens and some of the vocabulary: [rows, cols] fp32 at row
 * stride ld; row r is token first_token + r, column c is id first_id + c. */
struct pen_logits {
  size_t rows, cols, ld;
  size_t first_token, first_id;
  size_t tokens;          /* of the whole micro-batch: stride of the stats */
  const int32_t *targets; /* [tokens]; negative: no loss */
};

#endif
