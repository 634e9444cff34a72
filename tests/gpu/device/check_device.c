/* check_device [--device N] [--seed N] [--rounds N] [--large] [--time TOKENS]
 *              [--only NAME] [--without NAME] [--after NAME] [--tf32]
 *
 * Every row of the loaded plugin's tables of operations, against the host's:
 * random inputs, outputs NaN before, guards between the arrays, and the same bits
 * a second time.  --large: shapes of real models; --rounds: random ones; --time:
 * how fast each is on arrays as a 1 B model has them for so many tokens; --tf32:
 * fp32 products alone, with their operands cut to TF32.  Prints TAP.
 * A device that an operation broke answers nothing any more: "Bail out!", and
 * another process goes on --after it.  Needs neither cmocka nor a device: on the
 * fake runtime in tests, on a device by tools/gpu-check. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/pool.h"
#include "base/rng.h"
#include "base/thread.h"
#include "kernels/backend.h"
#include "tests/gpu/device/images.h"

#define TIMES 5
#define SHARE_OF_SUMS 1e-4
/* Each operand loses up to 2^-10 of itself where it is cut, not rounded, to ten
 * bits: a product twice that, and random terms' errors add no faster than they. */
#define SHARE_OF_TF32 4e-3

static struct pen_backend *backend;
static struct pen_pool *pool;
static unsigned char *scratch;
static enum pen_isa isa;
static uint64_t seed = 20261130;
static bool tf32;

static const struct case_shape small_shapes[] = {
    {70, 6, 2, 64, 200}, {1, 2, 1, 80, 3},     {129, 4, 4, 96, 65},
    {33, 8, 1, 128, 130}, {17, 2, 2, 256, 40}, {64, 4, 2, 64, 256}};
static const struct case_shape large_shapes[] = {
    {1024, 16, 4, 64, 4096}, {777, 12, 2, 80, 1031}, {2048, 8, 2, 128, 5632},
    {513, 4, 1, 96, 2500},   {600, 2, 1, 256, 999}};
/* Of a 1 B model, but for the tokens. */
static const struct case_shape timed_shape = {0, 32, 8, 64, 5632};

/* The first failure's text; the program goes on with the next case. */
static char failure[512];
#define FAIL(...) (snprintf(failure, sizeof failure, __VA_ARGS__), false)

static int begin(struct op_trial *t)
{
  t->seed = seed;
  int rc = op_trial_begin(t);
  return rc < 0 ? rc
                : backend->device->alloc(backend->device, t->bytes, &t->device);
}

static void end(struct op_trial *t)
{
  backend->device->free(backend->device, &t->device, t->bytes);
  op_trial_done(t);
}

static int finish_queue(enum pen_device_queue queue, uint64_t *ret_ns)
{
  const struct pen_device *d = backend->device;
  int rc = d->marks->set(d, queue, 0);
  return rc < 0 ? rc : d->marks->sync(d, queue, 0, ret_ns);
}

static void addresses(const struct op_trial *t, void *base, void **at)
{
  for (size_t i = 0; i < t->n; i++)
    at[i] = (char *)base + t->at[i];
}

static int compute(struct op_trial *t, uint64_t *ret_ns)
{
  struct pen_stream s = {.device = backend->stream_device};
  void *at[CASE_ARRAYS_MAX];
  addresses(t, t->device, at);
  int rc = backend->device->marks->begin(backend->device, PEN_DEVICE_COMPUTE, 0);
  if (rc < 0)
    return rc;
  t->c->run(&t->shape, backend->ops[t->elem], &s, at);
  rc = pen_stream_take_status(&s);
  return rc < 0 ? rc : finish_queue(PEN_DEVICE_COMPUTE, ret_ns);
}

static int run_on_device(struct op_trial *t, unsigned char *image)
{
  const struct pen_device *d = backend->device;
  int rc = d->upload(d, t->device, t->start, t->bytes);
  if (rc == 0)
    rc = finish_queue(PEN_DEVICE_UPLOAD, NULL);
  if (rc == 0)
    rc = compute(t, NULL);
  if (rc == 0)
    rc = d->download(d, image, t->device, t->bytes);
  return rc < 0 ? rc : finish_queue(PEN_DEVICE_DOWNLOAD, NULL);
}

