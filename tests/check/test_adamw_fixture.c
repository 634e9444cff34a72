/* test_adamw_fixture.c: five clipped AdamW steps on tests/fixtures, as the
 * optimizer does them (finish, norm, factor, update), element by element
 * against the float64 reference and against torch.optim.AdamW. */
#include "tests/check/level.h"

#include <math.h>

#include "io/safetensors.h"
#include "kernels/adamw.h"
#include "kernels/bf16.h"
#include "kernels/gradient.h"
#include "tests/check/adamw_oracle.h"

#define ELEMS_MAX 320
#define STEPS 5

static const char *const names[] = {"one",   "odd",  "matrix",
                                    "spike", "long", "tiny"};
#define N_TENSORS (sizeof names / sizeof names[0])

struct tensor {
  size_t n;
  bool decays;
  float p[ELEMS_MAX], m[ELEMS_MAX], v[ELEMS_MAX], grad[ELEMS_MAX];
  uint16_t stored[ELEMS_MAX], weight[ELEMS_MAX];
  struct adamw_oracle oracle[ELEMS_MAX];
};

static enum pen_isa level;
static struct pen_safetensors *file;
static struct tensor tensors[N_TENSORS];

/* Reads a whole tensor of the file; returns its elements. */
static size_t load(const char *name, size_t elem_bytes, size_t elems_max,
                   void *ret_data)
{
  size_t i = pen_safetensors_find(file, name);
  if (i == SIZE_MAX)
    fail_msg("no tensor %s in the fixture", name);
  const struct pen_safetensors_tensor *t = pen_safetensors_tensor(file, i);
  assert_true(t->elems <= elems_max && t->bytes == t->elems * elem_bytes);
  test_ok(pen_safetensors_read(file, i, 0, t->bytes, ret_data));
  return t->elems;
}

static size_t load_of(const char *kind, int step, const char *tensor,
                      size_t elem_bytes, void *ret_data)
{
  char name[64];
  if (step)
    snprintf(name, sizeof name, "%s%d.%s", kind, step, tensor);
  else
    snprintf(name, sizeof name, "%s.%s", kind, tensor);
  return load(name, elem_bytes, ELEMS_MAX, ret_data);
}

/* PyTorch's own distance from the reference, tests/fixtures/README.md. */
#define TORCH 2.5e-7

static void compare(const struct tensor *t, const char *name, int step)
{
  double ref_p[ELEMS_MAX], ref_m[ELEMS_MAX], ref_v[ELEMS_MAX];
  float torch_p[ELEMS_MAX], torch_m[ELEMS_MAX], torch_v[ELEMS_MAX];
  double p_max = 0;
  assert_int_equal(load_of("ref.p", step, name, 8, ref_p), t->n);
  assert_int_equal(load_of("ref.m", step, name, 8, ref_m), t->n);
  assert_int_equal(load_of("ref.v", step, name, 8, ref_v), t->n);
  assert_int_equal(load_of("torch.p", step, name, 4, torch_p), t->n);
  assert_int_equal(load_of("torch.m", step, name, 4, torch_m), t->n);
  assert_int_equal(load_of("torch.v", step, name, 4, torch_v), t->n);
  for (size_t i = 0; i < t->n; i++)
    p_max = fmax(p_max, fabs(ref_p[i]));
  for (size_t i = 0; i < t->n; i++) {
    const struct adamw_oracle *o = &t->oracle[i];
    double tiny = step * 0x1p-126;
    if (!(fabs(t->p[i] - ref_p[i]) <= o->p_error) ||
        !(fabs(t->m[i] - ref_m[i]) <= o->m_error) ||
        !(fabs(t->v[i] - ref_v[i]) <= o->v_error))
      fail_msg("%s[%zu] after step %d: p %.9g, not %.9g +- %.2g; m %.9g, not "
               "%.9g; v %.9g, not %.9g", name, i, step, (double)t->p[i],
               ref_p[i], o->p_error, (double)t->m[i], ref_m[i],
               (double)t->v[i], ref_v[i]);
    if (!(fabs(t->p[i] - torch_p[i]) <= o->p_error + TORCH * p_max) ||
        !(fabs(t->m[i] - torch_m[i]) <= o->m_error + TORCH * o->m_abs + tiny) ||
        !(fabs(t->v[i] - torch_v[i]) <= o->v_error + TORCH * o->v + tiny))
      fail_msg("%s[%zu] after step %d: p %.9g, PyTorch %.9g; m %.9g, %.9g; "
               "v %.9g, %.9g", name, i, step, (double)t->p[i],
               (double)torch_p[i], (double)t->m[i], (double)torch_m[i],
               (double)t->v[i], (double)torch_v[i]);
    assert_int_equal(t->weight[i], pen_bf16_from_f32_away(t->p[i]));
  }
}

