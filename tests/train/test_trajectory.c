/* Fifty optimizer steps of a tiny model against PyTorch's: loss and gradient
 * norm of every step, on the fixture's own micro-batches in their order.
 *
 * Bounds (tests/fixtures/README.md, "trajectory-*"): fp32 losses of PyTorch and of
 * float64 are 3.3e-6 apart at most, norms 1.9e-5; fifteen times that is allowed,
 * since our sums run in another order, and the least of the mistakes listed
 * there (epsilon 1e-6) moves a loss by 7e-4.  In bf16 two right ways to round
 * are 1.3e-2 and 0.12 apart; three times that is allowed. */
#include <math.h>

#include "io/json.h"
#include "io/safetensors.h"
#include "kernels/gemm.h"
#include "kernels/gradient.h"
#include "src/train/session.h"
#include "tests/test.h"

#define STEPS 50
#define MICROS 2
#define ROWS 2
#define TOKENS 16
#define MICRO_TOKENS (ROWS * TOKENS)

static const struct pen_adamw_hyper hyper = {
    .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.1};
#define MAX_NORM 1.0

struct stream {
  int32_t ids[STEPS][MICROS][MICRO_TOKENS];
  int32_t targets[STEPS][MICROS][MICRO_TOKENS];
};

struct curve {
  double loss[STEPS], norm[STEPS];
};

static const char *fixture(const char *name)
{
  static char paths[4][4096];
  static size_t next;
  char *path = paths[next++ % 4];
  snprintf(path, sizeof paths[0], "%s/tests/fixtures/%s", test_root(), name);
  return path;
}

static void read_stream(struct stream *s)
{
  struct pen_safetensors *file;
  test_ok(pen_safetensors_open(fixture("trajectory-ids.safetensors"), false,
                               &file));
  test_ok(pen_safetensors_read(file, pen_safetensors_find(file, "ids"), 0,
                               sizeof s->ids, s->ids));
  test_ok(pen_safetensors_read(file, pen_safetensors_find(file, "targets"), 0,
                               sizeof s->targets, s->targets));
  pen_safetensors_close(&file);
}

static void read_array(const struct pen_json *json, const char *key,
                       double out[STEPS])
{
  const struct pen_json_node *array;
  test_ok(pen_json_get_array(json, pen_json_root(json), key, &array));
  assert_int_equal(pen_json_size(array), STEPS);
  for (size_t i = 0; i < STEPS; i++)
    test_ok(pen_json_as_double(json, pen_json_item(array, i), &out[i]));
}

static void read_curve(const char *name, const char *suffix, struct curve *c)
{
  struct pen_json *json;
  char loss[64], norm[64];
  snprintf(loss, sizeof loss, "loss%s", suffix);
  snprintf(norm, sizeof norm, "grad_norm%s", suffix);
  test_ok(pen_json_load(fixture(name), &json));
  read_array(json, loss, c->loss);
  read_array(json, norm, c->norm);
  pen_json_free(&json);
}

static void open_session(struct pen_session *s, enum pen_elem elem,
                         const char *gemm)
{
  struct pen_model_settings model = {
      .dir = fixture("models/llama"), .gemm = gemm, .elem = elem};
  struct pen_machine_settings machine = {
      .isa = "auto",
      .threads = 2,
      .wish = {.unified = true, .recompute_blocks = PEN_FIT_RECOMPUTE_AUTO}};
  struct pen_session_shape shape = {.max_tokens = MICRO_TOKENS,
                                    .max_micros = MICROS};
  test_ok(pen_session_open(s, &model, &machine, &shape, TOKENS));
  test_ok(pen_session_start(s, NULL, NULL, NULL));
  test_ok(pen_session_load(s));
}

/* Returns the number of targets. */
static size_t set_micro(struct pen_session *s, const struct stream *stream,
                        size_t step, size_t micro)
{
  uint32_t ids[MICRO_TOKENS], positions[MICRO_TOKENS];
  uint32_t doc_begin[ROWS + 1] = {0};
  int32_t targets[MICRO_TOKENS];
  size_t n_targets = 0;
  for (uint32_t t = 0; t < MICRO_TOKENS; t++) {
    ids[t] = (uint32_t)stream->ids[step][micro][t];
    positions[t] = t % TOKENS;
    targets[t] = stream->targets[step][micro][t];
    n_targets += targets[t] >= 0;
  }
  for (uint32_t d = 0; d < ROWS; d++)
    doc_begin[d + 1] = (d + 1) * TOKENS;
  struct pen_batch batch = {.n_tokens = MICRO_TOKENS,
                            .n_docs = ROWS,
                            .n_targets = n_targets,
                            .ids = ids,
                            .positions = positions,
                            .targets = targets,
                            .doc_begin = doc_begin};
  test_ok(pen_session_set_micro(s, micro, &batch, PEN_LOGITS_NONE));
  return n_targets;
}

