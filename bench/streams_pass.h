/* streams_pass.h: the passes of streams.h, compiled for any CPU of the family
 * and for AVX-512. */
#ifndef PEN_BENCH_STREAMS_PASS_H
#define PEN_BENCH_STREAMS_PASS_H

#include "bench/streams.h"

extern const struct pen_streams_row pen_streams_plain[PEN_STREAMS_KINDS];
extern const struct pen_streams_row pen_streams_wide[PEN_STREAMS_KINDS];

#endif
