/* verb_eval.c: `penstock eval`: loss and perplexity, document by document if so
 * wanted; of questions with choices, how many it answers. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "io/files.h"
#include "io/json_write.h"
#include "src/cli/settings.h"
#include "src/cli/stop.h"
#include "src/cli/verb.h"
#include "src/data/prepare.h"
#include "src/train/choices.h"
#include "src/train/evaluate.h"

/* What is told while it runs. */
struct report {
  int format; /* enum pen_config_output_format */
  struct pen_choices *choices; /* NULL: documents are no choices */
};

static void begin_line(struct pen_json_writer *w)
{
  pen_json_writer_init(w, NULL, 0, false);
  pen_json_begin_object(w, NULL);
}

static int end_line(struct pen_json_writer *w)
{
  const char *text;
  size_t bytes;
  pen_json_end_object(w);
  int rc = pen_json_finish(w, &text, &bytes);
  if (rc == 0)
    puts(text);
  pen_json_writer_done(w);
  return rc;
}

static int print_question(const struct pen_choices_question *q)
{
  struct pen_json_writer w;
  begin_line(&w);
  pen_json_put_u64(&w, "question", q->number);
  pen_json_put_u64(&w, "answer", q->answer);
  pen_json_begin_array(&w, "logprobs");
  for (size_t i = 0; i < q->n_choices; i++)
    pen_json_put_double(&w, NULL, q->logprobs[i]);
  pen_json_end_array(&w);
  pen_json_put_bool(&w, "acc", q->right);
  pen_json_put_bool(&w, "acc_norm", q->right_norm);
  return end_line(&w);
}

static int each_document(void *ctx, const struct pen_evaluate_document *d)
{
  struct report *report = ctx;
  struct pen_json_writer w;
  if (report->choices) {
    struct pen_choices_question question;
    bool whole;
    int rc = pen_choices_add(report->choices, d->number, d->loss_sum, &question,
                             &whole);
    return rc == 0 && whole && report->format == PEN_CONFIG_OUTPUT_JSONL
               ? print_question(&question)
               : rc;
  }
  double loss = d->loss_sum / (double)d->n_targets;
  begin_line(&w);
  pen_json_put_u64(&w, "document", d->number);
  pen_json_put_double(&w, "loss", loss);
  pen_json_put_double(&w, "perplexity", exp(loss));
  pen_json_put_u64(&w, "targets", d->n_targets);
  pen_json_put_u64(&w, "tokens", d->n_inputs);
  return end_line(&w);
}

static int print_json(const struct pen_evaluate_result *r,
                      const struct pen_choices_result *c)
{
  struct pen_json_writer w;
  begin_line(&w);
  if (c->n_questions) {
    pen_json_put_u64(&w, "questions", c->n_questions);
    pen_json_put_double(&w, "acc", c->acc);
    pen_json_put_double(&w, "acc_stderr", c->acc_stderr);
    pen_json_put_double(&w, "acc_norm", c->acc_norm);
    pen_json_put_double(&w, "acc_norm_stderr", c->acc_norm_stderr);
  }
  pen_json_put_double(&w, "loss", r->loss);
  pen_json_put_double(&w, "perplexity", exp(r->loss));
  pen_json_put_u64(&w, "targets", r->n_targets);
  pen_json_put_u64(&w, "tokens", r->n_inputs);
  pen_json_put_u64(&w, "sequences", r->n_sequences);
  return end_line(&w);
}

/* For people; beside lines for programs on standard error. */
static void print_text(int format, const struct pen_evaluate_result *r,
                       const struct pen_choices_result *c)
{
  FILE *f = format == PEN_CONFIG_OUTPUT_JSONL ? stderr : stdout;
  if (c->n_questions)
    fprintf(f, "acc %.4f +- %.4f  acc_norm %.4f +- %.4f  over %" PRIu64
            " questions\n", c->acc, c->acc_stderr, c->acc_norm,
            c->acc_norm_stderr, c->n_questions);
  fprintf(f, "loss %.6f  perplexity %.4f  over %" PRIu64 " target tokens in %"
          PRIu64 " sequences\n", r->loss, exp(r->loss), r->n_targets,
          r->n_sequences);
}

/* Were these questions with choices?  Then the whole of each counts. */
static int open_choices(struct report *report,
                        struct pen_evaluate_settings *s)
{
  char path[4096 + sizeof PEN_PREPARE_CHOICES_SUFFIX];
  int rc = 0;
  snprintf(path, sizeof path, "%s" PEN_PREPARE_CHOICES_SUFFIX, s->data);
  if (pen_files_exists(path)) {
    rc = pen_choices_open(path, &report->choices);
    s->refuse_truncation = true;
  }
  if (report->choices || report->format == PEN_CONFIG_OUTPUT_JSONL) {
    s->each_document = each_document;
    s->ctx = report;
  }
  return rc;
}

int pen_verb_eval(const struct pen_config *config)
{
  struct pen_evaluate_settings s = {
      .max_length = (uint32_t)config->max_length,
      .refuse_truncation = config->refuse_truncation,
      .batch_sequences = config->per_device_train_batch_size,
      .dump_logits = config->dump_logits};
  struct report report = {.format = config->output_format};
  struct pen_evaluate_result r;
  struct pen_choices_result c = {0};
  char *model = NULL, *data = NULL;
  char cache[4096];
  pen_settings_model(config, &s.model);
  pen_settings_machine(config, &s.machine);
  pen_settings_backend(config, &s.machine);
  /* The token file is only wanted for this call. */
  pen_settings_temporary("eval", cache, sizeof cache);
  s.stop = pen_stop_on_signals();
  int rc = pen_settings_outputs(config);
  if (rc == 0)
    rc = pen_settings_find_model(config, &model);
  if (rc == 0)
    rc = pen_settings_tokens(config, config->data, true, model, cache, s.stop,
                             &data);
  s.model.dir = model;
  s.data = data;
  s.data_name = config->data;
  if (rc == 0)
    rc = open_choices(&report, &s);
  if (rc == 0)
    rc = pen_evaluate(&s, &r);
  if (rc == 0 && report.choices)
    rc = pen_choices_result(report.choices, &c);
  pen_settings_drop_cache(cache);
  if (rc == 0 && config->output_format == PEN_CONFIG_OUTPUT_JSON)
    rc = print_json(&r, &c);
  else if (rc == 0)
    print_text(config->output_format, &r, &c);
  pen_choices_close(&report.choices);
  free(data);
  free(model);
  return rc;
}
