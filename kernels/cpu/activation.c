/* activation.c: activations, gated or not, and soft caps; forward and backward.
 *
 * Pool items are ranges of rows.  Each activation is one function of value and
 * slope, compiled into the loops of both directions.  Disadvantage: forward
 * computes slopes that the compiler has to throw away. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/sigmoid.h"

#define ITEM_ELEMS ((size_t)16384)

static size_t rows_per_item(size_t cols)
{
  return cols < ITEM_ELEMS ? ITEM_ELEMS / cols : 1;
}

/* ---- activations: f(a) and f'(a) ---- */

struct point {
  v16 value, slope;
};

/* With g = sigmoid(a): f = a g, f' = g (1 + a (1 - g)). */
PEN_INLINE struct point silu(v16 a)
{
  v16 one = v16_set1(1), g = v16_sigmoid(a);
  return (struct point){v16_mul(a, g),
                        v16_mul(g, v16_muladd(one, a, v16_sub(one, g)))};
}

/* a (1 + tanh u) / 2 with u = sqrt(2 / pi) (a + 0.044715 a^3); and
 * (1 + tanh u) / 2 = sigmoid(2 u) = g, so f' = g + a g (1 - g) 2 u'. */
PEN_INLINE struct point gelu_tanh(v16 a)
{
  v16 one = v16_set1(1), square = v16_mul(a, a);
  v16 two_c = v16_set1(1.59576912f);
  v16 two_u = v16_mul(two_c, v16_muladd(a, v16_mul(a, square),
                                        v16_set1(0.044715f)));
  v16 two_du = v16_mul(two_c, v16_muladd(one, square, v16_set1(0.134145f)));
  v16 g = v16_sigmoid(two_u);
  v16 bend = v16_mul(v16_mul(g, v16_sub(one, g)), two_du);
  return (struct point){v16_mul(a, g), v16_muladd(g, a, bend)};
}

/* a times the normal distribution at a. */
PEN_INLINE struct point gelu(v16 a)
{
  v16 density, distribution;
  v16_normal(a, &density, &distribution);
  return (struct point){v16_mul(a, distribution),
                        v16_muladd(distribution, a, density)};
}

/* ---- y = f(gate) up ---- */

struct glu_args {
  size_t rows, cols, ld;
  const elem_t *gate, *up, *dy; /* up, dup NULL: no gating, y = f(gate) */
  elem_t *y, *dgate, *dup;
};

PEN_INLINE v16 load_up(const struct glu_args *g, size_t at, size_t n)
{
  return g->up ? elem_load_n(g->up + at, n) : v16_set1(1);
}

PEN_INLINE void glu_rows(const struct glu_args *g, size_t item,
                         struct point (*f)(v16))
{
  size_t per_item = rows_per_item(g->cols);
  size_t end = PEN_MIN(g->rows, (item + 1) * per_item);
  for (size_t t = item * per_item; t < end; t++)
    for (size_t i = 0; i < g->cols; i += 16) {
      size_t n = PEN_LEFT(g->cols, i), at = t * g->ld + i;
      struct point p = f(elem_load_n(g->gate + at, n));
      elem_store_n(g->y + t * g->cols + i, v16_mul(p.value, load_up(g, at, n)),
                   n);
    }
}

PEN_INLINE void glu_backward_rows(const struct glu_args *g, size_t item,
                                  struct point (*f)(v16))
{
  size_t per_item = rows_per_item(g->cols);
  size_t end = PEN_MIN(g->rows, (item + 1) * per_item);
  for (size_t t = item * per_item; t < end; t++)
    for (size_t i = 0; i < g->cols; i += 16) {
      size_t n = PEN_LEFT(g->cols, i), at = t * g->ld + i;
      v16 dy = elem_load_n(g->dy + t * g->cols + i, n);
      struct point p = f(elem_load_n(g->gate + at, n));
      v16 dvalue = v16_mul(dy, load_up(g, at, n));
      elem_store_n(g->dgate + at, v16_mul(dvalue, p.slope), n);
      if (g->dup)
        elem_store_n(g->dup + at, v16_mul(dy, p.value), n);
    }
}

