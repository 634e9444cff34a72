/* arguments.h: what the benches are told on their command lines. */
#ifndef PEN_BENCH_ARGUMENTS_H
#define PEN_BENCH_ARGUMENTS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/option.h"

/* One bit a program: an option says which of them take it. */
enum pen_arguments_program {
  PEN_ROOF_MEMORY = 1,
  PEN_ROOF_GEMM = 2,
  PEN_ROOF_DISK = 4,
  PEN_BENCH_ADAMW = 8,
  PEN_BENCH_GEMM = 16,
  PEN_BENCH_DISK = 32,
  PEN_BENCH_OVERHEAD = 64,
  PEN_TRAFFIC = 128,
};

struct pen_arguments {
  bool help;
  uint64_t elements; /* of each array */
  uint64_t tile_size; /* elements of a tile */
  uint64_t tokens;
  int dtype;          /* enum pen_elem */
  char *model, *gemm; /* names */
  double sample_flops; /* at least, of one timed sample */
  uint64_t rest_ms;    /* before it */
  char *directory;     /* on the drive */
  char *list;          /* where requests are noted */
  uint64_t request, size; /* bytes: of a transfer, of the file */
  uint64_t depth;      /* transfers in flight */
  uint64_t tiles, blocks; /* of a model that computes nothing */
  uint64_t threads;  /* the CPUs of this process unless given */
  uint64_t repeats;  /* that count */
  struct pen_options options; /* owner of the above */
};

/* Fills *ret_arguments from the command line, or prints what there is and ends
 * the program: 0 after --help, 2 after a slip. */
void pen_arguments_parse(enum pen_arguments_program program, int argc,
                         char *const *argv, struct pen_arguments *ret_arguments);
void pen_arguments_done(struct pen_arguments *arguments);

#endif