static void one_step(const struct pen_adamw_hyper *h, double max_norm,
                     double want_norm, double want_clip, int step)
{
  double sums[N_TENSORS], norm;
  for (size_t k = 0; k < N_TENSORS; k++) {
    struct tensor *t = &tensors[k];
    assert_int_equal(load_of("g", step, names[k], 4, t->grad), t->n);
    assert_int_equal(pen_gradient_finish_bf16(level, t->n, ELEMS_MAX, t->grad,
                                              t->stored, &sums[k]), 0);
    for (size_t i = 0; i < t->n; i++)
      adamw_oracle_step(&t->oracle[i], h, t->decays, step,
                        want_clip * (double)t->grad[i]);
  }
  float factor = pen_gradient_factor(pen_gradient_total(N_TENSORS, sums), 1,
                                     max_norm, &norm);
  assert_true(fabs(norm - want_norm) <= 1e-14 * want_norm);
  assert_true(fabs(factor - want_clip) <= ORACLE_UNIT * want_clip);
  struct pen_adamw_params params;
  test_ok(pen_adamw_params_init(h, (uint64_t)step, factor, &params));
  for (size_t k = 0; k < N_TENSORS; k++) {
    struct tensor *t = &tensors[k];
    pen_adamw_update_bf16(level, &params, t->decays, t->n, t->p, t->m, t->v,
                          t->stored, t->weight);
    compare(t, names[k], step);
  }
}

static void five_steps(void **state)
{
  char path[4096];
  double hyper[6], norms[STEPS], clips[STEPS];
  snprintf(path, sizeof path, "%s/tests/fixtures/adamw.safetensors",
           test_root());
  test_ok(pen_safetensors_open(path, false, &file));
  assert_int_equal(load("hyper", 8, 6, hyper), 6);
  assert_int_equal(load("norm", 8, STEPS, norms), STEPS);
  assert_int_equal(load("clip", 8, STEPS, clips), STEPS);
  const struct pen_adamw_hyper h = {.lr = hyper[0], .weight_decay = hyper[1],
                                    .beta1 = hyper[2], .beta2 = hyper[3],
                                    .eps = hyper[4]};
  for (size_t k = 0; k < N_TENSORS; k++) {
    struct tensor *t = &tensors[k];
    int32_t decays[ELEMS_MAX];
    t->n = load_of("p0", 0, names[k], 4, t->p);
    load_of("decays", 0, names[k], 4, decays);
    t->decays = decays[0];
    for (size_t i = 0; i < t->n; i++)
      t->oracle[i] = (struct adamw_oracle){.p = t->p[i]};
  }
  for (int step = 1; step <= STEPS; step++)
    one_step(&h, hyper[5], norms[step - 1], clips[step - 1], step);
  assert_true(clips[1] < 1 && clips[2] == 1); /* clipped and not */
  pen_safetensors_close(&file);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(five_steps)};
  level = test_level();
  return cmocka_run_group_tests(tests, NULL, NULL);
}
