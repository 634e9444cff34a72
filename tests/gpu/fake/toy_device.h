/* toy_device.h: the plugin's device row on the fake runtime, and placements of the
 * toy's trainings that give each of its lanes something to do. */
#ifndef PEN_TESTS_GPU_FAKE_TOY_DEVICE_H
#define PEN_TESTS_GPU_FAKE_TOY_DEVICE_H

#include "kernels/cuda/state.h"
#include "tests/sched/runs.h"

extern struct pen_cuda toy_device;
/* For runs_of: the toy on that device. */
extern struct runs_on toy_device_on;

/* Group setup and teardown of cmocka; one device at a time. */
int toy_device_open(void **state);
int toy_device_close(void **state);

/* What travels, and which waits that needs. */
enum toy_scene {
  TOY_BUSY,        /* weights, gradients, activations between RAM and device */
  TOY_DRIVES,      /* the same from and to drives, state too */
  TOY_NEAR,        /* the device keeps weights and state, and updates them */
  TOY_FEW_EXPERTS, /* weights of experts, those that are asked for */
  TOY_SCENES
};

/* Rings of one or two slots. */
struct pen_placement toy_device_place(enum toy_scene scene);

#endif