static int run_on_host(struct op_trial *t)
{
  struct pen_stream s = {.pool = pool, .scratch = scratch, .isa = isa,
                         .gemm = &pen_gemm_reference};
  void *at[CASE_ARRAYS_MAX];
  addresses(t, t->want, at);
  t->c->run(&t->shape, pen_ops_host(isa, t->elem), &s, at);
  return pen_stream_take_status(&s);
}

/* Sums of bf16 products are fp32 all the way: a partial sum rounded to bf16 shows.
 * Tensor cores cut off where fp32 would round, in each of some hundred steps. */
static double share_of(const struct op_trial *t, size_t i)
{
  const struct op_case *c = t->c;
  if (t->elem == PEN_ELEM_F32)
    return tf32 ? SHARE_OF_TF32 : c->share_f32;
  return t->arrays[i].holds == FLOATS && c->share_bf16 > 0
             ? fmin(c->share_bf16, SHARE_OF_SUMS) : c->share_bf16;
}

/* *worst: of the allowed differences, the share that was reached. */
static bool compare(const struct op_trial *t, size_t i, double *worst)
{
  double share = share_of(t, i);
  double most = 0;
  for (size_t k = 0; k < t->arrays[i].n; k++)
    most = fmax(most, fabs(op_trial_value(t, t->want, i, k)));
  for (size_t k = 0; k < t->arrays[i].n; k++) {
    double x = op_trial_value(t, t->got, i, k), y = op_trial_value(t, t->want, i, k);
    double difference = fabs(x - y);
    bool both_untouched = isnan(x) && isnan(y);
    if (!both_untouched && !(difference <= share * most))
      return FAIL("array %zu element %zu is %.9g, the host has %.9g (greatest "
                  "%g)", i, k, x, y, most);
    if (difference > 0)
      *worst = fmax(*worst, difference / (share * most));
  }
  return true;
}

/* What is no result must be as it was: inputs, and all between the arrays. */
static bool is_untouched(const struct op_trial *t)
{
  unsigned char *image = t->got;
  for (size_t i = 0; i < t->n; i++)
    if (t->arrays[i].written || !t->arrays[i].read)
      memcpy(image + t->at[i], t->start + t->at[i], op_trial_array_bytes(t, i));
  for (size_t k = 0; k < t->bytes; k++)
    if (image[k] != t->start[k])
      return FAIL("byte %zu of %zu, which is no result, was written to", k,
                  t->bytes);
  return true;
}

static bool judge(struct op_trial *t, double *worst)
{
  for (size_t i = 0; i < t->n; i++) {
    bool scratch_space = !t->arrays[i].read && !t->arrays[i].written;
    if (t->arrays[i].written && !compare(t, i, worst))
      return false;
    if (!scratch_space &&
        memcmp(t->got + t->at[i], t->again + t->at[i], op_trial_array_bytes(t, i)) != 0)
      return FAIL("array %zu differs from run to run", i);
  }
  return is_untouched(t);
}

static bool try_shape(const struct op_case *c, const struct case_shape *shape,
                      enum pen_elem elem, double *worst)
{
  struct op_trial t = {.c = c, .shape = *shape, .elem = elem};
  int rc = begin(&t);
  if (rc == 0)
    rc = run_on_host(&t);
  if (rc == 0)
    rc = run_on_device(&t, t.got);
  if (rc == 0)
    rc = run_on_device(&t, t.again);
  bool well = rc == 0 ? judge(&t, worst) : FAIL("%s", pen_error_text());
  if (!well)
    fprintf(stderr,
            "%s in %s, tokens %zu, heads %zu of %zu, dim %zu, cols %zu, seed "
            "%llu: %s\n",
            c->name, pen_elem_name(elem), shape->tokens, shape->heads,
            shape->kv_heads, shape->dim, shape->cols,
            (unsigned long long)seed, failure);
  end(&t);
  pen_error_clear();
  return well;
}

static struct case_shape random_shape(uint64_t round)
{
  static const size_t dims[] = {64, 80, 96, 128, 256};
  double u[5];
  for (uint64_t i = 0; i < 5; i++)
    u[i] = pen_rng_double(seed, 1000 + round, i);
  size_t kv_heads = 1 + (size_t)(u[1] * 3);
  return (struct case_shape){.tokens = 1 + (size_t)(u[0] * 300),
                             .kv_heads = kv_heads,
                             .heads = kv_heads * (1 + (size_t)(u[2] * 4)),
                             .dim = dims[(size_t)(u[3] * 5)],
                             .cols = 1 + (size_t)(u[4] * 700)};
}

