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
 * The scale needs all of a group before any of it can be stored, and a few dozen
 * cycles to be found.  So groups go in batches: first all steps, into a buffer in
 * the cache, then all scales, then all codes.
 *
 * Compiled once per instruction set.  Disadvantage: one very large gradient in a
 * group leaves the others few codes until the scale has come down. */
#include "kernels/cpu/state16.h"

#define GROUP PEN_STATE_GROUP_ELEMS
#define BATCH_GROUPS 16 /* as many as a vector has lanes, for their scales */
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

/* Results of a batch, before they are stored. */
struct batch {
  float p[BATCH_GROUPS * GROUP], m[BATCH_GROUPS * GROUP], v[BATCH_GROUPS * GROUP];
  float m_scale[BATCH_GROUPS], v_scale[BATCH_GROUPS];     /* by group */
  float m_inverse[BATCH_GROUPS], v_inverse[BATCH_GROUPS]; /* 0 where that is 0 */
};

/* The largest magnitudes of a group so far, lane by lane. */
struct most {
  w16 m, v;
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

PEN_INLINE struct state16 load(const struct int8 *a, const uint16_t *half,
                               size_t i)
{
  size_t group = i / GROUP;
  return (struct state16){
      v16_from_bits(decode_p(w16_load_u16(half + i), w16_load_u8(a->low + i))),
      decode_m(w16_load_u8(a->m + i), v16_set1(a->m_scale[group])),
      decode_v(w16_load_u8(a->v + i), v16_set1(a->v_scale[group]))};
}

/* Into a batch, moments made finite. */
PEN_INLINE void put(struct batch *b, size_t i, struct state16 s,
                    struct most *most)
{
  w16 m = magnitude_of(s.m), v = magnitude_of(s.v);
  w16 sign = w16_and1(w16_bits(s.m), ~PEN_MAGNITUDE);
  v16_store(b->p + i, s.p);
  v16_store(b->m + i, v16_from_bits(w16_or(m, sign)));
  v16_store(b->v + i, v16_from_bits(v));
  most->m = w16_max(m, most->m);
  most->v = w16_max(v, most->v);
}

PEN_INLINE v16 inverse_of(v16 scale)
{
  v16 none = v16_set1(0);
  return v16_select(v16_less(none, scale), v16_div(v16_set1(1), scale), none);
}

/* The scales of as many groups, and their inverses. */
PEN_INLINE void find_scales(struct batch *b, const struct most *most,
                            size_t n_groups)
{
  for (size_t g = 0; g < BATCH_GROUPS; g++) {
    b->m_scale[g] = g < n_groups ? scale_of(most[g].m, M_LEAST) : 0;
    b->v_scale[g] = g < n_groups ? scale_of(most[g].v, V_LEAST) : 0;
  }
  v16_store(b->m_inverse, inverse_of(v16_load(b->m_scale)));
  v16_store(b->v_inverse, inverse_of(v16_load(b->v_scale)));
}

/* Sixteen elements: number i of all, number k of the batch. */
PEN_INLINE void store(const struct int8 *a, uint16_t *half, size_t i,
                      const struct batch *b, size_t k, struct draw draw)
{
  size_t group = k / GROUP;
  w16 p = w16_and1(state16_raise(v16_load(b->p + k), draw.p), 0xffffff00u);
  w16_store_u16(half + i, state16_half(p));
  w16_store_u8(a->low + i, w16_and1(w16_right1(p, 8), 0xff));
  w16_store_u8(a->m + i, encode_m(v16_load(b->m + k),
                                  v16_set1(b->m_inverse[group]), draw.m));
  w16_store_u8(a->v + i, encode_v(v16_load(b->v + k),
                                  v16_set1(b->v_inverse[group]), draw.v));
}

PEN_INLINE void store_scales(const struct int8 *a, size_t begin,
                             const struct batch *b, size_t n_groups)
{
  for (size_t g = 0; g < n_groups; g++) {
    a->m_scale[begin / GROUP + g] = b->m_scale[g];
    a->v_scale[begin / GROUP + g] = b->v_scale[g];
  }
}

static size_t groups_from(size_t begin, size_t n)
{
  size_t left = (n - begin) / GROUP;
  return left < BATCH_GROUPS ? left : BATCH_GROUPS;
}

static void update(const struct pen_state_update *u, void *const *arrays)
{
  const struct state16_job c = state16_job_of(u);
  const struct int8 a = arrays_of(arrays);
  uint16_t *half = u->weight;
  struct batch b;
  struct most most[BATCH_GROUPS];
  size_t n_groups;
  for (size_t at = 0; at < u->part.n; at += n_groups * GROUP) {
    n_groups = groups_from(at, u->part.n);
    for (size_t g = 0; g < n_groups; g++) {
      most[g] = (struct most){w16_set1(0), w16_set1(0)};
      for (size_t k = g * GROUP; k < (g + 1) * GROUP; k += 16)
        put(&b, k, state16_step(&c, at + k, load(&a, half, at + k)), &most[g]);
    }
    find_scales(&b, most, n_groups);
    for (size_t k = 0; k < n_groups * GROUP; k += 16)
      store(&a, half, at + k, &b, k, draw_of(state16_random(&c, at + k)));
    store_scales(&a, at, &b, n_groups);
  }
}

static void pack(size_t n, void *const *arrays, uint16_t *half, const float *p,
                 const float *m, const float *v)
{
  const struct int8 a = arrays_of(arrays);
  const struct draw nearest = {v16_set1(0.5f), v16_set1(0.5f),
                               w16_set1(0x80)};
  struct batch b;
  struct most most[BATCH_GROUPS];
  size_t n_groups;
  for (size_t at = 0; at < n; at += n_groups * GROUP) {
    n_groups = groups_from(at, n);
    for (size_t g = 0; g < n_groups; g++) {
      most[g] = (struct most){w16_set1(0), w16_set1(0)};
      for (size_t k = g * GROUP; k < (g + 1) * GROUP; k += 16)
        put(&b, k,
            (struct state16){w16_one_nan(v16_load(p + at + k)),
                             v16_load(m + at + k), v16_load(v + at + k)},
            &most[g]);
    }
    find_scales(&b, most, n_groups);
    for (size_t k = 0; k < n_groups * GROUP; k += 16)
      store(&a, half, at + k, &b, k, nearest);
    store_scales(&a, at, &b, n_groups);
  }
}

static void unpack(size_t n, void *const *arrays, const uint16_t *half,
                   float *p, float *m, float *v)
{
  struct int8 a = arrays_of(arrays);
  for (size_t i = 0; i < n; i += 16) {
    struct state16 s = load(&a, half, i);
    v16_store(p + i, s.p);
    v16_store(m + i, s.m);
    v16_store(v + i, s.v);
  }
}

const struct pen_state_row PEN_STATE_ROW(pen_state_int8) = {
    .update = update, .pack = pack, .unpack = unpack};
