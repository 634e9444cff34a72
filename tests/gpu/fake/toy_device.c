/* toy_device.c: opened strictly, with little memory.
 *
 * Disadvantage: one device per program. */
#include "tests/gpu/fake/toy_device.h"

#include "tests/gpu/fake/fake.h"
#include "tests/gpu/fake/toy_queue.h"
#include "tests/sched/places.h"
#include "tests/test.h"

struct pen_cuda toy_device;
struct runs_on toy_device_on = {&toy_device.device, toy_queue_wrap, false};

/* The toy has no products with one. */
int pen_cuda_bias(pen_cuda_stream s, enum pen_elem elem, size_t rows,
                  size_t cols, void *x, size_t ld, const void *b)
{
  fail_msg("a bias of %zu x %zu is added", rows, cols);
  return 0;
}

int toy_device_open(void **state)
{
  (void)state;
  pen_cuda_error_set = pen_error_set;
  fake_settings()->strict = true;
  fake_settings()->memory_bytes = (uint64_t)256 << 20;
  test_ok(pen_cuda_device_open(&toy_device, 0));
  test_ok(pen_cuda_products_open(&toy_device));
  toy_queue_use(toy_device.queues[PEN_DEVICE_COMPUTE]);
  return 0;
}

int toy_device_close(void **state)
{
  (void)state;
  pen_cuda_products_close(&toy_device);
  pen_cuda_device_close(&toy_device);
  return 0;
}

struct pen_placement toy_device_place(enum toy_scene scene)
{
  struct pen_placement p = places_plain();
  p.unified = false;
  p.activations_device_bytes = 0;
  p.group_size = 2;
  p.weight_slots = scene == TOY_FEW_EXPERTS ? 1 : 2;
  p.gradient_slots = 1;
  p.activation_slots = 2;
  if (scene == TOY_NEAR)
    p.weights_device_bytes = p.state_device_bytes = PEN_ALL_BYTES;
  if (scene == TOY_DRIVES) {
    p.weights_host_bytes = p.gradients_host_bytes = p.state_host_bytes = 0;
    p.activations_host_bytes = 0;
    p.tile_slots = 1;
  }
  return p;
}
