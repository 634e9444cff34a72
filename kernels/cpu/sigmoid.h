/* sigmoid.h: the logistic function, tanh and the normal distribution over
 * sixteen lanes. */
#ifndef PEN_KERNELS_CPU_SIGMOID_H
#define PEN_KERNELS_CPU_SIGMOID_H

#include "kernels/cpu/v16.h"

PEN_INLINE v16 v16_sigmoid(v16 x)
{
  v16 one = v16_set1(1);
  return v16_div(one, v16_add(one, v16_exp(v16_sub(v16_set1(0), x))));
}

/* coefficients [n], the highest power first. */
PEN_INLINE v16 v16_polynomial(v16 x, const float *coefficients, int n)
{
  v16 y = v16_set1(coefficients[0]);
  for (int i = 1; i < n; i++)
    y = v16_muladd(v16_set1(coefficients[i]), y, x);
  return y;
}

/* tanh x within 2e-7 relative: 1 - 2 / (e^2x + 1), which cancels near 0, where
 * x + x^3 p(x^2) stands in; p is a Chebyshev fit on |x| < 0.6, off by 3e-8. */
PEN_INLINE v16 v16_tanh(v16 x)
{
  static const float p[] = {-0.00626911972f, 0.0211109590f, -0.0538739488f,
                            0.133329154f, -0.333333303f};
  v16 one = v16_set1(1), two = v16_set1(2), square = v16_mul(x, x);
  v16 e = v16_exp(v16_mul(two, x));
  v16 far = v16_sub(one, v16_div(two, v16_add(e, one)));
  v16 near = v16_muladd(x, v16_mul(x, square), v16_polynomial(square, p, 5));
  return v16_select(v16_less(square, v16_set1(0.36f)), near, far);
}

/* Density and distribution of the standard normal.  With z = |x| / sqrt 2 and
 * t = 1 / (1 + z / 2), the tail is t e^(p(t) - z^2) / 2, where p is a Chebyshev
 * fit of log(e^(z^2) erfc(z) / t) on z < 8, off by 4e-8. */
PEN_INLINE void v16_normal(v16 x, v16 *ret_density, v16 *ret_distribution)
{
  static const float p[] = {0.124151997f, -0.566005489f, 0.881987073f,
                            -0.323510394f, -0.395447834f, 0.173041447f,
                            -0.0255774391f, 0.399673926f, 0.997053297f,
                            -1.26536655f};
  v16 zero = v16_set1(0), one = v16_set1(1), half = v16_set1(0.5f);
  v16 size = v16_max(x, v16_sub(zero, x));
  v16 t = v16_div(one, v16_muladd(one, size, v16_set1(0.353553391f)));
  v16 minus_z2 = v16_mul(v16_mul(x, x), v16_set1(-0.5f));
  v16 tail = v16_exp(v16_add(minus_z2, v16_polynomial(t, p, 10)));
  tail = v16_mul(half, v16_mul(t, tail));
  *ret_density = v16_mul(v16_set1(0.398942280f), v16_exp(minus_z2));
  *ret_distribution =
      v16_select(v16_less(zero, x), v16_sub(one, tail), tail);
}

#endif
