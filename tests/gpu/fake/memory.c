/* memory.c: the device's memory, pinned host memory, and copies between them.
 *
 * Device memory is NaN when it is taken, stands between guard pages, and where
 * the CPU has protection keys only stream threads may touch it.  Disadvantage: a
 * handful of allocations, in a fixed table. */
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "tests/gpu/fake/fake.h"
#include "tests/gpu/fake/include/cuda_runtime_api.h"

#define ENTRIES 512
#define PAGE ((size_t)4096)

struct range {
  char *base;
  size_t bytes;
};

static struct range device_ranges[ENTRIES], pinned_ranges[ENTRIES];
static uint64_t device_used, pinned_used;

void fake_end(const char *format, ...)
{
  va_list args;
  va_start(args, format);
  fprintf(stderr, "fake CUDA: ");
  vfprintf(stderr, format, args);
  fprintf(stderr, "\n");
  va_end(args);
  abort();
}

static uint64_t number(const char *name, uint64_t otherwise)
{
  const char *text = getenv(name);
  return text && *text ? strtoull(text, NULL, 0) : otherwise;
}

static void read_settings(struct fake_settings *s)
{
  const char *wait = getenv("PEN_FAKE_DROP_WAIT");
  s->devices = (int)number("PEN_FAKE_DEVICES", 1);
  s->driver = (int)number("PEN_FAKE_DRIVER", 13000);
  s->capability = (int)number("PEN_FAKE_CAPABILITY", 90);
  s->memory_bytes = number("PEN_FAKE_MEMORY", (uint64_t)1 << 30);
  s->pin_bytes = number("PEN_FAKE_PIN", UINT64_MAX);
  s->pin_piece = UINT64_MAX;
  s->oom = number("PEN_FAKE_OOM", 0);
  s->fault = number("PEN_FAKE_FAULT", 0);
  s->jitter = number("PEN_FAKE_JITTER", 0);
  s->bus = number("PEN_FAKE_BUS", 0);
  s->algorithm = (int)number("PEN_FAKE_ALGORITHM", 0);
  s->without = (int)number("PEN_FAKE_WITHOUT", (uint64_t)-1);
  s->epilogues = number("PEN_FAKE_EPILOGUES", 1) != 0;
  s->strict = number("PEN_FAKE_STRICT", 0) != 0;
  s->drop_waiter = wait && wait[0] ? wait[0] - '0' : -1;
  s->drop_waited = wait && wait[0] ? wait[1] - '0' : -1;
  s->drop_sync = (int)number("PEN_FAKE_DROP_SYNC", (uint64_t)-1);
}

/* The first call comes from main, before there are threads. */
struct fake_settings *fake_settings(void)
{
  static struct fake_settings settings;
  static bool read;
  if (!read) {
    read = true;
    read_settings(&settings);
  }
  return &settings;
}

struct fake_counts *fake_counts(void)
{
  static struct fake_counts counts;
  return &counts;
}

int fake_count_allocation(void)
{
  return ++fake_counts()->allocations == fake_settings()->oom
             ? cudaErrorMemoryAllocation
             : cudaSuccess;
}

static struct range *free_entry(struct range ranges[ENTRIES])
{
  for (int i = 0; i < ENTRIES; i++)
    if (!ranges[i].base)
      return &ranges[i];
  fake_end("more than %d allocations", ENTRIES);
}

bool fake_is_device(const void *at, size_t bytes)
{
  for (int i = 0; i < ENTRIES; i++) {
    const struct range *r = &device_ranges[i];
    if (r->base && (const char *)at >= r->base &&
        (const char *)at + bytes <= r->base + r->bytes)
      return true;
  }
  return false;
}

int fake_is_pinned(const void *at, size_t bytes)
{
  for (int i = 0; i < ENTRIES; i++) {
    const struct range *r = &pinned_ranges[i];
    const char *begin = at, *end = begin + bytes;
    if (!r->base || end <= r->base || begin >= r->base + r->bytes)
      continue;
    return begin >= r->base && end <= r->base + r->bytes ? 1 : -1;
  }
  return 0;
}

/* Threads that do not ask for more may not touch what has it: streams may begin
 * before there is device memory.  Negative where the CPU has no keys, and where a
 * sanitizer's own code looks at memory. */
#if !defined(__SANITIZE_ADDRESS__) && !defined(FAKE_TSAN)
static int protection_key;

static void take_protection_key(void)
{
  protection_key = pkey_alloc(0, PKEY_DISABLE_ACCESS);
}

static int key_of_device_memory(void)
{
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, take_protection_key);
  return protection_key;
}
#else
static int key_of_device_memory(void) { return -1; }
#endif

void fake_allow_device_memory(void)
{
  int key = key_of_device_memory();
  if (key >= 0)
    pkey_set(key, 0);
}