struct options {
  uint64_t rounds;
  bool large;
  size_t timed_tokens; /* 0: nothing is timed */
  uint64_t device;
  const char *only, *without; /* NULL: all, none */
  const char *after;          /* NULL: from the first on */
};

static bool try_case(const struct op_case *c, enum pen_elem elem,
                     const struct options *o, size_t *ret_shapes,
                     double *worst)
{
  size_t n_small = sizeof small_shapes / sizeof *small_shapes;
  size_t n_large = o->large ? sizeof large_shapes / sizeof *large_shapes : 0;
  bool well = true;
  for (size_t i = 0; i < n_small; i++)
    well &= try_shape(c, &small_shapes[i], elem, worst);
  for (size_t i = 0; i < n_large; i++)
    well &= try_shape(c, &large_shapes[i], elem, worst);
  for (uint64_t i = 0; i < o->rounds; i++) {
    struct case_shape shape = random_shape(i);
    well &= try_shape(c, &shape, elem, worst);
  }
  *ret_shapes = n_small + n_large + o->rounds;
  return well;
}

static int by_value(const void *a, const void *b)
{
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* A line for people and tools/gpu-check, which reads it as JSON. */
static bool time_case(const struct op_case *c, enum pen_elem elem,
                      size_t tokens)
{
  struct op_trial t = {.c = c, .shape = timed_shape, .elem = elem, .timed = true};
  double seconds[TIMES], bytes = 0;
  uint64_t ns = 0;
  t.shape.tokens = tokens;
  int rc = begin(&t);
  if (rc == 0)
    rc = run_on_device(&t, t.got); /* warm; the inputs lie there from now on */
  for (size_t i = 0; rc == 0 && i < TIMES; i++) {
    rc = compute(&t, &ns);
    seconds[i] = (double)ns * 1e-9;
  }
  for (size_t i = 0; i < t.n; i++)
    bytes += (double)op_trial_array_bytes(&t, i) * (t.arrays[i].read + t.arrays[i].written);
  end(&t);
  if (rc < 0) {
    fprintf(stderr, "timing %s: %s\n", c->name, pen_error_text());
    pen_error_clear();
    return false;
  }
  qsort(seconds, TIMES, sizeof *seconds, by_value);
  double s = fmax(seconds[TIMES / 2], 1e-9);
  printf("# {\"time\": \"%s\", \"dtype\": \"%s\", \"seconds\": %.9f, "
         "\"gbytes_per_s\": %.1f, \"tflops\": %.2f}\n",
         c->name, pen_elem_name(elem), s, bytes / s * 1e-9,
         c->flops ? c->flops(&t.shape) / s * 1e-12 : 0);
  return true;
}

/* Shapes that no kernel takes are refused before a run begins. */
static bool check_refusals(void)
{
  const struct pen_ops *ops = backend->ops[PEN_ELEM_BF16];
  bool well = ops->check_shape(8, 2, 128) == 0 &&
              ops->check_shape(8, 2, 512) == -PEN_EUNSUPPORTED &&
              ops->check_shape(8, 3, 64) == -PEN_EUNSUPPORTED;
  pen_error_clear();
  printf("%sok 1 - shapes out of bounds are refused\n", well ? "" : "not ");
  return well;
}

static bool is_asked(const struct options *o, const char *name,
                     enum pen_elem elem)
{
  if (tf32 && (elem != PEN_ELEM_F32 || strcmp(name, "gemm") != 0))
    return false;
  return (!o->only || strcmp(o->only, name) == 0) &&
         (!o->without || strcmp(o->without, name) != 0);
}

/* Does the device still answer? */
static bool is_alive(const char *name)
{
  bool alive = finish_queue(PEN_DEVICE_COMPUTE, NULL) == 0;
  if (!alive)
    printf("Bail out! %s broke the device: %s\n", name, pen_error_text());
  pen_error_clear();
  return alive;
}

static bool check_case(const struct op_case *c, enum pen_elem elem,
                       const struct options *o, size_t number)
{
  size_t shapes = 0;
  double worst = 0;
  bool well = try_case(c, elem, o, &shapes, &worst);
  if (o->timed_tokens)
    well &= time_case(c, elem, o->timed_tokens);
  printf("%sok %zu - %s in %s: %zu shapes, differences up to %.2f of what is "
         "allowed\n", well ? "" : "not ", number, c->name, pen_elem_name(elem),
         shapes, worst);
  fflush(stdout);
  return well;
}

/* NULL: what it is to come after does not exist. */
static const struct op_case *first_case(const struct options *o)
{
  const struct op_case *c = op_cases;
  if (!o->after)
    return c;
  while (c->name && strcmp(c->name, o->after) != 0)
    c++;
  return c->name ? c + 1 : NULL;
}

static bool check_all(const struct options *o)
{
  bool all = check_refusals();
  size_t number = 1;
  for (const struct op_case *c = first_case(o); c && c->name; c++)
    for (int e = 0; e <= PEN_ELEM_F32; e++) {
      if (!is_asked(o, c->name, (enum pen_elem)e))
        continue;
      if (check_case(c, (enum pen_elem)e, o, ++number))
        continue;
      all = false;
      if (!is_alive(c->name))
        return false;
    }
  printf("1..%zu\n", number);
  bool may_be_none = o->after && first_case(o);
  if (number == 1 && !may_be_none)
    fprintf(stderr, "there is no operation %s\n",
            o->after ? o->after : o->only);
  return all && (number > 1 || may_be_none);
}

static int read_options(int argc, char **argv, struct options *o)
{
  for (int i = 1; i < argc; i++) {
    const char *next = i + 1 < argc ? argv[i + 1] : NULL;
    if (strcmp(argv[i], "--large") == 0)
      o->large = true;
    else if (strcmp(argv[i], "--tf32") == 0)
      tf32 = true;
    else if (next && strcmp(argv[i], "--time") == 0)
      o->timed_tokens = strtoull(argv[++i], NULL, 10);
    else if (next && strcmp(argv[i], "--seed") == 0)
      seed = strtoull(argv[++i], NULL, 10);
    else if (next && strcmp(argv[i], "--rounds") == 0)
      o->rounds = strtoull(argv[++i], NULL, 10);
    else if (next && strcmp(argv[i], "--device") == 0)
      o->device = strtoull(argv[++i], NULL, 10);
    else if (next && strcmp(argv[i], "--only") == 0)
      o->only = argv[++i];
    else if (next && strcmp(argv[i], "--without") == 0)
      o->without = argv[++i];
    else if (next && strcmp(argv[i], "--after") == 0)
      o->after = argv[++i];
    else
      return pen_error_set(-PEN_EUSAGE, "check_device: what is %s?", argv[i]);
  }
  return 0;
}

static int open_all(uint64_t device)
{
  size_t threads = pen_thread_usable_cpus();
  int rc = pen_isa_choose(NULL, &isa);
  if (rc == 0)
    rc = pen_pool_create(threads, "host", &pool);
  scratch = aligned_alloc(64, threads * PEN_STREAM_SCRATCH_BYTES);
  if (rc == 0 && !scratch)
    rc = pen_error_set(-PEN_ENOFIT, "no memory for workers");
  return rc < 0 ? rc : pen_backend_open("cuda", device, &backend);
}

int main(int argc, char **argv)
{
  struct options o = {.rounds = 0};
  const char *asked = getenv("PEN_SEED");
  if (asked)
    seed = strtoull(asked, NULL, 10);
  if (read_options(argc, argv, &o) < 0) {
    fprintf(stderr, "%s\n", pen_error_text());
    return 2;
  }
  int rc = open_all(o.device);
  if (rc < 0) { /* as a skip, which says why */
    printf("1..0 # SKIP %s\n", pen_error_text());
    return rc == -PEN_EUNSUPPORTED ? 77 : 1;
  }
  if (tf32)
    backend->allow_tf32(backend);
  printf("# %s, PEN_SEED=%llu\n", backend->about, (unsigned long long)seed);
  bool well = check_all(&o);
  pen_backend_close(&backend);
  pen_pool_free(&pool);
  free(scratch);
  return well ? 0 : 1;
}
