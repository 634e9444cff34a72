/* replay.c: a fuzz target's main where there is no libFuzzer.
 *
 *   fuzz_NAME CORPUS_DIR|FILE...
 *
 * Runs every file, then seeded mutations of them for PEN_FUZZ_SECONDS (2).
 * PEN_SEED repeats a run.  Blind mutations find shallow faults only; clang's
 * build with -Dfuzz=true is guided by coverage (tools/test-long).  A finding is
 * left as fuzz-finding.bin in the working directory. */
#include <dirent.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/rng.h"
#include "tests/fuzz/fuzz.h"

#define INPUT_BYTES_MAX 65536
#define N_SEEDS_MAX 1024
#define N_EDITS_MAX 8

struct input {
  uint8_t *bytes;
  size_t n_bytes;
};

static struct input seeds[N_SEEDS_MAX];
static size_t n_seeds;
static uint8_t now[INPUT_BYTES_MAX]; /* the input being run */
static size_t n_now;
static uint64_t seed, n_drawn;

static uint64_t draw(uint64_t below)
{
  return pen_rng_below(seed, 0, n_drawn++, below);
}

static struct sigaction before[2]; /* of SIGABRT, SIGSEGV: a sanitizer's */

/* Keeps the input and returns: the fault repeats and meets the handler that
 * was there before.  Best effort: a broken heap may hang it, and the test then
 * times out. */
static void keep_finding(int signal_number)
{
  sigaction(SIGABRT, &before[0], NULL);
  sigaction(SIGSEGV, &before[1], NULL);
  FILE *f = fopen("fuzz-finding.bin", "wb");
  if (f) {
    fwrite(now, 1, n_now, f);
    fclose(f);
    fprintf(stderr, "input kept as fuzz-finding.bin (%zu bytes)\n", n_now);
  }
}

static void catch_faults(void)
{
  struct sigaction action = { .sa_handler = keep_finding };
  sigaction(SIGABRT, &action, &before[0]);
  sigaction(SIGSEGV, &action, &before[1]);
}

static void run(void)
{
  /* A copy of exactly that size, so that a sanitizer sees reads behind it. */
  uint8_t *exact = malloc(n_now ? n_now : 1);
  if (!exact)
    abort();
  memcpy(exact, now, n_now);
  LLVMFuzzerTestOneInput(exact, n_now);
  free(exact);
}

static void load(const char *path)
{
  FILE *f = fopen(path, "rb");
  if (!f || n_seeds == N_SEEDS_MAX) {
    fprintf(stderr, "cannot read %s\n", path);
    exit(1);
  }
  n_now = fread(now, 1, sizeof now, f);
  fclose(f);
  seeds[n_seeds].bytes = malloc(n_now ? n_now : 1);
  seeds[n_seeds].n_bytes = n_now;
  if (!seeds[n_seeds].bytes)
    abort();
  memcpy(seeds[n_seeds++].bytes, now, n_now);
}

static void load_all(const char *path)
{
  struct stat st;
  if (stat(path, &st) == 0 && !S_ISDIR(st.st_mode)) {
    load(path);
    return;
  }
  struct dirent **names;
  int n = scandir(path, &names, NULL, alphasort); /* same order everywhere */
  if (n < 0) {
    fprintf(stderr, "cannot read %s\n", path);
    exit(1);
  }
  for (int i = 0; i < n; i++) {
    char file[4096];
    snprintf(file, sizeof file, "%s/%s", path, names[i]->d_name);
    if (names[i]->d_name[0] != '.')
      load(file);
    free(names[i]);
  }
  free(names);
}

/* Puts n bytes from `bytes` in at `at`. */
static void insert(size_t at, const uint8_t *bytes, size_t n)
{
  if (n > sizeof now - n_now)
    n = sizeof now - n_now;
  memmove(now + at + n, now + at, n_now - at);
  memcpy(now + at, bytes, n);
  n_now += n;
}

static void edit(void)
{
  static const char *const words[] = {
    "-", "--", "=", ":", "\"", "{", "}", "[", "]", ",", "\n", "0", "-1",
    "18446744073709551615", "1e999", "null", "true", "auto", "\\u0000", "&a",
    "*a", "\xff\xff\xff\xff\xff\xff\xff\x7f", "\xc3\x28",
  };
  size_t at = draw(n_now + 1);
  const struct input *other = &seeds[draw(n_seeds)];
  size_t from = draw(other->n_bytes + 1);
  const char *word = words[draw(sizeof words / sizeof words[0])];
  size_t n = draw(n_now - at + 1);
  switch (draw(6)) {
  case 0: /* flip a bit */
    if (at < n_now)
      now[at] ^= (uint8_t)(1 << draw(8));
    break;
  case 1: /* any byte */
    if (at < n_now)
      now[at] = (uint8_t)draw(256);
    break;
  case 2: /* cut out */
    memmove(now + at, now + at + n, n_now - at - n);
    n_now -= n;
    break;
  case 3: /* cut off */
    n_now = at;
    break;
  case 4:
    insert(at, (const uint8_t *)word, strlen(word));
    break;
  case 5:
    insert(at, other->bytes + from, draw(other->n_bytes - from + 1));
    break;
  }
}

int main(int argc, char **argv)
{
  const char *text = getenv("PEN_SEED");
  seed = text ? strtoull(text, NULL, 0) : 1;
  text = getenv("PEN_FUZZ_SECONDS");
  uint64_t end_ns = pen_clock_ns() +
                    (uint64_t)((text ? strtod(text, NULL) : 2) * 1e9);
  catch_faults();
  for (int i = 1; i < argc; i++)
    load_all(argv[i]);
  if (n_seeds == 0) {
    fprintf(stderr, "no seeds\n");
    return 1;
  }
  for (size_t i = 0; i < n_seeds; i++) {
    n_now = seeds[i].n_bytes;
    memcpy(now, seeds[i].bytes, n_now);
    run();
  }
  uint64_t n_runs = 0;
  for (; pen_clock_ns() < end_ns; n_runs++) {
    const struct input *start = &seeds[draw(n_seeds)];
    n_now = start->n_bytes;
    memcpy(now, start->bytes, n_now);
    for (uint64_t i = draw(N_EDITS_MAX) + 1; i > 0; i--)
      edit();
    run();
  }
  printf("PEN_SEED=%llu: %zu seeds and %llu mutations ran\n",
         (unsigned long long)seed, n_seeds, (unsigned long long)n_runs);
  for (size_t i = 0; i < n_seeds; i++)
    free(seeds[i].bytes);
  return 0;
}
