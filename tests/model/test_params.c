/* The parameter table: counts of published models, and that blocks, tensors and
 * ranges say the same about every element. */
#include "src/model/params.h"

#include "io/json.h"
#include "src/model/layer_layout.h"
#include "tests/test.h"
#include "tests/tmpdir.h"

static struct pen_model_config small(const char *family)
{
  return (struct pen_model_config){
    .family = pen_family_find(family), .hidden_size = 24,
    .intermediate_size = 40, .n_layers = 3, .n_heads = 6, .n_kv_heads = 2,
    .head_dim = 6, .vocab_size = 50, .max_positions = 64, .norm_eps = 1e-6,
    .rope = {.dim = 6, .theta = 10000, .attention_factor = 1}};
}

/* Each block's pieces in order and aligned; its ranges cover it and agree with
 * the pieces on decay, row by row. */
static void check_blocks(const struct pen_params *p)
{
  for (size_t b = 0; b < p->n_blocks; b++) {
    const struct pen_block *block = &p->blocks[b];
    const struct pen_param_block *info = &p->infos[b];
    size_t end = 0, at = 0;
    assert_non_null(block->name);
    assert_int_equal(block->elems % PEN_BLOCK_ALIGN_ELEMS, 0);
    for (size_t r = 0; r < block->n_ranges; r++) {
      assert_int_equal(block->ranges[r].begin, at);
      assert_true(block->ranges[r].end > at);
      at = block->ranges[r].end;
    }
    assert_int_equal(at, block->elems);
    for (size_t i = 0; i < info->n_params; i++) {
      const struct pen_param *q = &p->params[info->first_param + i];
      assert_int_equal(q->block, b);
      assert_true(q->offset >= end && q->offset < end + PEN_BLOCK_ALIGN_ELEMS);
      assert_int_equal(q->offset % PEN_BLOCK_ALIGN_ELEMS, 0);
      assert_int_equal(info->role_offset[q->role], q->offset);
      end = q->offset + q->rows * q->cols;
      for (size_t e = q->offset; e < end; e++) {
        size_t r = 0, row = q->row_begin + (e - q->offset) / q->cols;
        while (e >= block->ranges[r].end)
          r++;
        bool padded = info->kind >= PEN_BLOCK_EMBED &&
                      row >= p->config.vocab_size;
        assert_int_equal(block->ranges[r].decays, q->decays && !padded);
      }
    }
    assert_true(block->elems >= end &&
                block->elems < end + PEN_BLOCK_ALIGN_ELEMS);
  }
}

/* Every row of every tensor lies in exactly one block. */
static void check_tensors(const struct pen_params *p)
{
  uint64_t total = 0;
  for (size_t t = 0; t < p->n_tensors; t++) {
    const struct pen_param_tensor *tensor = &p->tensors[t];
    uint64_t row = 0;
    for (size_t i = 0; i < tensor->n_params; i++) {
      const struct pen_param *q = &p->params[tensor->first_param + i];
      assert_int_equal(q->tensor, t);
      assert_int_equal(q->row_begin, row);
      assert_int_equal(q->cols, tensor->shape[1]);
      assert_int_equal(q->decays, tensor->rank == 2);
      row += q->rows;
    }
    assert_int_equal(row, tensor->shape[0]);
    total += tensor->shape[0] * tensor->shape[1];
  }
  assert_int_equal(total, p->n_elems);
}

static void check_family(const struct pen_model_family *family, unsigned k)
{
  static const size_t head_rows[] = {1000, 16, 50}, vocab_rows[] = {0, 56, 50};
  struct pen_model_config c = small(family->model_type);
  struct pen_params *p = NULL;
  struct pen_workload w = {0};
  size_t n_sparse = 0;
  if (family->mixture) {
    c.n_experts = 3;
    c.experts_per_token = 2;
    c.expert_size = 10;
    c.sparse[0] = family->mixture->some_layers ? 2 : ~(uint64_t)0;
    for (size_t layer = 0; layer < c.n_layers; layer++)
      n_sparse += pen_model_config_is_sparse(&c, layer);
  }
  c.tied = k % 2;
  c.qkv_bias = c.o_bias = c.mlp_bias = k / 2 % 2;
  test_ok(pen_params_build(&c, head_rows[k / 4], vocab_rows[k / 4], &p));
  check_blocks(p);
  check_tensors(p);
  pen_params_workload(p, &w);
  assert_int_equal(pen_workload_is_tied(&w), c.tied);
  assert_int_equal(w.head_end, w.experts_begin);
  assert_int_equal(w.experts_end, w.n_blocks);
  assert_int_equal(w.experts_end - w.experts_begin, 3 * n_sparse);
  assert_int_equal(w.body_end - w.body_begin,
                   c.n_layers + n_sparse + (family->names->positions ? 2 : 1));
  for (size_t x = w.experts_begin; x < w.experts_end; x++) {
    const struct pen_block *owner = &w.blocks[w.blocks[x].owner];
    assert_true(x >= owner->experts_begin && x < owner->experts_end);
    assert_int_equal(p->infos[x].layer, p->infos[w.blocks[x].owner].layer);
  }
  assert_int_equal(w.rows_end - w.rows_begin, w.head_end - w.head_begin);
  assert_int_equal(w.body_begin, c.tied ? 0 : w.rows_end);
  pen_params_free(&p);
  pen_params_free(&p);
}