#define ACTIVATION(f)                                                         \
  static void f##_rows(void *ctx, size_t item, size_t worker)                 \
  {                                                                           \
    glu_rows(ctx, item, f);                                                   \
  }                                                                           \
  static void f##_backward_rows(void *ctx, size_t item, size_t worker)        \
  {                                                                           \
    glu_backward_rows(ctx, item, f);                                          \
  }
ACTIVATION(silu)
ACTIVATION(gelu_tanh)
ACTIVATION(gelu)
#undef ACTIVATION

static const struct {
  void (*forward)(void *ctx, size_t item, size_t worker);
  void (*backward)(void *ctx, size_t item, size_t worker);
} activations[] = {
    [PEN_ACTIVATION_SILU] = {silu_rows, silu_backward_rows},
    [PEN_ACTIVATION_GELU_TANH] = {gelu_tanh_rows, gelu_tanh_backward_rows},
    [PEN_ACTIVATION_GELU] = {gelu_rows, gelu_backward_rows},
};

static size_t n_items(size_t rows, size_t cols)
{
  size_t per_item = rows_per_item(cols);
  return (rows + per_item - 1) / per_item;
}

void pen_cpu_glu(struct pen_stream *s, enum pen_activation f, size_t rows,
                 size_t cols, const void *gate, const void *up, size_t ld,
                 void *y)
{
  struct glu_args g = {.rows = rows, .cols = cols, .ld = ld,
                       .gate = gate, .up = up, .y = y};
  pen_stream_run(s, n_items(rows, cols), activations[f].forward, &g);
}

void pen_cpu_glu_backward(struct pen_stream *s, enum pen_activation f,
                          size_t rows, size_t cols, const void *dy,
                          const void *gate, const void *up, size_t ld,
                          void *dgate, void *dup)
{
  struct glu_args g = {.rows = rows, .cols = cols, .ld = ld,
                       .gate = gate, .up = up, .dy = dy,
                       .dgate = dgate, .dup = dup};
  pen_stream_run(s, n_items(rows, cols), activations[f].backward, &g);
}

/* ---- x = cap tanh(x / cap) ---- */

struct softcap_args {
  size_t rows, cols, ld;
  float cap;
  float *x;
  const float *y;
  elem_t *d;
};

static void softcap_rows(void *ctx, size_t item, size_t worker)
{
  const struct softcap_args *g = ctx;
  size_t per_item = rows_per_item(g->cols);
  size_t end = PEN_MIN(g->rows, (item + 1) * per_item);
  v16 cap = v16_set1(g->cap);
  for (size_t t = item * per_item; t < end; t++)
    for (size_t i = 0; i < g->cols; i += 16) {
      size_t n = PEN_LEFT(g->cols, i);
      float *x = g->x + t * g->ld + i;
      v16 capped = v16_tanh(v16_div(v16_load_n(x, n), cap));
      v16_store_n(x, v16_mul(cap, capped), n);
    }
}

void pen_cpu_softcap(struct pen_stream *s, size_t rows, size_t cols, float cap,
                     float *x, size_t ld)
{
  struct softcap_args g = {.rows = rows, .cols = cols, .ld = ld, .cap = cap,
                           .x = x};
  pen_stream_run(s, n_items(rows, cols), softcap_rows, &g);
}

static void softcap_backward_rows(void *ctx, size_t item, size_t worker)
{
  const struct softcap_args *g = ctx;
  size_t per_item = rows_per_item(g->cols);
  size_t end = PEN_MIN(g->rows, (item + 1) * per_item);
  v16 cap = v16_set1(g->cap), one = v16_set1(1);
  for (size_t t = item * per_item; t < end; t++)
    for (size_t i = 0; i < g->cols; i += 16) {
      size_t n = PEN_LEFT(g->cols, i);
      elem_t *d = g->d + t * g->cols + i;
      v16 y = v16_div(v16_load_n(g->y + t * g->ld + i, n), cap);
      v16 slope = v16_sub(one, v16_mul(y, y));
      elem_store_n(d, v16_mul(elem_load_n(d, n), slope), n);
    }
}

void pen_cpu_softcap_backward(struct pen_stream *s, size_t rows, size_t cols,
                              float cap, const float *y, size_t ld, void *d)
{
  struct softcap_args g = {.rows = rows, .cols = cols, .ld = ld, .cap = cap,
                           .y = y, .d = d};
  pen_stream_run(s, n_items(rows, cols), softcap_backward_rows, &g);
}
