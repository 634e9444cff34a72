/* arguments.c: one table of options for all benches.  Main thread. */
#include "bench/arguments.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/thread.h"
#include "bench/report.h"
#include "kernels/elem.h"
#include "kernels/isa.h"

#define AT(field) offsetof(struct pen_arguments, field)
#define MEMORY (PEN_ROOF_MEMORY | PEN_BENCH_ADAMW)
#define PRODUCTS (PEN_ROOF_GEMM | PEN_BENCH_GEMM)
#define OURS (PEN_BENCH_GEMM | PEN_BENCH_OVERHEAD)
#define COMPUTES (PRODUCTS | PEN_BENCH_OVERHEAD)
#define ALL (MEMORY | PRODUCTS | PEN_ROOF_DISK | \
             PEN_BENCH_DISK | PEN_BENCH_OVERHEAD)
#define DRIVE (PEN_ROOF_DISK | PEN_TRAFFIC)
#define DTYPE_AUTO 1000 /* no element's number */

static const struct pen_option_word all_cpus[] = {{"all", 0}, {0}};

static const struct pen_option_word dtypes[] = {
    {"auto", DTYPE_AUTO}, {"bf16", PEN_ELEM_BF16}, {"fp32", PEN_ELEM_F32}, {0}};
static const struct pen_option_word models[] = {
    {"llama-1b", 0}, {"smollm2-135m", 0}, {0}};

static const struct pen_option table[] = {
    {"help", NULL, 'h', PEN_OPTION_BOOL, AT(help), NULL, NULL, 0, 0, ALL | PEN_TRAFFIC, 0,
     NULL, NULL, "show this"},
    {"repeats", NULL, 0, PEN_OPTION_U64, AT(repeats), "15", NULL, 1,
     PEN_REPORT_RUNS_MAX, ALL, 0, "bench", NULL, "repetitions that count"},
    {"threads", NULL, 0, PEN_OPTION_U64, AT(threads), "all", all_cpus, 1, 1024,
     ALL & ~PEN_ROOF_DISK, 0, "bench", NULL, "threads"},
    {"elements", NULL, 0, PEN_OPTION_U64, AT(elements), "100000000", NULL, 4096,
     1e12, MEMORY, 0, "bench", NULL, "elements of each array"},
    {"tile-size", NULL, 0, PEN_OPTION_U64, AT(tile_size), "1048576", NULL, 4096,
     1e12, PEN_BENCH_ADAMW | PEN_BENCH_OVERHEAD, 0, "bench", NULL,
     "elements of a tile"},
    {"tokens", NULL, 0, PEN_OPTION_U64, AT(tokens), "2048", NULL, 1, 1e6,
     COMPUTES, 0, "bench", NULL, "tokens of a step"},
    {"model", NULL, 0, PEN_OPTION_STRING, AT(model), "llama-1b", models, 0, 0,
     COMPUTES, 0, "bench", NULL, "whose shapes"},
    {"dtype", NULL, 0, PEN_OPTION_ENUM, AT(dtype), "auto", dtypes, 0, 0,
     COMPUTES, 0, "bench", NULL,
     "of the factors; auto: bf16 where the processor multiplies it, else fp32"},
    {"sample-flops", NULL, 0, PEN_OPTION_DOUBLE, AT(sample_flops), "5e9", NULL,
     1, 0, COMPUTES, 0, "bench", NULL, "operations of one timed sample, at least"},
    {"rest-ms", NULL, 0, PEN_OPTION_U64, AT(rest_ms), "20", NULL, 0, 1000,
     COMPUTES, 0, "bench", NULL, "milliseconds of rest before each sample"},
    {"directory", NULL, 0, PEN_OPTION_STRING, AT(directory), NULL, NULL, 0, 0,
     DRIVE, DRIVE, "bench", "DIR", "on the drive"},
    {"request", NULL, 0, PEN_OPTION_SIZE, AT(request), "12MiB", NULL, 4096, 1e9,
     PEN_ROOF_DISK, 0, "bench", NULL, "bytes of a transfer"},
    {"size", NULL, 0, PEN_OPTION_SIZE, AT(size), "4GiB", NULL, 4096, 0,
     DRIVE, 0, "bench", NULL, "bytes of the file"},
    {"depth", NULL, 0, PEN_OPTION_U64, AT(depth), "8", NULL, 1, 256,
     PEN_ROOF_DISK, 0, "bench", NULL, "transfers in flight"},
    {"list", NULL, 0, PEN_OPTION_STRING, AT(list), NULL, NULL, 0, 0,
     PEN_TRAFFIC, PEN_TRAFFIC, "bench", "FILE", "where requests are noted"},
    {"tiles", NULL, 0, PEN_OPTION_U64, AT(tiles), "10000", NULL, 2, 1e7,
     PEN_BENCH_OVERHEAD, 0, "bench", NULL, "tiles of state"},
    {"blocks", NULL, 0, PEN_OPTION_U64, AT(blocks), "40", NULL, 1, 10000,
     PEN_BENCH_OVERHEAD, 0, "bench", NULL, "blocks that they are spread over"},
    {"gemm", NULL, 0, PEN_OPTION_STRING, AT(gemm), "auto", NULL, 0, 0,
     OURS, 0, "bench", NULL, "our product library"},
};

static void parse(enum pen_arguments_program program, int argc,
                  char *const *argv, struct pen_arguments *a)
{
  struct pen_options options = {.values = NULL};
  const char *slash = strrchr(argv[0], '/');
  int rc = pen_option_init(&options, table, sizeof table / sizeof *table, a,
                           sizeof *a);
  options.verb = program;
  options.verb_name = slash ? slash + 1 : argv[0];
  if (rc == 0)
    rc = pen_option_parse(&options, argc - 1, argv + 1, NULL);
  if (rc == 0 && !a->help)
    rc = pen_option_check_required(&options);
  a->options = options;
  if (rc < 0)
    pen_report_fail();
}

void pen_arguments_parse(enum pen_arguments_program program, int argc,
                         char *const *argv, struct pen_arguments *ret_arguments)
{
  parse(program, argc, argv, ret_arguments);
  if (ret_arguments->help) {
    pen_option_help(&ret_arguments->options, stdout);
    pen_arguments_done(ret_arguments);
    exit(0);
  }
  if (!ret_arguments->threads)
    ret_arguments->threads = pen_thread_usable_cpus();
  if (ret_arguments->dtype == DTYPE_AUTO)
    ret_arguments->dtype =
        pen_isa_detect() >= PEN_ISA_AVX512BF16 ? PEN_ELEM_BF16 : PEN_ELEM_F32;
}

void pen_arguments_done(struct pen_arguments *arguments)
{
  struct pen_options options = arguments->options;
  pen_option_done(&options);
}
