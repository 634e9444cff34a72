/* rival_onednn_none.c: for builds without oneDNN. */
#include "bench/rival.h"

const struct pen_rival *pen_rival_onednn(size_t number)
{
  (void)number;
  return NULL;
}
