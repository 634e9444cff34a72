/* settings.h: what a run is asked to do, free of how the question was put. */
#ifndef PEN_SRC_TRAIN_SETTINGS_H
#define PEN_SRC_TRAIN_SETTINGS_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/elem.h"
#include "kernels/state.h"
#include "offload/fit.h"
#include "offload/machine.h"
#include "src/model/config.h"
#include "src/train/lr.h"

/* Where a run computes and where its bytes live. */
struct pen_machine_settings {
  const char *backend;        /* "auto", "host", "cuda"; NULL: the host */
  uint64_t device;            /* number, for a backend that is not the host */
  const char *isa;            /* "auto" or a level's name */
  bool require_simd;
  size_t threads;             /* 0: as many as there are CPUs */
  size_t update_threads;      /* 0: the same */
  bool numa;                  /* threads and memory by node, where there are some */
  uint64_t host_bytes;        /* most RAM to use; 0: what is available */
  uint64_t device_bytes;      /* of a device of its own; 0: all there is */
  uint64_t nvme_bytes;        /* most drive space; 0: what is free */
  const char *const *nvme_dirs; /* borrowed */
  size_t n_nvme_dirs;
  size_t described_cores;     /* plan only: CPUs of a machine that need not be
                                 there; 0: those that are */
  bool described_drives;      /* plan only: nvme_dirs are names of drives that
                                 need not be there */
  const char *io_engine;      /* name or fault specification */
  size_t io_depth;            /* 0: auto */
  uint64_t tile_bytes;        /* of state; 0: auto */
  size_t tile_elems;          /* as a resumed run has them; 0: it is none */
  struct pen_fit_wish wish;   /* zero slots: auto; its tile_elems is set by
                                 the two above */
  bool updates_after_backward; /* before the next step begins, as a step of its
                                  own: to compare with */
  bool searches_speculative;  /* with a profile, how many blocks are updated
                                 during backward; else as wished */
  const struct pen_machine *profile; /* placements are searched by what it says;
                                        NULL: by fit's rule alone; borrowed */
};

/* A model and how it is computed. */
struct pen_model_settings {
  const char *dir;
  const struct pen_model_config *config; /* plan only: known without files, in
                                            place of dir; else NULL; borrowed */
  const char *gemm;           /* product library or "auto" */
  bool tf32;                  /* fp32 products of a device take TF32 */
  const struct pen_state_format *state; /* NULL: the run's, or fp32 */
  bool any_elem;              /* compute in what the files hold */
  enum pen_elem elem;         /* else in this */
  bool lenient, untie;
};

struct pen_train_settings {
  struct pen_model_settings model;
  struct pen_machine_settings machine;

  const char *data, *eval_data; /* token files; eval_data may be NULL */
  const char *data_name, *eval_data_name; /* what the user named and they came
                                             from; NULL: themselves */
  const char *chat_template; /* file, for the models that are written; NULL: as
                                the model has it */
  const char *output_dir;
  bool resume, overwrite, dry_run;
  bool convert_state; /* on resume, to the format that is asked for */
  bool plan_only; /* nothing will be loaded: a config.json is model enough */
  bool what_if;   /* with plan_only: this is not what is asked, only beside it */
  bool whether;   /* with what_if: nothing but whether it fits is asked */

  uint32_t max_length; /* 0: 1,024, or what the model can at most */
  bool refuse_truncation; /* of records longer than that */
  bool packing;           /* several sequences in a row of that length */
  uint64_t batch_sequences, accumulation;
  double epochs;
  uint64_t max_steps;           /* 0: by epochs */
  uint64_t seed;

  enum pen_lr_shape lr_shape;
  double lr, min_lr, warmup, decay_steps;
  double max_grad_norm, weight_decay, beta1, beta2, eps;
  uint64_t max_skips;           /* in a row, before the run stops */

  uint64_t logging_steps, eval_steps, save_steps; /* 0: never */
  uint64_t save_total_limit;    /* 0: keep all */
  uint64_t samples_every;       /* steps; 0: never */
  const uint32_t *sample_prompt; /* [n_sample_prompt] */
  size_t n_sample_prompt, n_sample_new;
  /* A sample's text, for the log, borrowed until the next call; NULL: ids are
   * all that is known.  *ret_text may become NULL. */
  int (*read_sample)(void *ctx, const uint32_t *ids, size_t n,
                     const char **ret_text);
  void *read_sample_ctx;

  bool durable;                 /* false: update in place, never commit */
  uint64_t commit_interval;     /* steps */
  uint64_t max_write;           /* bytes to drives, all in all; 0: no limit */
  bool discard_state;           /* after a finished run */
  const char *trace;            /* timeline file, or NULL */
  const char *config_text;      /* resolved options, kept in the run; borrowed */

  /* Which numerics were asked for by name, to be held against a run's own. */
  bool gave_max_length, gave_batch, gave_accumulation, gave_packing, gave_dtype,
      gave_gemm, gave_tf32, gave_seed;

  const volatile sig_atomic_t *stop; /* set by a signal: finish the step, save,
                                        and return -PEN_ESTOPPED */
};

#endif
