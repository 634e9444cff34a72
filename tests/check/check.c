/* check.c: runs the kernels of check.h's tables.
 *
 *   check [--bench] [TOPIC ...]     PEN_ISA limits the levels, PEN_SEED repeats
 *
 * Exit code 0: all equal; 1: not; 77: nothing was compared.
 * Disadvantage: plain C is the judge; whether IT is right is asked by the
 * test_ programs beside this one. */
#include "tests/check/check.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "kernels/fpmode.h"

#define ELEMS_MAX 18000
#define REGION_BYTES ((size_t)(ELEMS_MAX + 64) * 8) /* or a few more */
#define MARGIN_BYTES 256 /* around an operand that must survive a call */
#define CANARY 0xa5
#define FAILURES_MAX 10
#define VARIANTS 4
#define GROUPS_MAX 9 /* of kernels that take groups */

static const struct check_kernel *const topics[] = {
  check_adamw, check_cast, check_gradient, check_state,
};

/* Where operands lie. */
enum place { AT_END, AT_BEGIN, MISALIGNED, N_PLACES };
static const char *const place_names[] = {"at end", "at begin", "misaligned"};

struct run {
  const struct check_kernel *kernel;
  enum pen_isa isa;
  size_t n;
  enum place place;
  unsigned variant;
};

static uint8_t *want_regions[CHECK_OPERANDS_MAX];
static uint8_t *got_regions[CHECK_OPERANDS_MAX];
static uint64_t first_seed, random_state;
static unsigned failures;
static uint64_t compared_elems;
static uint64_t digest; /* of what plain C gave: one on every machine */

static uint64_t next_random(void)
{
  uint64_t z = random_state += UINT64_C(0x9e3779b97f4a7c15);
  z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
  return z ^ z >> 31;
}

static size_t region_bytes(void)
{
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  return (REGION_BYTES + page - 1) / page * page;
}

