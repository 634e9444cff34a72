/* bench.h: what the files of `penstock bench` share. */
#ifndef PEN_SRC_CLI_BENCH_H
#define PEN_SRC_CLI_BENCH_H

#include "src/bench/bench.h"
#include "src/bench/tiers.h"
#include "src/cli/config.h"

/* bench_print.c: format: enum pen_config_output_format. */
int pen_bench_print(int format, const struct pen_bench_table *table,
                    const struct pen_machine *machine);
/* "1.5 G" */
void pen_bench_print_rate(double rate);

/* bench_tiers.c: measures and prints what each level of memory costs. */
int pen_bench_show_tiers(int format, const struct pen_bench_options *options,
                         const struct pen_machine *machine);

#endif
