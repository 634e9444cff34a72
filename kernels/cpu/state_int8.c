/* cpu/state_int8.c: moments in 8 bits, with a scale for 64 of them; the master
 * weight in 24 bits, of which the bf16 weight is 16.
 *
 * With k the code of a number whose group has the scale s:
 *   m = s sign(k) (k / 127)^2     v = s (k / 255)^4
 * so that small values keep relative precision: a code's neighbour is 2 / k of a
 * first moment away and 4 / k of a second one.  A number between two codes takes
 * the upper one with the probability that makes it right on average, in 12
 * random bits; the master's last bit likewise, in 8.  The scale is the group's
 * largest magnitude, which so is exact.  A second moment above 0 never takes code
 * 0, since a weight is divided by its root: that bounds an update by a few times
 * what the group's largest moments give.  Groups are of elements counted from a
 * tile's start, and so from a block's.
 *
 * Compiled once per instruction set.  Disadvantage: one very large gradient in a
 * group leaves the others few codes until the scale has come down. */
#include "kernels/cpu/state16.h"

#define VECTORS ((int)PEN_STATE_GROUP_ELEMS / 16)
#define M_MOST 127.0f
#define V_MOST 255.0f
#define M_UNIT 16129.0f      /* 127^2 */
#define V_UNIT 4228250625.0f /* 255^4, rounded to fp32; times their fp32
                                reciprocals both are 1, so the largest code is
                                the scale itself */

/* A group whose largest magnitude is below this is stored as zeros: else its
 * smallest numbers would be denormal, and slow for ever. */
#define M_LEAST 0x1p-112f
#define V_LEAST 0x1p-94f

struct int8 {
  uint8_t *low, *m, *v;
  float *m_scale, *v_scale;
};

struct group {
  struct state16 s[VECTORS];
};

/* Between its neighbours in 1 / 4096, and never on one. */
struct draw {
  v16 m, v;
  w16 p; /* below 256 */
};

static struct int8 arrays_of(void *const *arrays)
{
  return (struct int8){arrays[0], arrays[1], arrays[2], arrays[3], arrays[4]};
}

PEN_INLINE v16 part_of_4096(w16 bits)
{
  return v16_add(v16_mul(v16_from_words(bits), v16_set1(0x1p-12f)),
                 v16_set1(0x1p-13f));
}

PEN_INLINE struct draw draw_of(w16 random)
{
  return (struct draw){part_of_4096(w16_right1(random, 20)),
                       part_of_4096(w16_and1(w16_right1(random, 8), 0xfff)),
                       w16_and1(random, 0xff)};
}

/* Codes of first moments have the sign in their highest bit. */
PEN_INLINE v16 decode_m(w16 code, v16 scale)
{
  v16 k = v16_from_words(w16_and1(code, 0x7f));
  v16 m = v16_mul(scale, v16_mul(v16_mul(k, k), v16_set1(1 / M_UNIT)));
  return v16_from_bits(
      w16_or(w16_bits(m), w16_left1(w16_and1(code, 0x80), 24)));
}

PEN_INLINE v16 decode_v(w16 code, v16 scale)
{
  v16 k = v16_from_words(code), k2 = v16_mul(k, k);
  return v16_mul(scale, v16_mul(v16_mul(k2, k2), v16_set1(1 / V_UNIT)));
}

PEN_INLINE w16 decode_p(w16 half, w16 low)
{
  w16 word = w16_left1(low, 8);
  return w16_or(w16_left1(w16_sub(half, w16_right1(word, 15)), 16), word);
}

/* A finite number's magnitude; of what is none the largest number's. */
PEN_INLINE w16 magnitude_of(v16 x)
{
  return w16_min(w16_and1(w16_bits(x), PEN_MAGNITUDE), w16_set1(PEN_LARGEST));
}

/* Between code k, which stands for `here`, and the next one, which stands for
 * `next`: the latter where x is farther than `draw` of the way. */
PEN_INLINE w16 choose(w16 k, v16 here, v16 next, v16 x, v16 draw, uint32_t most)
{
  m16 up = v16_less(v16_mul(draw, v16_sub(next, here)), v16_sub(x, here));
  return w16_min(w16_sub(k, w16_mask(up)), w16_set1(most)); /* less -1 */
}

/* inverse: of the scale; 0 where it is 0. */
PEN_INLINE w16 encode_m(v16 m, v16 inverse, v16 draw)
{
  v16 x = v16_mul(v16_from_bits(w16_and1(w16_bits(m), PEN_MAGNITUDE)), inverse);
  w16 k = w16_from_numbers(v16_mul(v16_sqrt(x), v16_set1(M_MOST)));
  v16 here = v16_from_words(k), next = v16_add(here, v16_set1(1));
  k = choose(k, v16_mul(here, here), v16_mul(next, next),
             v16_mul(x, v16_set1(M_UNIT)), draw, (uint32_t)M_MOST);
  return w16_or(k, w16_and1(w16_right1(w16_bits(m), 24), 0x80));
}

PEN_INLINE w16 encode_v(v16 v, v16 inverse, v16 draw)
{
  v16 x = v16_mul(v, inverse);
  w16 k =
      w16_from_numbers(v16_mul(v16_sqrt(v16_sqrt(x)), v16_set1(V_MOST)));
  v16 here = v16_from_words(k), next = v16_add(here, v16_set1(1));
  here = v16_mul(here, here);
  next = v16_mul(next, next);
  k = choose(k, v16_mul(here, here), v16_mul(next, next),
             v16_mul(x, v16_set1(V_UNIT)), draw, (uint32_t)V_MOST);
  w16 some = w16_and(w16_mask(v16_less(v16_set1(0), v)),
                     w16_mask(v16_less(v16_set1(0), inverse)));
  return w16_max(k, w16_and1(some, 1));
}

