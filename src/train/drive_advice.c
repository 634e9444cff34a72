/* drive_advice.c: plans models with their state on the drives of a machine, and
 * once more on drives that take no time: the difference is what they add.
 *
 * Each answer is a whole plan: placed, proved, simulated.  Nothing is written.
 * Main thread.  Disadvantage: the difference is of one placement; without its
 * drive a machine might be used in another way. */
#include "src/train/drive_advice.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "src/train/drives.h"
#include "src/train/plan.h"

/* Room of tiles by the state in them: each block's last one is partly empty, most of
 * all in small models with the largest tiles (1.5 B, 48 MiB: 1.076). */
#define TILES_OF_STATE 1.08
#define TOKENS_AUTO 65536
#define LENGTH_AUTO 2048
#define NO_TIME 1e30 /* bytes a second of a drive that takes none */

/* ---- standard sizes ---- */

/* Shapes that many published models of a size have. */
struct size {
  const char *name;
  unsigned hidden, ffn, layers, heads, kv_heads, vocabulary;
  bool tied;
};

static const struct size sizes[PEN_DRIVE_ADVICE_SIZES] = {
    {"1.5B", 1536, 8960, 28, 12, 2, 151936, true},
    {"3B", 2048, 11008, 36, 16, 2, 151936, true},
    {"8B", 4096, 14336, 32, 32, 8, 128256, false},
    {"14B", 5120, 13824, 48, 40, 8, 152064, false},
    {"32B", 5120, 27648, 64, 40, 8, 152064, false},
    {"70B", 8192, 28672, 80, 64, 8, 128256, false},
};

static int config_of(const struct size *s, struct pen_model_config *ret_config)
{
  char text[768];
  struct pen_json *json = NULL;
  int n = snprintf(
      text, sizeof text,
      "{\"model_type\": \"llama\", \"architectures\": [\"LlamaForCausalLM\"], "
      "\"hidden_act\": \"silu\", \"hidden_size\": %u, "
      "\"intermediate_size\": %u, \"num_hidden_layers\": %u, "
      "\"num_attention_heads\": %u, \"num_key_value_heads\": %u, "
      "\"vocab_size\": %u, \"tie_word_embeddings\": %s, "
      "\"max_position_embeddings\": 131072, \"rms_norm_eps\": 1e-5, "
      "\"rope_theta\": 500000.0, \"torch_dtype\": \"bfloat16\"}",
      s->hidden, s->ffn, s->layers, s->heads, s->kv_heads, s->vocabulary,
      s->tied ? "true" : "false");
  int rc = pen_json_parse(text, (size_t)n, s->name, &json);
  if (rc == 0)
    rc = pen_model_config_parse(json, ret_config);
  pen_json_free(&json);
  return rc;
}

/* ---- one plan ---- */

static void settings_of(const struct pen_drive_advice_question *q,
                        const struct pen_model_config *config,
                        struct pen_train_settings *ret_settings)
{
  const struct pen_machine *m = q->machine;
  uint64_t tokens = q->tokens_per_step ? q->tokens_per_step : TOKENS_AUTO;
  uint64_t length = q->max_length ? q->max_length : LENGTH_AUTO;
  if (length > config->max_positions)
    length = config->max_positions;
  if (length > tokens)
    length = tokens;
  *ret_settings = (struct pen_train_settings){
      .model = {.gemm = "auto", .elem = PEN_ELEM_BF16, .config = config},
      .machine = {.isa = "auto",
                  .described_cores = m->cores,
                  .host_bytes = q->host_bytes ? q->host_bytes
                                              : pen_machine_free_ram(m),
                  .device_bytes = pen_machine_free_device(m),
                  .nvme_dirs = pen_drives_names(),
                  .n_nvme_dirs = m->n_drives,
                  .described_drives = true,
                  .io_engine = "auto",
                  .wish = {.unified = !pen_machine_has_device(m),
                           .state = PEN_FIT_NVME,
                           .recompute_blocks = PEN_FIT_RECOMPUTE_AUTO,
                           .recompute_head_blocks = PEN_FIT_RECOMPUTE_AUTO},
                  .profile = m},
      .plan_only = true,
      .max_length = (uint32_t)length,
      .batch_sequences = 1,
      .gave_batch = true,
      .accumulation = (tokens + length - 1) / length,
      .epochs = 1,
      .max_grad_norm = 1,
      .durable = q->durable,
      .commit_interval = 1,
      .save_steps = q->n_checkpoints > 0,
      .save_total_limit = q->n_checkpoints};
}

