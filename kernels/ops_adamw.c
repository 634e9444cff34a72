/* ops_adamw.c: the host's adamw and state_update, for the CPU as a device that keeps state: pieces
 * of a range on the stream's pool.
 *
 * Disadvantage: a range of one piece keeps all but one worker idle. */
#include "kernels/ops_adamw.h"

#include <string.h>

#define PIECE_ELEMS ((size_t)32768)

struct adamw_args {
  enum pen_isa isa;
  const struct pen_adamw_params *params;
  bool decays;
  size_t n;
  float *p, *m, *v;
  const void *grad;
  void *weight;
};

static size_t piece_elems(const struct adamw_args *a, size_t begin)
{
  return a->n - begin < PIECE_ELEMS ? a->n - begin : PIECE_ELEMS;
}

static void piece_bf16(void *ctx, size_t item, size_t worker)
{
  const struct adamw_args *a = ctx;
  size_t begin = item * PIECE_ELEMS;
  (void)worker;
  pen_adamw_update_bf16(a->isa, a->params, a->decays, piece_elems(a, begin),
                        a->p + begin, a->m + begin, a->v + begin,
                        (const uint16_t *)a->grad + begin,
                        (uint16_t *)a->weight + begin);
}

static void piece_f32(void *ctx, size_t item, size_t worker)
{
  const struct adamw_args *a = ctx;
  size_t begin = item * PIECE_ELEMS;
  (void)worker;
  pen_adamw_update_f32(a->isa, a->params, a->decays, piece_elems(a, begin),
                       a->p + begin, a->m + begin, a->v + begin,
                       (const float *)a->grad + begin,
                       (float *)a->weight + begin);
}

static void run(struct pen_stream *s, struct adamw_args *a,
                void (*piece)(void *, size_t, size_t))
{
  a->isa = s->isa;
  pen_stream_run(s, (a->n + PIECE_ELEMS - 1) / PIECE_ELEMS, piece, a);
}

void pen_ops_adamw_bf16(struct pen_stream *s,
                        const struct pen_adamw_params *params, bool decays,
                        size_t n, float *p, float *m, float *v,
                        const void *grad, void *weight)
{
  struct adamw_args a = {.params = params, .decays = decays, .n = n, .p = p,
                         .m = m, .v = v, .grad = grad, .weight = weight};
  run(s, &a, piece_bf16);
}

void pen_ops_adamw_f32(struct pen_stream *s,
                       const struct pen_adamw_params *params, bool decays,
                       size_t n, float *p, float *m, float *v,
                       const void *grad, void *weight)
{
  struct adamw_args a = {.params = params, .decays = decays, .n = n, .p = p,
                         .m = m, .v = v, .grad = grad, .weight = weight};
  run(s, &a, piece_f32);
}

/* ---- compact state ---- */

struct state_args {
  const struct pen_state_format *format;
  const struct pen_state_update *update;
  enum pen_isa isa;
  uint16_t *weight;
};

/* Pieces are whole groups. */
static void piece_state(void *ctx, size_t item, size_t worker)
{
  const struct state_args *a = ctx;
  struct pen_state_update u = *a->update;
  size_t begin = item * PIECE_ELEMS, left = u.part.n - begin;
  size_t n = left < PIECE_ELEMS ? left : PIECE_ELEMS;
  bool decays = u.decay_end > u.decay_begin;
  (void)worker;
  u.isa = a->isa;
  u.part.begin += begin;
  u.part.n = n;
  u.decay_begin = 0;
  u.decay_end = decays ? n : 0;
  u.first += begin;
  u.grad = (const uint16_t *)u.grad + begin;
  u.weight = (uint16_t *)u.weight + begin;
  pen_state_update(a->format, &u);
  memcpy(a->weight + begin, u.weight, n * sizeof *a->weight);
}

void pen_ops_state_update(struct pen_stream *s,
                          const struct pen_state_format *format,
                          const struct pen_state_update *update, void *weight)
{
  struct state_args a = {.format = format, .update = update, .isa = s->isa,
                         .weight = weight};
  pen_stream_run(s, (update->part.n + PIECE_ELEMS - 1) / PIECE_ELEMS,
                 piece_state, &a);
}