static void test_consistent(void **state)
{
  const struct pen_model_family *family;
  for (size_t i = 0; (family = pen_family_at(i)); i++)
    for (unsigned k = 0; k < 2 * 2 * 3; k++)
      check_family(family, k);
}

/* F14: rows from vocab_size on are counted, kept and not decayed. */
static void test_padded(void **state)
{
  struct pen_model_config c = small("llama");
  struct pen_params *p = NULL;
  test_ok(pen_params_build(&c, 16, 66, &p));
  static const size_t valid[] = {16, 16, 16, 2, 0};
  for (size_t i = 0; i < 5; i++) {
    const struct pen_param_block *info = &p->infos[p->head_begin + i];
    assert_int_equal(info->rows, i < 4 ? 16 : 2);
    assert_int_equal(info->rows_valid, valid[i]);
  }
  pen_params_free(&p);
  test_fails(pen_params_build(&c, 16, 49, &p), PEN_EMISMATCH,
             "the embedding has 49 rows, the vocabulary 50 tokens");
}

/* Matrices of a layer that are one product, since they lie without gaps. */
static void check_parts(const struct pen_params *p, size_t qkv, size_t gate_up)
{
  bool experts = p->experts_begin < p->experts_end;
  struct pen_layer attention, mlp;
  pen_layer_init(&attention, p, experts ? PEN_BLOCK_ATTENTION : PEN_BLOCK_LAYER,
                 PEN_ELEM_F32, 16);
  pen_layer_init(&mlp, p, experts ? PEN_BLOCK_EXPERT : PEN_BLOCK_LAYER,
                 PEN_ELEM_F32, 16);
  assert_int_equal(attention.qkv.n_parts, qkv);
  assert_int_equal(attention.qkv.out, attention.qkv_width);
  assert_int_equal(mlp.gate_up.n_parts, gate_up);
}

static void test_adjacent(void **state)
{
  struct pen_model_config c = small("llama");
  struct pen_params *p = NULL;
  test_ok(pen_params_build(&c, 16, 0, &p));
  check_parts(p, 3, 1); /* 36 x 24 = 13.5 lines, 40 x 24 = 15 */
  pen_params_free(&p);
  c.head_dim = 32;
  c.qkv_bias = true;
  test_ok(pen_params_build(&c, 16, 0, &p));
  check_parts(p, 1, 1);
  const size_t *offset = pen_params_first(p, PEN_BLOCK_LAYER)->role_offset;
  assert_int_equal(offset[PEN_ROLE_K] - offset[PEN_ROLE_Q], 6 * 32 * 24);
  assert_int_equal(offset[PEN_ROLE_V] - offset[PEN_ROLE_K], 2 * 32 * 24);
  assert_int_equal(offset[PEN_ROLE_K_BIAS] - offset[PEN_ROLE_Q_BIAS], 6 * 32);
  pen_params_free(&p);
}

static void test_published(void **state)
{
  struct pen_json *json = NULL;
  const struct pen_json_node *counts, *node;
  const char *name;
  void *iter = NULL;
  size_t n_checked = 0;
  test_ok(pen_json_load(test_shared("configs/expected-parameters.json"),
                        &json));
  test_ok(pen_json_get_object(json, pen_json_root(json), "parameters",
                              &counts));
  while (pen_json_next(counts, &iter, &name, &node)) {
    char path[256];
    size_t expect = 0;
    struct pen_model_config config;
    struct pen_params *p = NULL;
    snprintf(path, sizeof path, "configs/%s.config.json", name);
    test_ok(pen_json_as_size(json, node, &expect));
    test_ok(pen_model_config_load(test_shared(path), &config));
    test_ok(pen_params_build(&config, 4096, 0, &p));
    if (p->n_elems != expect)
      fail_msg("%s: %llu parameters, not %zu", name,
               (unsigned long long)p->n_elems, expect);
    check_parts(p, 1, 1);
    n_checked++;
    pen_params_free(&p);
  }
  pen_json_free(&json);
  printf("# %zu models counted\n", n_checked);
  assert_int_equal(n_checked, 19);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_consistent), cmocka_unit_test(test_padded),
    cmocka_unit_test(test_adjacent),   cmocka_unit_test(test_published),
  };
  return cmocka_run_group_tests_name("params", tests, NULL, NULL);
}
