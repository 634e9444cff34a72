/* log.h: natural logarithm of single values, the same bits everywhere. */
#ifndef PEN_KERNELS_CPU_LOG_H
#define PEN_KERNELS_CPU_LOG_H

#include <stdint.h>
#include <string.h>

/* ln x within 1e-15 relative (plus 1e-16) for normal x > 0; x = m 2^e with m in
 * [sqrt(1/2), sqrt(2)), ln m = 2 atanh((m - 1) / (m + 1)) by its series to the
 * 23rd power.  NaN and +Inf come back as they are, 0 gives -Inf. */
static inline double pen_cpu_log(double x)
{
  if (!(x > 0) || x > 1.7976931348623157e308)
    return x == 0 ? -__builtin_inf() : x;
  uint64_t bits;
  memcpy(&bits, &x, sizeof bits);
  int64_t e = (int64_t)(bits >> 52) - 1023;
  bits = (bits & 0xfffffffffffffULL) | 0x3ff0000000000000ULL;
  double m;
  memcpy(&m, &bits, sizeof m);
  if (m > 1.4142135623730951) {
    m *= 0.5;
    e++;
  }
  double z = (m - 1) / (m + 1), zz = z * z, sum = 0;
  for (int k = 23; k > 0; k -= 2)
    sum = sum * zz + 1.0 / k;
  return (double)e * 0.69314718055994531 + 2 * z * sum;
}

#endif