/* 0 for a group that is stored as zeros.  Numbers that are not negative are in
 * the order of their bits. */
PEN_INLINE float scale_of(w16 most, float at_least)
{
  uint32_t bits = w16_greatest(most);
  float scale;
  __builtin_memcpy(&scale, &bits, sizeof scale);
  return scale < at_least ? 0 : scale;
}

PEN_INLINE void load(const struct int8 *a, const uint16_t *half, size_t at,
                     struct group *g)
{
  v16 m_scale = v16_set1(a->m_scale[at / PEN_STATE_GROUP_ELEMS]);
  v16 v_scale = v16_set1(a->v_scale[at / PEN_STATE_GROUP_ELEMS]);
  for (int j = 0; j < VECTORS; j++) {
    size_t i = at + 16 * (size_t)j;
    g->s[j] = (struct state16){
        v16_from_bits(decode_p(w16_load_u16(half + i), w16_load_u8(a->low + i))),
        decode_m(w16_load_u8(a->m + i), m_scale),
        decode_v(w16_load_u8(a->v + i), v_scale)};
  }
}

/* The scales of a group, and their inverses; its moments made finite. */
struct scales {
  float m, v;
  v16 m_inverse, v_inverse;
};

PEN_INLINE v16 inverse_of(float scale)
{
  return v16_set1(scale > 0 ? 1 / scale : 0);
}

PEN_INLINE struct scales find_scales(struct group *g)
{
  w16 m_most = w16_set1(0), v_most = w16_set1(0);
  for (int j = 0; j < VECTORS; j++) {
    w16 m = magnitude_of(g->s[j].m), v = magnitude_of(g->s[j].v);
    w16 sign = w16_and1(w16_bits(g->s[j].m), ~PEN_MAGNITUDE);
    g->s[j].m = v16_from_bits(w16_or(m, sign));
    g->s[j].v = v16_from_bits(v);
    m_most = w16_max(m, m_most);
    v_most = w16_max(v, v_most);
  }
  float m = scale_of(m_most, M_LEAST), v = scale_of(v_most, V_LEAST);
  return (struct scales){m, v, inverse_of(m), inverse_of(v)};
}

PEN_INLINE void store_vector(const struct int8 *a, uint16_t *half, size_t i,
                             struct state16 s, const struct scales *scales,
                             struct draw draw)
{
  w16 p = w16_and1(state16_raise(s.p, draw.p), 0xffffff00u);
  w16_store_u16(half + i, state16_half(p));
  w16_store_u8(a->low + i, w16_and1(w16_right1(p, 8), 0xff));
  w16_store_u8(a->m + i, encode_m(s.m, scales->m_inverse, draw.m));
  w16_store_u8(a->v + i, encode_v(s.v, scales->v_inverse, draw.v));
}

static void update(const struct pen_state_update *u, void *const *arrays)
{
  const struct state16_job c = state16_job_of(u);
  const struct int8 a = arrays_of(arrays);
  uint16_t *half = u->weight;
  for (size_t at = 0, n = u->part.n; at < n; at += PEN_STATE_GROUP_ELEMS) {
    struct group g;
    load(&a, half, at, &g);
    for (int j = 0; j < VECTORS; j++)
      g.s[j] = state16_step(&c, at + 16 * (size_t)j, g.s[j]);
    struct scales scales = find_scales(&g);
    for (int j = 0; j < VECTORS; j++) {
      size_t i = at + 16 * (size_t)j;
      store_vector(&a, half, i, g.s[j], &scales,
                   draw_of(state16_random(&c, i)));
    }
    a.m_scale[at / PEN_STATE_GROUP_ELEMS] = scales.m;
    a.v_scale[at / PEN_STATE_GROUP_ELEMS] = scales.v;
  }
}

static void pack(size_t n, void *const *arrays, uint16_t *half, const float *p,
                 const float *m, const float *v)
{
  const struct int8 a = arrays_of(arrays);
  const struct draw nearest = {v16_set1(0.5f), v16_set1(0.5f),
                               w16_set1(0x80)};
  for (size_t at = 0; at < n; at += PEN_STATE_GROUP_ELEMS) {
    struct group g;
    for (int j = 0; j < VECTORS; j++) {
      size_t i = at + 16 * (size_t)j;
      g.s[j] = (struct state16){w16_one_nan(v16_load(p + i)),
                                v16_load(m + i), v16_load(v + i)};
    }
    struct scales scales = find_scales(&g);
    for (int j = 0; j < VECTORS; j++)
      store_vector(&a, half, at + 16 * (size_t)j, g.s[j], &scales, nearest);
    a.m_scale[at / PEN_STATE_GROUP_ELEMS] = scales.m;
    a.v_scale[at / PEN_STATE_GROUP_ELEMS] = scales.v;
  }
}

static void unpack(size_t n, void *const *arrays, const uint16_t *half,
                   float *p, float *m, float *v)
{
  struct int8 a = arrays_of(arrays);
  for (size_t at = 0; at < n; at += PEN_STATE_GROUP_ELEMS) {
    struct group g;
    load(&a, half, at, &g);
    for (int j = 0; j < VECTORS; j++) {
      size_t i = at + 16 * (size_t)j;
      v16_store(p + i, g.s[j].p);
      v16_store(m + i, g.s[j].m);
      v16_store(v + i, g.s[j].v);
    }
  }
}

const struct pen_state_row PEN_STATE_ROW(pen_state_int8) = {
    .update = update, .pack = pack, .unpack = unpack};
