/* plateau.h: where a rate changes, and what it is in between. */
#ifndef PEN_SRC_BENCH_PLATEAU_H
#define PEN_SRC_BENCH_PLATEAU_H

#include <stddef.h>

#define PEN_PLATEAU_WINDOWS_MAX 512
#define PEN_PLATEAUS_MAX 32

struct pen_plateau {
  size_t begin, end; /* windows [begin, end) */
  double rate;       /* their median */
};

/* Cuts rates [n <= PEN_PLATEAU_WINDOWS_MAX] into plateaus that differ from their
 * neighbours by more than a tenth, and are at least five windows long; returns
 * how many (0 for n 0).  Levels apart by six times the noise of one window, or
 * more, are found to within two windows, their rates to the noise of a median:
 * 3 % for thirty windows with 10 % noise. */
size_t pen_plateau_find(const double *rates, size_t n,
                        struct pen_plateau ret_plateaus[PEN_PLATEAUS_MAX]);

#endif