static void train(struct pen_session *s, const struct stream *stream,
                  struct curve *ret)
{
  struct pen_run_update update = {.apply = false};
  for (size_t step = 0; step < STEPS; step++) {
    size_t n_targets = 0;
    for (size_t m = 0; m < MICROS; m++)
      n_targets += set_micro(s, stream, step, m);
    struct pen_shape shape = {.kind = PEN_STEP_TRAIN,
                              .n_micros = MICROS,
                              .n_tokens = MICROS * MICRO_TOKENS};
    struct pen_run_result result;
    test_ok(pen_run_step(s->run, &shape, &update, &result));
    assert_int_equal(result.nonfinite, 0);
    double scale = 1.0 / (double)n_targets;
    float factor = pen_gradient_factor(result.sumsq, scale, MAX_NORM,
                                       &ret->norm[step]);
    ret->loss[step] = result.loss_sum * scale;
    update.apply = true;
    update.step = step + 1;
    test_ok(pen_adamw_params_init(&hyper, step + 1, factor, &update.params));
  }
}

static void compare(const char *what, const double got[STEPS],
                    const double want[STEPS], double bound)
{
  double most = 0;
  for (size_t i = 0; i < STEPS; i++) {
    double distance = fabs(got[i] - want[i]);
    if (!(distance <= bound))
      fail_msg("%s of step %zu is %.9g, not %.9g: more than %g apart", what,
               i + 1, got[i], want[i], bound);
    most = distance > most ? distance : most;
  }
  printf("# %s: at most %.2g apart, %g allowed\n", what, most, bound);
}

static void check(enum pen_elem elem, const char *gemm, const char *file,
                  const char *suffix, double loss_bound, double norm_bound)
{
  static struct stream stream;
  struct curve got, want;
  struct pen_session session;
  const struct pen_gemm_library *library;
  if (pen_gemm_find(gemm, elem, &library))
    test_skip("%s", pen_error_text());
  read_stream(&stream);
  read_curve(file, suffix, &want);
  open_session(&session, elem, gemm);
  train(&session, &stream, &got);
  pen_session_close(&session);
  compare("loss", got.loss, want.loss, loss_bound);
  compare("gradient norm", got.norm, want.norm, norm_bound);
}

#define FP32_LOSS_BOUND 5e-5
#define FP32_NORM_BOUND 3e-4
#define BF16_LOSS_BOUND 4e-2
#define BF16_NORM_BOUND 0.36

static void test_fp32(void **state)
{
  check(PEN_ELEM_F32, "reference", "trajectory-fp32.json", "", FP32_LOSS_BOUND,
        FP32_NORM_BOUND);
}

static void test_fp32_against_float64(void **state)
{
  check(PEN_ELEM_F32, "reference", "trajectory-fp32.json", "_float64",
        FP32_LOSS_BOUND, FP32_NORM_BOUND);
}

static void test_fp32_openblas(void **state)
{
  check(PEN_ELEM_F32, "openblas", "trajectory-fp32.json", "", FP32_LOSS_BOUND,
        FP32_NORM_BOUND);
}

static void test_bf16(void **state)
{
  check(PEN_ELEM_BF16, "reference", "trajectory-bf16.json", "",
        BF16_LOSS_BOUND, BF16_NORM_BOUND);
}

static void test_bf16_onednn(void **state)
{
  check(PEN_ELEM_BF16, "onednn", "trajectory-bf16.json", "", BF16_LOSS_BOUND,
        BF16_NORM_BOUND);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_fp32),
      cmocka_unit_test(test_fp32_against_float64),
      cmocka_unit_test(test_fp32_openblas),
      cmocka_unit_test(test_bf16),
      cmocka_unit_test(test_bf16_onednn),
  };
  return cmocka_run_group_tests_name("trajectory", tests, NULL, NULL);
}
