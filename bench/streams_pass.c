/* streams_pass.c: passes over arrays, a cache line at a time; compiled once per
 * level (PEN_STREAMS_TABLE names the table).
 *
 * Between a load and the store of the same value stands a barrier for the
 * compiler, which would leave out the store.  No prefetches: measured, they
 * take from these passes.  Disadvantage: where there is no store past the
 * cache (other CPUs than x86) written lines are read first. */
#include "bench/streams_pass.h"

#if defined(__SSE2__)
#include <immintrin.h>
#endif

typedef float line __attribute__((vector_size(64), may_alias));
typedef uint32_t bits __attribute__((vector_size(64), may_alias));

static inline void store_past(void *to, line x)
{
#if defined(__AVX512F__)
  _mm512_stream_ps(to, (__m512)x);
#elif defined(__SSE2__)
  for (int i = 0; i < 4; i++)
    _mm_stream_ps((float *)to + 4 * i,
                  (__m128){x[4 * i], x[4 * i + 1], x[4 * i + 2], x[4 * i + 3]});
#else
  *(line *)to = x;
#endif
}

static inline void end_stores(void)
{
#if defined(__SSE2__)
  _mm_sfence();
#endif
}

static inline void write_back(void *at)
{
  line x = *(line *)at;
  __asm__ volatile("" ::: "memory");
  *(line *)at = x;
}

static void pass_adamw(const struct pen_streams *s, size_t begin, size_t end)
{
  for (size_t i = begin; i < end; i += 32) {
    write_back(s->p + i);
    write_back(s->p + i + 16);
    write_back(s->m + i);
    write_back(s->m + i + 16);
    write_back(s->v + i);
    write_back(s->v + i + 16);
    store_past(s->weight + i, *(const line *)(s->grad + i));
  }
  end_stores();
}

/* Sums of bits, for which order does not matter. */
static void pass_read(const struct pen_streams *s, size_t begin, size_t end)
{
  bits sum = {0}, other = {0};
  for (size_t i = begin; i < end; i += 32) {
    sum += *(const bits *)(s->p + i);
    other += *(const bits *)(s->p + i + 16);
  }
  sum += other;
  __asm__ volatile("" ::"m"(sum));
}

static void pass_write(const struct pen_streams *s, size_t begin, size_t end)
{
  const line x = (line){0} + 0.0115f;
  for (size_t i = begin; i < end; i += 16)
    store_past(s->p + i, x);
  end_stores();
}

static void pass_copy(const struct pen_streams *s, size_t begin, size_t end)
{
  for (size_t i = begin; i < end; i += 16)
    store_past(s->m + i, *(const line *)(s->p + i));
  end_stores();
}

static void pass_triad(const struct pen_streams *s, size_t begin, size_t end)
{
  for (size_t i = begin; i < end; i += 16)
    store_past(s->v + i,
               *(const line *)(s->p + i) + 3.0f * *(const line *)(s->m + i));
  end_stores();
}

static void pass_update(const struct pen_streams *s, size_t begin, size_t end)
{
  for (size_t i = begin; i < end; i += 16)
    write_back(s->p + i);
}

const struct pen_streams_row PEN_STREAMS_TABLE[PEN_STREAMS_KINDS] = {
    [PEN_STREAMS_ADAMW] = {"adamw", 28, pass_adamw},
    [PEN_STREAMS_READ] = {"read", 4, pass_read},
    [PEN_STREAMS_WRITE] = {"write", 4, pass_write},
    [PEN_STREAMS_COPY] = {"copy", 8, pass_copy},
    [PEN_STREAMS_TRIAD] = {"triad", 12, pass_triad},
    [PEN_STREAMS_UPDATE] = {"update", 8, pass_update},
};