/* What the drives need for a step's bytes if nothing else ever waits. */
static double drives_alone(const struct pen_machine *m, double read,
                           double written)
{
  double most = 0, n = (double)m->n_drives;
  for (size_t d = 0; d < m->n_drives; d++) {
    const struct pen_machine_drive *drive = &m->drives[d];
    double both = read / drive->read + written / drive->write;
    most = fmax(most, both * pen_demand_mixing(drive) / n);
  }
  return most;
}

static int time_of(const struct pen_drive_advice_question *q,
                   struct pen_plan *plan, struct pen_drive_advice *a)
{
  struct pen_machine m = *q->machine;
  struct pen_simulate_result with, without;
  double written = (double)plan->written_per_step;
  const struct pen_run_plan *work = &plan->trainer.session.plan;
  uint64_t read = work->step_cost.nvme_bytes - work->nvme_written_bytes;
  int rc = pen_plan_time(plan, &m, &with);
  for (size_t d = 0; d < m.n_drives; d++)
    m.drives[d] = (struct pen_machine_drive){.read = NO_TIME, .write = NO_TIME};
  if (rc == 0)
    rc = pen_plan_time(plan, &m, &without);
  if (rc < 0)
    return rc;
  a->step_seconds = with.seconds;
  a->added_seconds = fmax(0, with.seconds - without.seconds);
  a->alone_seconds = drives_alone(q->machine, (double)read, written);
  a->written_bytes = plan->written_per_step;
  if (q->tbw && written > 0) {
    a->steps_to_tbw = (double)q->tbw * (double)m.n_drives / written;
    a->days_to_tbw = a->steps_to_tbw * a->step_seconds / 86400;
  }
  return 0;
}

static int advise(const struct pen_drive_advice_question *q, const char *name,
                  const struct pen_model_config *config,
                  struct pen_drive_advice *ret_advice)
{
  struct pen_drive_advice a = {.parameters = 0};
  struct pen_train_settings settings;
  struct pen_plan plan;
  if (!q->machine->n_drives)
    return pen_error_set(PEN_EUSAGE, "the machine has no drive to speak of; run "
                         "penstock bench nvme --nvme-path DIR");
  settings_of(q, config, &settings);
  int rc = pen_plan_open(&settings, &plan);
  const struct pen_session *s = &plan.trainer.session;
  snprintf(a.model, sizeof a.model, "%s", name);
  if (rc == 0 || rc == -PEN_ENOFIT) {
    a.parameters = s->params->n_elems;
    a.tokens_per_step = settings.accumulation * settings.max_length;
    a.drive_bytes = s->memory.total[PEN_TIER_NVME] +
                    (1 + q->n_checkpoints) * pen_trainer_model_bytes(&plan.trainer);
    a.has_room = !q->free_bytes || a.drive_bytes <= q->free_bytes;
  }
  if (rc == 0) {
    a.fits = true;
    rc = time_of(q, &plan, &a);
  } else if (rc == -PEN_ENOFIT) {
    pen_error_clear();
    rc = 0;
  }
  pen_plan_close(&plan);
  if (rc == 0)
    *ret_advice = a;
  return rc;
}

int pen_drive_advice_model(const struct pen_drive_advice_question *question,
                           const char *model,
                           struct pen_drive_advice *ret_advice)
{
  struct pen_model_config config;
  struct pen_model_settings settings = {.dir = model};
  bool is_file;
  int rc = pen_session_load_config(&settings, &config, &is_file);
  return rc < 0 ? rc : advise(question, model, &config, ret_advice);
}

int pen_drive_advice_size(const struct pen_drive_advice_question *question,
                          size_t i, struct pen_drive_advice *ret_advice)
{
  struct pen_model_config config;
  int rc = config_of(&sizes[i], &config);
  return rc < 0 ? rc : advise(question, sizes[i].name, &config, ret_advice);
}

uint64_t
pen_drive_advice_largest(const struct pen_drive_advice_question *question)
{
  const struct pen_drive_advice_question *q = question;
  /* As pen_trainer_extents has it: p, m, v of each extent; and the models. */
  uint64_t extents = q->durable ? 3 + q->n_checkpoints : 1;
  double bytes = (double)(extents * 3 * sizeof(float)) * TILES_OF_STATE +
                 (double)((1 + q->n_checkpoints) * pen_elem_bytes(PEN_ELEM_BF16));
  return (uint64_t)((double)q->free_bytes / bytes);
}
