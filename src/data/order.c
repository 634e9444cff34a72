/* The data order: arithmetic only, no state, any thread.
 *
 * A round of swap-or-not pairs x with (k - x) mod n and, by one bit that both
 * partners compute alike, swaps the pair or not; each round is its own inverse,
 * hence a bijection.  The result is part of a run's meaning: changing a
 * constant here changes the order of every resumed run.
 *
 * Disadvantage: 96 rounds are about a microsecond per sequence, more than a
 * Feistel network would need; a sequence costs far more to train on. */
#include "src/data/order.h"

#include <inttypes.h>

#include "base/error.h"

#define ORDER_ROUNDS 96

/* The finalizer of splitmix64 (Steele, Lea, Flood 2014). */
static uint64_t mix(uint64_t x)
{
  x += UINT64_C(0x9e3779b97f4a7c15);
  x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
  return x ^ x >> 31;
}

uint64_t pen_order_permute(uint64_t seed, uint64_t epoch, uint64_t n, uint64_t index)
{
  uint64_t key = mix(mix(seed) ^ epoch);

  for (uint64_t round = 0; round < ORDER_ROUNDS; round++) {
    uint64_t round_key = mix(key ^ round);
    uint64_t k = round_key % n;
    uint64_t partner = k >= index ? k - index : n - (index - k);
    uint64_t pair = partner > index ? partner : index;
    if (mix(mix(round_key) ^ pair) >> 63)
      index = partner;
  }
  return index;
}

int pen_order_check(const struct pen_order *order)
{
  if (!order->n_sequences)
    return pen_error_set(PEN_EUSAGE, "there is no sequence to train on");
  if (!order->batch_sequences || !order->accumulation)
    return pen_error_set(PEN_EUSAGE,
                         "a micro-batch of %" PRIu64 " sequences and a step of %" PRIu64
                         " micro-batches: both must be at least 1",
                         order->batch_sequences, order->accumulation);
  return 0;
}

static uint64_t divide_up(uint64_t a, uint64_t b)
{
  return a / b + (a % b != 0);
}

uint64_t pen_order_epoch_steps(const struct pen_order *order)
{
  return divide_up(divide_up(order->n_sequences, order->batch_sequences),
                   order->accumulation);
}

void pen_order_step(const struct pen_order *order, uint64_t step,
                    struct pen_order_step *ret_step)
{
  uint64_t n_epoch_micro = divide_up(order->n_sequences, order->batch_sequences);
  uint64_t n_steps = divide_up(n_epoch_micro, order->accumulation);
  uint64_t in_epoch = step % n_steps;
  uint64_t first_micro = in_epoch * order->accumulation;
  uint64_t n_micro = n_epoch_micro - first_micro;
  uint64_t first = first_micro * order->batch_sequences;
  uint64_t n_left = order->n_sequences - first;

  if (n_micro > order->accumulation)
    n_micro = order->accumulation;
  *ret_step = (struct pen_order_step){
    .epoch = step / n_steps,
    .step_in_epoch = in_epoch,
    .first = first,
    /* all that is left, unless the step is full; compared by division since
     * the product of two absurd options could overflow */
    .n_sequences = n_left / order->batch_sequences < n_micro
                     ? n_left : n_micro * order->batch_sequences,
    .n_micro = n_micro,
  };
}

size_t pen_order_micro(const struct pen_order *order,
                       const struct pen_order_step *step, uint64_t micro,
                       uint64_t *ret_ids)
{
  uint64_t begin = micro * order->batch_sequences;
  uint64_t n = step->n_sequences - begin;

  if (n > order->batch_sequences)
    n = order->batch_sequences;
  for (uint64_t i = 0; i < n; i++) {
    uint64_t place = step->first + begin + i;
    ret_ids[i] = order->shuffle ? pen_order_permute(order->seed, step->epoch,
                                                    order->n_sequences, place)
                                : place;
  }
  return (size_t)n;
}
