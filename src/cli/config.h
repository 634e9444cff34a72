/* config.h: what a command line asks for, as one plain struct. */
#ifndef PEN_SRC_CLI_CONFIG_H
#define PEN_SRC_CLI_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/option.h"

enum pen_config_place {
  PEN_CONFIG_PLACE_AUTO,
  PEN_CONFIG_PLACE_NONE, /* stays on the device */
  PEN_CONFIG_PLACE_CPU,
  PEN_CONFIG_PLACE_NVME,
};

enum pen_config_dtype {
  PEN_CONFIG_DTYPE_AUTO,
  PEN_CONFIG_DTYPE_BF16,
  PEN_CONFIG_DTYPE_FP32,
  PEN_CONFIG_DTYPE_FP16, /* export alone */
};

enum pen_config_schedule {
  PEN_CONFIG_SCHEDULE_CONSTANT,
  PEN_CONFIG_SCHEDULE_LINEAR,
  PEN_CONFIG_SCHEDULE_COSINE,
  PEN_CONFIG_SCHEDULE_WSD,
};

enum pen_config_host_mode {
  PEN_CONFIG_HOST_UNIFIED,
  PEN_CONFIG_HOST_DISCRETE,
};

enum pen_config_numa {
  PEN_CONFIG_NUMA_OFF,
  PEN_CONFIG_NUMA_AUTO,
};

enum pen_config_durability {
  PEN_CONFIG_DURABILITY_STEP,
  PEN_CONFIG_DURABILITY_NONE,
};

/* By the numbers of kernels/state.h. */
enum pen_config_state_format {
  PEN_CONFIG_FORMAT_FP32,
  PEN_CONFIG_FORMAT_SPLIT32,
  PEN_CONFIG_FORMAT_BF16,
  PEN_CONFIG_FORMAT_INT8,
  PEN_CONFIG_FORMAT_AUTO,
};

enum pen_config_state_after_run {
  PEN_CONFIG_STATE_KEEP,
  PEN_CONFIG_STATE_DISCARD,
};

enum pen_config_output_format {
  PEN_CONFIG_OUTPUT_TEXT,
  PEN_CONFIG_OUTPUT_JSON,
  PEN_CONFIG_OUTPUT_YAML, /* plan: a file for -c */
  PEN_CONFIG_OUTPUT_JSONL, /* bench, eval: a line of JSON for each result */
  PEN_CONFIG_OUTPUT_MD,    /* bench: a Markdown table */
  PEN_CONFIG_OUTPUT_CSV,
};

#define PEN_CONFIG_AUTO 0 /* counts and bytes whose text is "auto" */
#define PEN_CONFIG_RECOMPUTE_AUTO UINT64_MAX
#define PEN_CONFIG_RECOMPUTE_ALL (UINT64_MAX - 1)

/* Filled by the option table (options.c), which says for each field its name,
 * default and meaning.  Strings are NULL where not given and, like lists,
 * belong to the struct pen_options that fills it. */
struct pen_config {
  const struct pen_options *options; /* that filled it: who set what */

  /* general */
  char *config_file;
  bool help, dump_config;
  int log_level; /* enum pen_log_level */

  /* data */
  char *path;         /* inspect */
  char *model_config; /* init */
  char *model, *data, *eval_data;
  bool lenient;
  uint64_t max_length; /* tokens, or PEN_CONFIG_AUTO */
  bool tf32;
  bool refuse_truncation, packing;
  char *chat_template; /* file or name; NULL: the model's own */
  bool assistant_only_loss, completion_only_loss;

  /* output */
  char *output_dir;
  bool resume, overwrite, dry_run;
  int output_format; /* enum pen_config_output_format */
  uint64_t logging_steps, eval_steps, save_steps; /* 0: never */
  uint64_t save_total_limit;
  uint64_t samples_every; /* steps; 0: never */
  char *sample_prompt;    /* NULL: the begin token */
  char *trace, *dump_logits;
  char *bench;         /* memory, gemm, adam, nvme, tiers or all */
  uint64_t bench_size; /* bytes, or PEN_CONFIG_AUTO */
  uint64_t repeats;
  /* Numbers, as pen_option_list_number reads them; empty: auto. */
  struct pen_option_list bench_threads, bench_depths, request_sizes, state_bytes;
  uint64_t tokens_per_step; /* of bench's steps, or PEN_CONFIG_AUTO */
  bool soak;
  double soak_idle; /* seconds */
  char *profile; /* of this machine; NULL: the user's */
  uint64_t tbw;  /* bytes a drive is rated for; 0: not given */

  char *sweep, *plot; /* plan: NAME=VALUE,...; a figure's file */

  /* plan: parts of a described machine, NULL or AUTO */
  char *gpu, *pcie;
  double gpu_flops;
  uint64_t ram, cores, memory_bandwidth, drives, drive_read, drive_write;

  /* training */
  double learning_rate, min_lr;
  int lr_scheduler_type;               /* enum pen_config_schedule */
  double warmup_steps, lr_decay_steps; /* below 1: a share of all steps */
  double num_train_epochs;
  uint64_t max_steps; /* 0: epochs decide */
  uint64_t per_device_train_batch_size, gradient_accumulation_steps;
  double max_grad_norm, weight_decay; /* max_grad_norm 0: no clipping */
  double adam_beta1, adam_beta2, adam_epsilon;
  uint64_t max_skips, seed;

  /* init */
  uint64_t vocab_size; /* or PEN_CONFIG_AUTO */
  bool untie;

  /* export */
  bool with_optimizer;
  char *gguf; /* number format; NULL: no such file */

  /* generate */
  char *prompt, *system, *stop;
  bool chat;
  uint64_t max_new_tokens;
  bool greedy;
  double temperature, top_p;
  uint64_t top_k; /* 0: all */

  /* numerics: what may change a bit */
  char *backend; /* auto, host, cuda */
  uint64_t device; /* number of it */
  int dtype;  /* enum pen_config_dtype */
  int state_format;
  bool convert_state; /* on resume, to that */
  char *gemm; /* auto, reference, openblas, onednn, cublas */

  /* placement: what may not */
  char *isa; /* auto, scalar, neon, avx2, avx512, avx512bf16: bit-equal all */
  bool require_simd;
  int host_mode; /* enum above */
  uint64_t device_memory, host_memory, nvme_memory; /* bytes, or AUTO */
  struct pen_option_list nvme_path;
  int offload_optimizer, offload_gradients;  /* enum pen_config_place */
  uint64_t optimizer_host_memory;            /* bytes, or AUTO */
  int offload_params, offload_activations;
  uint64_t group_size, tile_size;            /* AUTO or micro-batches, bytes */
  uint64_t weight_slots, gradient_slots, tile_slots; /* or AUTO */
  uint64_t recompute, recompute_logits; /* blocks, or PEN_CONFIG_RECOMPUTE_ */
  uint64_t speculative_updates;         /* the same */
  bool update_after_backward;
  uint64_t threads, update_threads;          /* or AUTO */
  int numa; /* enum above */
  char *io_engine;
  uint64_t io_depth;
  int durability; /* enum above */
  uint64_t commit_interval;
  int state_after_run; /* enum above */
  uint64_t max_write;  /* bytes; 0: no limit */
};

#endif