/* region_bytes() that end and begin at pages which may not be touched. */
static uint8_t *map_region(void)
{
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  size_t bytes = region_bytes();
  uint8_t *map = mmap(NULL, bytes + 2 * page, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (map == MAP_FAILED || mprotect(map, page, PROT_NONE) ||
      mprotect(map + page + bytes, page, PROT_NONE)) {
    fprintf(stderr, "cannot map %zu bytes: %s\n", bytes, strerror(errno));
    exit(1);
  }
  return map + page;
}

/* Numbers of every kind: most moderate, some ties of bf16, some any bits. */
static uint32_t random_f32(bool wild)
{
  static const uint32_t special[] = {
    0x00000000, 0x00000001, 0x00400000, 0x007fffff, 0x00800000, 0x00800001,
    0x00ffffff, 0x1f800000, 0x20000000, 0x33000000, 0x33000001, 0x38800000,
    0x387fffff, 0x3f800000, 0x3f808000, 0x3f818000, 0x3f807fff, 0x477fefff,
    0x477ff000, 0x47800000, 0x7f7f7fff, 0x7f7f8000, 0x7f7fffff, 0x7f800000,
    0x7f800001, 0x7fc00000, 0x7fffffff, 0x5f000000,
  };
  uint64_t r = next_random();
  uint32_t sign = (uint32_t)(r & 1) << 31;
  uint32_t low = (uint32_t)(r >> 32);
  if (wild && (r & 6) == 0)
    return sign | special[low % (sizeof special / sizeof special[0])];
  if (wild && (r & 6) == 2)
    return low;
  uint32_t exponent = 107 + (uint32_t)(r >> 8 & 0xff) % 24; /* 2^-20 .. 2^3 */
  uint32_t bits = sign | exponent << 23 | (low & 0x7fffff);
  return (r >> 16 & 7) == 0 ? (bits & 0xffff0000) | 0x8000 : bits;
}

static uint64_t random_f64(bool wild)
{
  uint64_t r = next_random();
  uint32_t bits = random_f32(wild);
  if (wild && (r & 3) == 0)
    return next_random();
  float x;
  memcpy(&x, &bits, sizeof x);
  double wide = x;
  uint64_t wide_bits;
  memcpy(&wide_bits, &wide, sizeof wide_bits);
  /* Near and on the ties of fp32. */
  return (r & 12) == 0 ? wide_bits | UINT64_C(0x10000000)
         : (r & 12) == 4 ? wide_bits | (r >> 36) : wide_bits;
}

static void fill(const struct check_operand *o, uint8_t *data, size_t count,
                 bool wild)
{
  if (o->fill == CHECK_OUTPUT) {
    memset(data, 0x5a, count * o->elem_bytes);
    return;
  }
  for (size_t i = 0; i < count; i++) {
    uint64_t bits = o->fill == CHECK_F64 ? random_f64(wild) : random_f32(wild);
    if (o->fill == CHECK_U16) /* upper half of an fp32, or any */
      bits = wild && (bits & 3) == 0 ? bits & 0xffff : bits >> 16;
    memcpy(data + i * o->elem_bytes, &bits, o->elem_bytes); /* little endian */
  }
}

static size_t count_of(const struct check_operand *o, size_t n)
{
  return (n + o->per - 1) / o->per;
}

/* Offset of operand i in its region. */
static size_t offset_of(const struct run *run, size_t i)
{
  const struct check_operand *o = &run->kernel->operands[i];
  if (run->place == AT_END)
    return region_bytes() - count_of(o, run->n) * o->elem_bytes;
  if (run->place == AT_BEGIN)
    return 0;
  return (run->n * 5 + i * 11 + run->variant) % 37 * o->elem_bytes;
}

/* The bytes to watch: the operand and a margin, inside the region. */
static void watched(const struct run *run, size_t i, size_t *ret_begin,
                    size_t *ret_end)
{
  const struct check_operand *o = &run->kernel->operands[i];
  size_t begin = offset_of(run, i);
  size_t end = begin + count_of(o, run->n) * o->elem_bytes;
  *ret_begin = begin > MARGIN_BYTES ? begin - MARGIN_BYTES : 0;
  *ret_end = region_bytes() - end > MARGIN_BYTES ? end + MARGIN_BYTES
                                                 : region_bytes();
}

static void prepare(const struct run *run, void **ret_want, void **ret_got)
{
  const struct check_operand *o = run->kernel->operands;
  for (size_t i = 0; o[i].name; i++) {
    size_t begin, end, at = offset_of(run, i);
    watched(run, i, &begin, &end);
    memset(want_regions[i] + begin, CANARY, end - begin);
    fill(&o[i], want_regions[i] + at, count_of(&o[i], run->n),
         run->variant % 2 == 1);
    memcpy(got_regions[i] + begin, want_regions[i] + begin, end - begin);
    ret_want[i] = want_regions[i] + at;
    ret_got[i] = got_regions[i] + at;
  }
}

static void report(const struct run *run, const char *what, size_t i,
                   size_t at_byte)
{
  const struct check_operand *o = &run->kernel->operands[i];
  ptrdiff_t byte = (ptrdiff_t)at_byte - (ptrdiff_t)offset_of(run, i);
  ptrdiff_t elem = byte < 0 ? -1 : byte / (ptrdiff_t)o->elem_bytes;
  uint64_t want = 0, got = 0;
  if (elem >= 0 && (size_t)elem < count_of(o, run->n)) {
    size_t at = offset_of(run, i) + (size_t)elem * o->elem_bytes;
    memcpy(&want, want_regions[i] + at, o->elem_bytes);
    memcpy(&got, got_regions[i] + at, o->elem_bytes);
  }
  printf("FAIL %s %s %s: n=%zu %s variant %u: %s[%td] is 0x%llx, not 0x%llx "
         "(PEN_SEED=%llu)\n",
         run->kernel->name, pen_isa_name(run->isa), what, run->n,
         place_names[run->place], run->variant, o->name, elem,
         (unsigned long long)got, (unsigned long long)want,
         (unsigned long long)first_seed);
  if (++failures >= FAILURES_MAX) {
    printf("stopping after %u failures\n", failures);
    exit(1);
  }
}

static void compare(const struct run *run, const char *what)
{
  const struct check_operand *o = run->kernel->operands;
  for (size_t i = 0; o[i].name; i++) {
    size_t begin, end;
    watched(run, i, &begin, &end);
    compared_elems += count_of(&o[i], run->n);
    size_t bytes = count_of(&o[i], run->n) * o[i].elem_bytes;
    for (size_t b = 0; b < bytes; b++) /* FNV-1a */
      digest = (digest ^ want_regions[i][offset_of(run, i) + b]) *
               UINT64_C(0x100000001b3);
    if (memcmp(want_regions[i] + begin, got_regions[i] + begin,
               end - begin) == 0)
      continue;
    while (want_regions[i][begin] == got_regions[i][begin])
      begin++;
    report(run, what, i, begin);
  }
}

/* The level against plain C; odd pairs of variants in a flushing mode. */
static void check_level(const struct run *run)
{
  void *want[CHECK_OPERANDS_MAX], *got[CHECK_OPERANDS_MAX];
  prepare(run, want, got);
  run->kernel->call(PEN_ISA_SCALAR, run->n, want, run->variant);
  uint64_t outer = pen_fpmode_get();
  if (run->variant & 2)
    pen_fpmode_set(PEN_FPMODE_FLUSHING);
  run->kernel->call(run->isa, run->n, got, run->variant);
  uint64_t left = pen_fpmode_get();
  pen_fpmode_set(outer);
  if ((run->variant & 2) &&
      (left & PEN_FPMODE_FLUSHING) != PEN_FPMODE_FLUSHING) {
    printf("FAIL %s %s: the caller's mode is gone\n", run->kernel->name,
           pen_isa_name(run->isa));
    failures++;
  }
  compare(run, "against scalar");
}

/* A range in pieces against the whole, at one level. */
static void check_cuts(const struct run *run)
{
  void *want[CHECK_OPERANDS_MAX], *got[CHECK_OPERANDS_MAX];
  void *piece[CHECK_OPERANDS_MAX] = {0};
  prepare(run, want, got);
  size_t group = run->kernel->group ? run->kernel->group : 1;
  run->kernel->call(run->isa, run->n, want, run->variant);
  for (size_t at = 0; at < run->n;) {
    size_t count = (1 + next_random() % (run->n / group)) * group;
    if (count > run->n - at)
      count = run->n - at;
    for (size_t i = 0; run->kernel->operands[i].name; i++)
      piece[i] = (uint8_t *)got[i] + at / run->kernel->operands[i].per *
                                         run->kernel->operands[i].elem_bytes;
    run->kernel->call(run->isa, count, piece, run->variant);
    at += count;
  }
  compare(run, "in pieces");
}

static void check_kernel(const struct check_kernel *kernel, enum pen_isa isa)
{
  static const size_t large[] = {255, 1000, 4097, 17011};
  uint64_t before = compared_elems;
  unsigned failed = failures;
  random_state = first_seed;
  digest = UINT64_C(0xcbf29ce484222325);
  struct run run = {.kernel = kernel, .isa = isa};
  for (size_t l = 0; l < 131 + sizeof large / sizeof large[0]; l++) {
    run.n = l <= 130 ? l : large[l - 131];
    if (kernel->group && l > GROUPS_MAX && l <= 130)
      continue;
    if (kernel->group) /* so many groups, or as many as there is room for */
      run.n = l <= 130 ? l * kernel->group
                       : large[l - 131] / kernel->group * kernel->group;
    for (run.place = 0; run.place < N_PLACES; run.place++)
      for (run.variant = 0; run.variant < VARIANTS; run.variant++) {
        check_level(&run);
        if (kernel->elementwise && run.n > 1)
          check_cuts(&run);
      }
  }
  printf("%s %-24s %-7s %llu elements, digest %016llx\n",
         failures == failed ? "ok  " : "FAIL", kernel->name,
         pen_isa_name(isa), (unsigned long long)(compared_elems - before),
         (unsigned long long)digest);
}

/* Nanoseconds per element in the second-level cache: the least of 9 runs. */
static void bench_kernel(const struct check_kernel *kernel, enum pen_isa isa)
{
  struct run run = {kernel, isa, 16384, AT_BEGIN, 0};
  void *want[CHECK_OPERANDS_MAX], *got[CHECK_OPERANDS_MAX];
  uint64_t best = UINT64_MAX;
  prepare(&run, want, got);
  for (int i = 0; i < 9; i++) {
    uint64_t begin = pen_clock_ns();
    for (int j = 0; j < 16; j++)
      kernel->call(isa, run.n, got, 0);
    uint64_t took = pen_clock_ns() - begin;
    best = took < best ? took : best;
  }
  printf("%-24s %-7s %.3f ns per element\n", kernel->name, pen_isa_name(isa),
         (double)best / (16.0 * (double)run.n));
}

static bool is_wanted(const char *kernel, int argc, char **argv)
{
  size_t topic = strcspn(kernel, ".");
  bool any = false;
  for (int i = 1; i < argc; i++) {
    if (strcmp(argv[i], "--bench") == 0)
      continue;
    any = true;
    if (strlen(argv[i]) == topic && strncmp(argv[i], kernel, topic) == 0)
      return true;
  }
  return !any;
}

int main(int argc, char **argv)
{
  bool bench = false;
  for (int i = 1; i < argc; i++)
    bench |= strcmp(argv[i], "--bench") == 0;
  const char *seed = getenv("PEN_SEED");
  first_seed = seed ? strtoull(seed, NULL, 0) : 20260000;
  random_state = first_seed;
  enum pen_isa highest;
  if (pen_isa_choose(NULL, &highest) < 0) {
    printf("skipped: %s\n", pen_error_text());
    return 77;
  }
  printf("PEN_SEED=%llu, levels up to %s\n", (unsigned long long)first_seed,
         pen_isa_name(highest));
  for (size_t i = 0; i < CHECK_OPERANDS_MAX; i++) {
    want_regions[i] = map_region();
    got_regions[i] = map_region();
  }
  for (size_t t = 0; t < sizeof topics / sizeof topics[0]; t++)
    for (const struct check_kernel *k = topics[t]; k->name; k++)
      for (enum pen_isa isa = 0; isa <= highest; isa++) {
        if (!is_wanted(k->name, argc, argv) || !pen_isa_is_available(isa))
          continue;
        if (bench)
          bench_kernel(k, isa);
        else if (isa != PEN_ISA_SCALAR)
          check_kernel(k, isa);
      }
  if (!bench && compared_elems == 0) {
    printf("skipped: no level above scalar to compare\n");
    return 77;
  }
  return failures > 0;
}
