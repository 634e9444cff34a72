/* verb_eval.c: `penstock eval`. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "io/json_write.h"
#include "src/cli/settings.h"
#include "src/cli/verb.h"
#include "src/model/model_dir.h"
#include "src/train/evaluate.h"

static int print_json(const struct pen_evaluate_result *r)
{
  const char *text;
  size_t bytes;
  struct pen_json_writer w;
  pen_json_writer_init(&w, NULL, 0, false);
  pen_json_begin_object(&w, NULL);
  pen_json_put_double(&w, "loss", r->loss);
  pen_json_put_double(&w, "perplexity", exp(r->loss));
  pen_json_put_u64(&w, "targets", r->n_targets);
  pen_json_put_u64(&w, "tokens", r->n_inputs);
  pen_json_put_u64(&w, "sequences", r->n_sequences);
  pen_json_end_object(&w);
  int rc = pen_json_finish(&w, &text, &bytes);
  if (rc == 0)
    puts(text);
  pen_json_writer_done(&w);
  return rc;
}

int pen_verb_eval(const struct pen_config *config)
{
  struct pen_evaluate_settings s = {
      .max_length = (uint32_t)config->max_length,
      .refuse_truncation = config->refuse_truncation,
      .batch_sequences = config->per_device_train_batch_size,
      .dump_logits = config->dump_logits};
  struct pen_evaluate_result r;
  char *model = NULL, *data = NULL;
  char cache[64];
  pen_settings_model(config, &s.model);
  pen_settings_machine(config, &s.machine);
  /* The token file is only wanted for this call. */
  snprintf(cache, sizeof cache, "/tmp/penstock-eval-XXXXXX");
  int rc = pen_model_dir_find(config->model, &model);
  if (rc == 0 && !mkdtemp(cache))
    rc = pen_error_set(PEN_ESTOPPED, "cannot make a folder %s", cache);
  if (rc == 0)
    rc = pen_settings_tokens(config, config->data, true, model, cache, &data);
  s.model.dir = model;
  s.data = data;
  if (rc == 0)
    rc = pen_evaluate(&s, &r);
  pen_settings_drop_cache(cache);
  if (rc == 0 && config->output_format == PEN_CONFIG_OUTPUT_JSON)
    rc = print_json(&r);
  else if (rc == 0)
    printf("loss %.6f  perplexity %.4f  over %" PRIu64 " target tokens in %"
           PRIu64 " sequences\n", r.loss, exp(r.loss), r.n_targets,
           r.n_sequences);
  free(data);
  free(model);
  return rc;
}
