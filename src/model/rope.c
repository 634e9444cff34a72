/* rope.c: frequencies and tables of rotary position embedding.
 *
 * Pure functions, any thread.  All in double, so that position 100,000 is as
 * good as position 1.  Disadvantage: one row of the table per position, 4 bytes
 * x dim each. */
#include "src/model/rope.h"

#include <math.h>

#define PI 3.14159265358979323846

/* Llama 3.1: long wavelengths are stretched by `factor`, short ones kept, those
 * between blended. */
static double llama3_frequency(const struct pen_rope_config *rope,
                               double frequency)
{
  double original = (double)rope->original_max_positions;
  double wavelength = 2 * PI / frequency;
  if (wavelength > original / rope->low_freq_factor)
    return frequency / rope->factor;
  if (wavelength < original / rope->high_freq_factor)
    return frequency;
  double smooth = (original / wavelength - rope->low_freq_factor) /
                  (rope->high_freq_factor - rope->low_freq_factor);
  return (1 - smooth) * frequency / rope->factor + smooth * frequency;
}

/* The (fractional) pair, times two, that turns `rotations` times over the
 * original context (Peng et al. 2023, equation 23 in the form of its code). */
static double yarn_dimension(const struct pen_rope_config *rope,
                             double rotations)
{
  double original = (double)rope->original_max_positions;
  return (double)rope->dim * log(original / (rotations * 2 * PI)) /
         (2 * log(rope->theta));
}

static double yarn_frequency(const struct pen_rope_config *rope, size_t i,
                             double frequency)
{
  double low = yarn_dimension(rope, rope->beta_fast);
  double high = yarn_dimension(rope, rope->beta_slow);
  if (rope->truncate) {
    low = floor(low);
    high = ceil(high);
  }
  low = fmax(low, 0);
  high = fmin(high, (double)rope->dim - 1);
  if (low == high)
    high += 0.001; /* no division by zero */
  double ramp = fmin(fmax(((double)i - low) / (high - low), 0), 1);
  return frequency / rope->factor * ramp + frequency * (1 - ramp);
}

double pen_rope_frequency(const struct pen_rope_config *rope, bool is_long,
                          size_t i)
{
  double frequency = pow(rope->theta, -2.0 * (double)i / (double)rope->dim);
  switch (rope->type) {
  case PEN_ROPE_LINEAR:
    return frequency / rope->factor;
  case PEN_ROPE_LLAMA3:
    return llama3_frequency(rope, frequency);
  case PEN_ROPE_YARN:
    return yarn_frequency(rope, i, frequency);
  case PEN_ROPE_LONGROPE:
    return frequency /
           (is_long ? rope->long_factors[i] : rope->short_factors[i]);
  case PEN_ROPE_DEFAULT:
  case PEN_ROPE_DYNAMIC:
    break;
  }
  return frequency;
}

/* A row for each position of one kind of sequence. */
static void fill_rows(const struct pen_rope_config *rope, bool is_long,
                      size_t n_positions, float *cosines, float *sines)
{
  size_t half = rope->dim / 2;
  for (size_t i = 0; i < half; i++) {
    double frequency = pen_rope_frequency(rope, is_long, i);
    for (size_t p = 0; p < n_positions; p++) {
      double angle = (double)p * frequency;
      cosines[p * half + i] = (float)(cos(angle) * rope->attention_factor);
      sines[p * half + i] = (float)(sin(angle) * rope->attention_factor);
    }
  }
}

static bool has_long(const struct pen_rope_config *rope, size_t n_positions)
{
  return rope->type == PEN_ROPE_LONGROPE &&
         n_positions > rope->original_max_positions;
}

size_t pen_rope_rows(const struct pen_rope_config *rope, size_t n_positions)
{
  return has_long(rope, n_positions) ? 2 * n_positions : n_positions;
}

size_t pen_rope_first_row(const struct pen_rope_config *rope,
                          size_t n_positions, size_t length)
{
  return has_long(rope, n_positions) && has_long(rope, length) ? n_positions
                                                               : 0;
}

void pen_rope_fill(const struct pen_rope_config *rope, size_t n_positions,
                   float *cosines, float *sines)
{
  size_t table = n_positions * (rope->dim / 2);
  fill_rows(rope, false, n_positions, cosines, sines);
  if (has_long(rope, n_positions))
    fill_rows(rope, true, n_positions, cosines + table, sines + table);
}
