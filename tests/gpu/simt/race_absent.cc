/* race_absent.cc: race.h where kernels are not instrumented. */
#include "tests/gpu/simt/race.h"

__thread const simt_race_thread *simt_race_current;

size_t simt_races(void)
{
  return 0;
}

bool simt_race_is_on(void)
{
  return false;
}

void simt_race_begin_kernel(const char *name)
{
}

void simt_race_begin_block(const void *shared, size_t bytes)
{
}

void simt_race_exempt(const void *p, size_t bytes)
{
}
