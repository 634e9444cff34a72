/* embed.cu: rows of an embedding, and the sum of their gradients in token
 * order, with the host's bits.
 *
 * Backward: a block per token; the first token of an id adds for all of them,
 * so no two blocks write the same row.  Disadvantage: every block reads all
 * ids, tokens^2 in all; they stay in cache. */
#include "kernels/cuda/elem.cuh"

namespace pen_cuda {
namespace {

template <class E, int N>
__global__ void embed_kernel(const uint32_t *ids, size_t first_row, size_t rows,
                             size_t dim, float scale, const E *table, E *x)
{
  size_t token = blockIdx.x, i = row_pack() * N;
  size_t row = (size_t)ids[token] - first_row; /* wraps below first_row */
  if (row >= rows || i >= dim)
    return;
  float a[N];
  load(a, table + row * dim + i);
#pragma unroll
  for (int j = 0; j < N; j++)
    a[j] = scale * a[j];
  store(x + token * dim + i, a);
}

template <class E>
__global__ void embed_backward_kernel(const uint32_t *ids, size_t tokens,
                                      size_t first_row, size_t rows, size_t dim,
                                      float scale, const E *d, float *grad)
{
  size_t token = blockIdx.x, row = (size_t)ids[token] - first_row;
  if (row >= rows)
    return;
  bool seen = false;
  for (size_t t = threadIdx.x; t < token; t += THREADS)
    seen |= ids[t] == ids[token];
  if (__syncthreads_or(seen))
    return;
  for (size_t base = token; base < tokens; base += THREADS) {
    size_t mine = base + threadIdx.x;
    if (!__syncthreads_or(mine < tokens && ids[mine] == ids[token]))
      continue;
    for (size_t t = base; t < tokens && t < base + THREADS; t++)
      if (ids[t] == ids[token])
        for (size_t i = threadIdx.x; i < dim; i += THREADS)
          grad[row * dim + i] += scale * to_f32(d[t * dim + i]);
  }
}

} // namespace
} // namespace pen_cuda

using namespace pen_cuda;

int pen_cuda_embed(pen_cuda_stream s, enum pen_elem elem, const uint32_t *ids,
                   size_t tokens, size_t first_row, size_t rows, size_t dim,
                   float scale, const void *table, void *x)
{
  return by_elem(elem, [&](auto e) {
    using E = decltype(e);
    bool wide = is_aligned(table) && is_aligned(x) && are_whole<E>(dim);
    return by_width<E>(wide, [&](auto width) {
      constexpr int N = width;
      return launch(embed_kernel<E, N>, row_grid(tokens, dim / N), THREADS, 0,
                    s, ids, first_row, rows, dim, scale, (const E *)table,
                    (E *)x);
    });
  });
}

int pen_cuda_embed_backward(pen_cuda_stream s, enum pen_elem elem,
                            const uint32_t *ids, size_t tokens,
                            size_t first_row, size_t rows, size_t dim,
                            float scale, const void *d, float *grad)
{
  return by_elem(elem, [&](auto e) {
    using E = decltype(e);
    return launch(embed_backward_kernel<E>, dim3((unsigned)tokens), THREADS, 0,
                  s, ids, tokens, first_row, rows, dim, scale, (const E *)d, grad);
  });
}
