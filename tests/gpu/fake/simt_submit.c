/* simt_submit.c: kernels of the SIMT stand-in run in the fake's streams. */
#include "tests/gpu/fake/fake.h"
#include "tests/gpu/simt/simt.h"

int simt_submit(struct CUstream_st *stream, void (*run)(void *record),
                void *record)
{
  return fake_launch(stream, run, record);
}
