/* fuzz_config.c: a config.json of any bytes.
 *
 * Beyond not crashing: a failure has a text; what is accepted has sizes that
 * fit each other, and a parameter table whose blocks add up. */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "io/json.h"
#include "src/model/config.h"
#include "src/model/params.h"
#include "tests/fuzz/fuzz.h"

static void check_config(const struct pen_model_config *c)
{
  const struct pen_rope_config *r = &c->rope;
  if (!c->family || !c->hidden_size || !c->n_layers || !c->vocab_size ||
      !c->n_kv_heads || c->n_heads % c->n_kv_heads || !c->head_dim ||
      c->head_dim % 2 || !c->intermediate_size || !c->max_positions)
    fuzz_fail("accepted impossible sizes");
  if (!(c->norm_eps >= 0 && c->norm_eps < 1) || !isfinite(r->theta) ||
      r->theta <= 1 || !(r->attention_factor > 0))
    fuzz_fail("accepted impossible numbers");
  if (r->type != PEN_ROPE_DEFAULT && !(r->factor >= 1))
    fuzz_fail("rope factor %g", r->factor);
  if (r->type == PEN_ROPE_LLAMA3 &&
      !(r->low_freq_factor > 0 && r->high_freq_factor > r->low_freq_factor))
    fuzz_fail("llama3 factors %g, %g", r->low_freq_factor,
              r->high_freq_factor);
}

static void check_params(const struct pen_model_config *config)
{
  struct pen_params *p = NULL;
  uint64_t total = 0;
  if (config->n_layers > 256) /* slow, not different */
    return;
  if (pen_params_build(config, 65536, 0, &p))
    fuzz_fail("no table: %s", pen_error_text());
  for (size_t i = 0; i < p->n_params; i++)
    total += (uint64_t)p->params[i].rows * p->params[i].cols;
  if (total != p->n_elems)
    fuzz_fail("blocks do not add up");
  pen_params_free(&p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
  struct pen_json *json = NULL;
  struct pen_model_config config;
  int rc = pen_json_parse((const char *)data, n_bytes, "config.json", &json);
  if (!rc)
    rc = pen_model_config_parse(json, &config);
  pen_json_free(&json);
  if ((rc != 0) != (*pen_error_text() != '\0'))
    fuzz_fail("code %d with the text \"%s\"", rc, pen_error_text());
  pen_error_clear();
  if (rc)
    return 0;
  check_config(&config);
  check_params(&config);
  pen_model_config_check_length(&config, config.max_positions);
  pen_error_clear();
  return 0;
}
