/* bench.h: what the files of `penstock bench` share. */
#ifndef PEN_SRC_CLI_BENCH_H
#define PEN_SRC_CLI_BENCH_H

#include <stdio.h>

#include "src/bench/bench.h"
#include "src/bench/tiers.h"
#include "src/cli/config.h"
#include "src/train/drive_advice.h"

/* What the drives that were measured would mean to training. */
struct pen_bench_advice {
  bool asked;       /* there are such drives; only then: */
  bool simulated;   /* the profile says enough for the models' steps */
  char missing[256]; /* else what it lacks */
  struct pen_drive_advice models[PEN_DRIVE_ADVICE_SIZES + 1];
  size_t n_models;  /* standard sizes, then --model */
  size_t n_drives;
  double mixed;     /* of all of them, read and written, bytes/s */
  uint64_t largest; /* parameters for which there is room */
  uint64_t free_bytes, tbw;
};

/* bench_advice.c: for the drives of config->nvme_path that `machine` has. */
int pen_bench_advice_make(const struct pen_config *config,
                          const struct pen_machine *machine,
                          struct pen_bench_advice *ret_advice);
void pen_bench_advice_print(FILE *f, const struct pen_bench_advice *advice);
void pen_bench_advice_put(struct pen_json_writer *writer,
                          const struct pen_bench_advice *advice);

/* bench_print.c: format: enum pen_config_output_format. */
int pen_bench_print(int format, const struct pen_bench_table *table,
                    const struct pen_bench_advice *advice,
                    const struct pen_machine *machine);
/* This process's command, as a shell would take it. */
#define PEN_BENCH_COMMAND_BYTES 2400
void pen_bench_command(char ret_text[PEN_BENCH_COMMAND_BYTES]);
/* "1.5 G" */
void pen_bench_print_rate(double rate);

/* bench_step.c: training steps of a small model, or of --model; n_runs of them
 * count. */
int pen_bench_step(const struct pen_config *config, size_t n_runs,
                   struct pen_bench_table *table);

/* bench_tiers.c: measures and prints what each level of memory costs. */
int pen_bench_show_tiers(int format, const struct pen_bench_options *options,
                         const struct pen_machine *machine);

#endif
