/* lr.c: four shapes, in double.
 *
 * Formulas in the order transformers evaluates them, so that the two agree to
 * rounding.  Disadvantage: cos is libm's, so cosine rates may differ in the
 * last bit between C libraries (docs/NUMERICS.md). */
#include "src/train/lr.h"

#include <inttypes.h>
#include <math.h>

#include "base/error.h"

#define PI 3.14159265358979323846

static int resolve(const char *option, double wish, uint64_t n_steps,
                   uint64_t *ret_steps)
{
  if (wish > 0 && wish < 1) {
    *ret_steps = (uint64_t)ceil(wish * (double)n_steps);
    return 0;
  }
  if (!(wish >= 0) || wish != floor(wish) || wish > 0x1p53)
    return pen_error_set(-PEN_EUSAGE, "--%s %g: give a whole number of steps, "
                         "or a share below 1", option, wish);
  *ret_steps = (uint64_t)wish;
  return 0;
}

int pen_lr_init(enum pen_lr_shape shape, double peak, double min,
                uint64_t n_steps, double warmup, double decay,
                struct pen_lr *ret_lr)
{
  struct pen_lr lr = { .shape = shape, .peak = peak, .min = min,
                       .n_steps = n_steps };
  int r = resolve("warmup-steps", warmup, n_steps, &lr.warmup_steps);
  if (!r && shape == PEN_LR_WSD)
    r = resolve("lr-decay-steps", decay, n_steps, &lr.decay_steps);
  if (r)
    return r;
  if (shape == PEN_LR_WSD && (lr.warmup_steps > n_steps ||
                              lr.decay_steps > n_steps - lr.warmup_steps))
    return pen_error_set(-PEN_EUSAGE, "--warmup-steps %" PRIu64 " and "
                         "--lr-decay-steps %" PRIu64 " are longer than the "
                         "run of %" PRIu64 " steps", lr.warmup_steps,
                         lr.decay_steps, n_steps);
  *ret_lr = lr;
  return 0;
}

/* done / all, where all may be 0 */
static double share(uint64_t done, uint64_t all)
{
  return (double)done / (double)(all ? all : 1);
}

static double between(const struct pen_lr *lr, double factor)
{
  return lr->min + (lr->peak - lr->min) * factor;
}

static double cosine(const struct pen_lr *lr, double progress)
{
  return between(lr, 0.5 * (1 + cos(PI * progress)));
}

double pen_lr_at(const struct pen_lr *lr, uint64_t step)
{
  if (step < lr->warmup_steps)
    return lr->peak * share(step, lr->warmup_steps);
  if (lr->shape == PEN_LR_CONSTANT)
    return lr->peak;
  if (step >= lr->n_steps)
    return lr->min;
  uint64_t left = lr->n_steps - step;
  uint64_t after_warmup = lr->n_steps - lr->warmup_steps;
  switch (lr->shape) {
  case PEN_LR_LINEAR:
    return between(lr, share(left, after_warmup));
  case PEN_LR_COSINE:
    return cosine(lr, share(step - lr->warmup_steps, after_warmup));
  case PEN_LR_WSD:
    if (left > lr->decay_steps)
      return lr->peak;
    return cosine(lr, share(lr->decay_steps - left, lr->decay_steps));
  case PEN_LR_CONSTANT:
    break;
  }
  return lr->peak;
}
