/* rope.cu: rotary positions in place (Su et al. 2021), with the host's bits.
 *
 * A block takes a piece of one token, a thread one pack of pairs
 * (x[i], x[i + rotary/2]).  Disadvantage: the tables are read anew for each
 * head; they stay in cache. */
#include "kernels/cuda/elem.cuh"

namespace pen_cuda {
namespace {

template <class E, int N>
__global__ void rope_kernel(size_t heads, size_t dim, size_t half, E *x,
                            size_t ldx, const uint32_t *positions, const float *cosines,
                            const float *sines, float sign)
{
  size_t token = blockIdx.x;
  uint32_t pairs = (uint32_t)row_pack(), packs = (uint32_t)(half / N);
  size_t head = pairs / packs, i = (size_t)(pairs - head * packs) * N;
  if (head >= heads)
    return;
  E *low = x + token * ldx + head * dim + i;
  size_t angle = positions[token] * half + i;
  float a[N], b[N], c[N], s[N], rotated[N];
  load(a, low);
  load(b, low + half);
  load(c, cosines + angle);
  load(s, sines + angle);
#pragma unroll
  for (int j = 0; j < N; j++) {
    float sine = sign * s[j];
    rotated[j] = a[j] * c[j] - b[j] * sine;
    b[j] = b[j] * c[j] + a[j] * sine;
  }
  store(low, rotated);
  store(low + half, b);
}

} // namespace
} // namespace pen_cuda

using namespace pen_cuda;

int pen_cuda_rope(pen_cuda_stream s, enum pen_elem elem,
                  const struct pen_heads *shape, size_t rotary, void *x,
                  size_t ldx, const uint32_t *positions, const float *cosines,
                  const float *sines, bool inverse)
{
  size_t half = rotary / 2;
  return by_elem(elem, [&](auto e) {
    using E = decltype(e);
    bool wide = is_aligned(x) && is_aligned(cosines) && is_aligned(sines) &&
                are_whole<E>(half, shape->dim, ldx);
    return by_width<E>(wide, [&](auto width) {
      constexpr int N = width;
      return launch(rope_kernel<E, N>,
                    row_grid(shape->tokens, shape->heads * half / N), THREADS,
                    0, s, shape->heads, shape->dim, half, (E *)x, ldx, positions, cosines,
                    sines, inverse ? -1.0f : 1.0f);
    });
  });
}
