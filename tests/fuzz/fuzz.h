/* fuzz.h: what a fuzz target defines and may use. */
#ifndef PEN_TESTS_FUZZ_FUZZ_H
#define PEN_TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* The target: returns 0, or does not return when it finds something. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

/* Says what is wrong and aborts, which is what a fuzzer takes note of. */
#define fuzz_fail(...)                                                        \
  do {                                                                        \
    fprintf(stderr, __VA_ARGS__);                                             \
    fputc('\n', stderr);                                                      \
    abort();                                                                  \
  } while (0)

#endif