cudaError_t cudaMemGetInfo(size_t *left, size_t *total)
{
  *total = fake_settings()->memory_bytes;
  *left = *total - device_used;
  return (cudaError_t)fake_broken();
}

static void protect(void *base, size_t bytes)
{
  int key = key_of_device_memory();
  if (key >= 0)
    pkey_mprotect(base, bytes, PROT_READ | PROT_WRITE, key);
}

cudaError_t cudaMalloc(void **ret_base, size_t bytes)
{
  int r = fake_count_allocation();
  if (r || bytes > fake_settings()->memory_bytes - device_used)
    return cudaErrorMemoryAllocation;
  size_t inside = (bytes + PAGE - 1) / PAGE * PAGE;
  char *all = mmap(NULL, inside + 2 * PAGE, PROT_NONE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (all == MAP_FAILED ||
      mprotect(all + PAGE, inside, PROT_READ | PROT_WRITE) < 0)
    return cudaErrorMemoryAllocation;
  memset(all + PAGE, 0xff, inside);
  protect(all + PAGE, inside);
  *free_entry(device_ranges) = (struct range){all + PAGE, bytes};
  device_used += bytes;
  *ret_base = all + PAGE;
  return cudaSuccess;
}

cudaError_t cudaFree(void *base)
{
  fake_drain(); /* so does CUDA */
  for (int i = 0; i < ENTRIES; i++) {
    struct range *r = &device_ranges[i];
    if (r->base != base || !base)
      continue;
    size_t inside = (r->bytes + PAGE - 1) / PAGE * PAGE;
    munmap(r->base - PAGE, inside + 2 * PAGE);
    device_used -= r->bytes;
    *r = (struct range){0};
    return cudaSuccess;
  }
  return base ? cudaErrorInvalidValue : cudaSuccess;
}

cudaError_t cudaHostRegister(void *base, size_t bytes, unsigned flags)
{
  (void)flags;
  if (fake_is_pinned(base, bytes) != 0)
    return cudaErrorHostMemoryAlreadyRegistered;
  if (bytes > fake_settings()->pin_bytes - pinned_used ||
      bytes > fake_settings()->pin_piece)
    return cudaErrorMemoryAllocation;
  *free_entry(pinned_ranges) = (struct range){base, bytes};
  pinned_used += bytes;
  return cudaSuccess;
}

cudaError_t cudaHostUnregister(void *base)
{
  for (int i = 0; i < ENTRIES; i++)
    if (pinned_ranges[i].base == base && base) {
      pinned_used -= pinned_ranges[i].bytes;
      pinned_ranges[i] = (struct range){0};
      return cudaSuccess;
    }
  return cudaErrorInvalidValue;
}

/* ---- copies ---- */

struct copy {
  void *to;
  const void *from; /* NULL: fill with `value` */
  int value;
  size_t bytes;
};

static void do_copy(void *record)
{
  struct copy *c = record;
  uint64_t bus = fake_settings()->bus;
  if (c->from && bus) {
    uint64_t ns = c->bytes * 1000000000u / bus;
    struct timespec t = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
    nanosleep(&t, NULL);
  }
  if (c->from)
    memcpy(c->to, c->from, c->bytes);
  else
    memset(c->to, c->value, c->bytes);
  free(c);
}

static cudaError_t put_copy(struct copy what, cudaStream_t stream, bool wait)
{
  struct copy *c = malloc(sizeof *c);
  if (!c)
    fake_end("no memory for a copy");
  *c = what;
  return (cudaError_t)fake_put(stream, do_copy, c, wait);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes,
                            enum cudaMemcpyKind kind, cudaStream_t stream)
{
  bool up = kind == cudaMemcpyHostToDevice;
  const void *host = up ? from : to, *device = up ? to : from;
  if (fake_broken())
    return (cudaError_t)fake_broken();
  int pinned = fake_is_pinned(host, bytes);
  if (!fake_is_device(device, bytes) || fake_is_device(host, 1) || pinned < 0)
    return cudaErrorInvalidValue;
  __atomic_add_fetch(&fake_counts()->copies, 1, __ATOMIC_RELAXED);
  if (!pinned) {
    __atomic_add_fetch(&fake_counts()->pageable_copies, 1, __ATOMIC_RELAXED);
    if (fake_settings()->strict)
      fake_end("a copy of %zu bytes %s pageable memory", bytes,
               up ? "from" : "to");
  }
  return put_copy((struct copy){to, from, 0, bytes}, stream, !pinned);
}

cudaError_t cudaMemsetAsync(void *at, int value, size_t bytes,
                            cudaStream_t stream)
{
  if (fake_broken())
    return (cudaError_t)fake_broken();
  if (!fake_is_device(at, bytes))
    return cudaErrorInvalidValue;
  return put_copy((struct copy){at, NULL, value, bytes}, stream, false);
}
