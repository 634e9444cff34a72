/* engine.cc: runs the blocks of a kernel, each thread a fiber.
 *
 * A lane runs until it waits for its warp or its block, or ends.  The scheduler
 * runs one warp as far as it gets, then the next; when all wait for the block,
 * the barrier opens.  One kernel runs at a time in the process, whatever the
 * number of streams: shared memory is one array.
 * Disadvantage: only full warps are modelled: a mask other than all lanes, or
 * a warp operation after some lanes have ended, is an error. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <algorithm>
#include <unordered_map>
#include <vector>

#include "kernels/cuda/launch.cuh"
#include "tests/gpu/simt/fiber.h"
#include "tests/gpu/simt/race.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#define POISON(p, n) __asan_poison_memory_region(p, n)
#define UNPOISON(p, n) __asan_unpoison_memory_region(p, n)
#else
#define POISON(p, n) ((void)0)
#define UNPOISON(p, n) ((void)0)
#endif

constexpr unsigned THREADS_MAX = 1024, WARP_LANES = 32;
constexpr size_t GUARD_BYTES = 1024;
constexpr unsigned char GUARD = 0xa5;

namespace pen_cuda {
alignas(1024) uint4
    pen_cuda_shared[(SHARED_BYTES_MAX + GUARD_BYTES) / sizeof(uint4)];
}

__thread uint3 threadIdx, blockIdx;
__thread dim3 blockDim, gridDim;
__thread simt_copies *simt_current_copies;

namespace {

enum lane_state { READY, AT_WARP, AT_BLOCK, ENDED };

struct lane {
  uint3 thread;
  simt_race_thread race;
  simt_copies copies;
  simt_fiber fiber;
  lane_state state;
  simt_site site;
  bool vote, orders;
  unsigned exchanges; /* so far: which buffer is next */
};

struct warp {
  unsigned char given[2][WARP_LANES][SIMT_EXCHANGE_MAX];
};

/* One per OS thread that runs kernels. */
struct engine {
  std::vector<lane> lanes;
  char *stacks = nullptr; /* [THREADS_MAX, SIMT_STACK_BYTES] */
  warp warps[THREADS_MAX / WARP_LANES];
  simt_fiber scheduler = {};
  simt_launch *launch = nullptr;
  lane *current = nullptr;
  bool vote = false; /* of the block barrier that opened last */
  ~engine()
  {
    for (lane &l : lanes)
      simt_fiber_free(&l.fiber);
    if (stacks)
      munmap(stacks, THREADS_MAX * SIMT_STACK_BYTES);
  }
};

thread_local engine the_engine;

struct order {
  enum simt_order kind = SIMT_IN_ORDER;
  uint64_t random = 1; /* xorshift's state, never 0 */
};

order the_order;

uint64_t next_random()
{
  uint64_t &x = the_order.random;
  x ^= x << 13;
  x ^= x >> 7;
  x ^= x << 17;
  return x;
}

/* 0 to n - 1 in the order asked for. */
void permutation(std::vector<unsigned> &out, unsigned n)
{
  out.resize(n);
  for (unsigned i = 0; i < n; i++)
    out[i] = the_order.kind == SIMT_REVERSED ? n - 1 - i : i;
  if (the_order.kind == SIMT_RANDOM)
    for (unsigned i = n; i > 1; i--)
      std::swap(out[i - 1], out[next_random() % i]);
}

[[noreturn]] void die(const lane *l, const char *what)
{
  fflush(stdout);
  if (l)
    fprintf(stderr, "simt: %s:%d: block %u %u %u thread %u: %s\n",
            l->site.file, l->site.line, blockIdx.x, blockIdx.y, blockIdx.z,
            l->thread.x, what);
  else
    fprintf(stderr, "simt: %s\n", what);
  abort();
}

/* Back to the scheduler, until what this lane waits for has come. */
void wait_as(lane_state state, simt_site site)
{
  lane *l = the_engine.current;
  l->state = state;
  l->site = site;
  simt_fiber_switch(&l->fiber, &the_engine.scheduler, false);
}

void lane_entry()
{
  lane *l = the_engine.current;
  simt_fiber_entered(&l->fiber);
  the_engine.launch->run_thread();
  l->state = ENDED;
  simt_fiber_switch(&l->fiber, &the_engine.scheduler, true);
}

void run_lane(lane &l)
{
  the_engine.current = &l;
  threadIdx = l.thread;
  simt_current_copies = &l.copies;
  simt_race_current = &l.race;
  simt_fiber_switch(&the_engine.scheduler, &l.fiber, false);
  simt_race_current = nullptr;
}

/* Opens the warp's barrier if all its lanes have come; false if they wait for
 * the block or have ended. */
bool open_warp(lane *lanes, unsigned n)
{
  lane *waits = nullptr, *other = nullptr;
  for (unsigned i = 0; i < n; i++)
    (lanes[i].state == AT_WARP ? waits : other) = &lanes[i];
  if (!waits)
    return false;
  if (other || n < WARP_LANES)
    die(waits, "a warp operation that some lanes do not reach");
  for (unsigned i = 0; i < n; i++) {
    if (lanes[i].site.line != waits->site.line)
      die(&lanes[i], "lanes of a warp wait at different lines");
    lanes[i].state = READY;
    lanes[i].race.warp_epoch += lanes[i].orders;
  }
  return true;
}

/* Runs a warp until all its lanes wait for the block or have ended (or, in
 * random order, sometimes less far: then true). */
bool run_warp(lane *lanes, unsigned n)
{
  static thread_local std::vector<unsigned> turn;
  do {
    permutation(turn, n);
    for (unsigned i : turn)
      if (lanes[i].state == READY)
        run_lane(lanes[i]);
    if (!open_warp(lanes, n))
      return false;
  } while (the_order.kind != SIMT_RANDOM || next_random() % 4);
  return true;
}

/* Opens the block's barrier if all threads that live have come; false if none
 * lives. */
bool open_block(std::vector<lane> &lanes, unsigned n)
{
  lane *waits = nullptr, *ended = nullptr;
  the_engine.vote = false;
  for (unsigned i = 0; i < n; i++) {
    (lanes[i].state == AT_BLOCK ? waits : ended) = &lanes[i];
    the_engine.vote |= lanes[i].state == AT_BLOCK && lanes[i].vote;
  }
  if (!waits)
    return false;
  if (ended)
    die(waits, "a barrier after some threads of the block have ended");
  for (unsigned i = 0; i < n; i++) {
    if (lanes[i].site.line != waits->site.line)
      die(&lanes[i], "threads of a block wait at different barriers");
    lanes[i].state = READY;
    lanes[i].race.block_epoch++;
    lanes[i].race.warp_epoch++;
  }
  return true;
}

void begin_block(const simt_launch &launch, uint3 block, unsigned index)
{
  auto *shared = (unsigned char *)pen_cuda::pen_cuda_shared;
  UNPOISON(shared, sizeof pen_cuda::pen_cuda_shared);
  memset(shared, 0xff, launch.shared_bytes); /* NaN in both precisions */
  memset(shared + launch.shared_bytes, GUARD, GUARD_BYTES);
  POISON(shared + launch.shared_bytes,
         sizeof pen_cuda::pen_cuda_shared - launch.shared_bytes);
  simt_race_begin_block(shared, launch.shared_bytes);
  blockIdx = block;
  blockDim = dim3(launch.threads);
  gridDim = launch.grid;
  for (unsigned i = 0; i < launch.threads; i++) {
    lane &l = the_engine.lanes[i];
    l.thread = uint3{i, 0, 0};
    l.copies.n = 0;
    l.race = simt_race_thread{index, i, 0, 0};
    l.state = READY;
    l.exchanges = 0;
    simt_fiber_begin(&l.fiber, the_engine.stacks + i * SIMT_STACK_BYTES, i,
                     lane_entry);
  }
}

void end_block(const simt_launch &launch)
{
  auto *shared = (unsigned char *)pen_cuda::pen_cuda_shared;
  UNPOISON(shared, sizeof pen_cuda::pen_cuda_shared);
  for (size_t i = 0; i < GUARD_BYTES; i++)
    if (shared[launch.shared_bytes + i] != GUARD)
      die(nullptr, "a kernel wrote past its shared memory");
  for (unsigned i = 0; i < launch.threads; i++)
    if (the_engine.lanes[i].copies.n)
      die(&the_engine.lanes[i], "a copy was begun and never waited for");
}

void run_block(const simt_launch &launch, uint3 block, unsigned index)
{
  static thread_local std::vector<unsigned> turn;
  begin_block(launch, block, index);
  unsigned n_warps = (launch.threads + WARP_LANES - 1) / WARP_LANES;
  do {
    bool again = true;
    while (again) {
      again = false;
      permutation(turn, n_warps);
      for (unsigned w : turn)
        again |= run_warp(&the_engine.lanes[w * WARP_LANES],
                          std::min(WARP_LANES,
                                   launch.threads - w * WARP_LANES));
    }
  } while (open_block(the_engine.lanes, launch.threads));
  end_block(launch);
}

/* Memory of this OS thread's engine, once. */
void make_engine()
{
  size_t bytes = THREADS_MAX * SIMT_STACK_BYTES;
  void *p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED)
    die(nullptr, "no memory for stacks");
  the_engine.stacks = (char *)p;
  the_engine.lanes.resize(THREADS_MAX);
  simt_race_exempt(p, bytes);
  simt_race_exempt(&the_engine, sizeof the_engine);
  simt_race_exempt(the_engine.lanes.data(), THREADS_MAX * sizeof(lane));
  simt_race_exempt(&threadIdx, sizeof threadIdx);
  simt_race_exempt(&blockIdx, sizeof blockIdx);
  simt_race_exempt(&blockDim, sizeof blockDim);
  simt_race_exempt(&gridDim, sizeof gridDim);
  simt_race_exempt(&simt_current_copies, sizeof simt_current_copies);
}

void run_grid(simt_launch &launch)
{
  the_engine.launch = &launch;
  if (!the_engine.stacks)
    make_engine();
  simt_race_begin_kernel("a kernel");
  dim3 g = launch.grid;
  std::vector<unsigned> turn;
  permutation(turn, g.x * g.y * g.z);
  for (unsigned i : turn)
    run_block(launch, uint3{i % g.x, i / g.x % g.y, i / g.x / g.y}, i);
}

/* One kernel at a time.  Not told to TSan: on a GPU nothing orders kernels of
 * different streams. */
char is_running;

__attribute__((no_sanitize("thread"))) void enter()
{
  while (__atomic_test_and_set(&is_running, __ATOMIC_ACQUIRE))
    sched_yield();
}

__attribute__((no_sanitize("thread"))) void leave()
{
  __atomic_clear(&is_running, __ATOMIC_RELEASE);
}

void run_record(void *record)
{
  auto *launch = (simt_launch *)record;
  enter();
  run_grid(*launch);
  leave();
  delete launch;
}

/* Kernels that may have more than what needs no asking. */
std::unordered_map<const void *, size_t> &shared_limits()
{
  static std::unordered_map<const void *, size_t> limits;
  return limits;
}

} // namespace

void simt_set_order(enum simt_order kind, uint64_t seed)
{
  the_order.kind = kind;
  the_order.random = seed * 2 + 1;
}

bool simt_block_barrier(simt_site site, bool vote)
{
  the_engine.current->vote = vote;
  wait_as(AT_BLOCK, site);
  return the_engine.vote;
}

void simt_warp_barrier(simt_site site, unsigned mask, bool orders)
{
  lane *l = the_engine.current;
  l->site = site;
  if (mask != 0xffffffff)
    die(l, "only full warps are modelled");
  l->orders = orders;
  wait_as(AT_WARP, site);
}

const unsigned char *simt_exchange(simt_site site, unsigned mask,
                                   const void *mine, size_t bytes)
{
  lane *l = the_engine.current;
  unsigned thread = l->thread.x;
  auto &given = the_engine.warps[thread / WARP_LANES].given[l->exchanges++ % 2];
  memcpy(given[thread % WARP_LANES], mine, bytes);
  simt_warp_barrier(site, mask, false);
  return given[0];
}

unsigned long long atomicAdd(unsigned long long *to, unsigned long long x)
{
  return __atomic_fetch_add(to, x, __ATOMIC_RELAXED);
}

cudaError_t cudaFuncSetAttribute(const void *kernel, cudaFuncAttribute what,
                                 int value)
{
  if (what != cudaFuncAttributeMaxDynamicSharedMemorySize ||
      (size_t)value > pen_cuda::SHARED_BYTES_MAX)
    return cudaErrorInvalidValue;
  enter();
  shared_limits()[kernel] = (size_t)value;
  leave();
  return cudaSuccess;
}

cudaError_t simt_begin(const cudaLaunchConfig_t *config, simt_launch *launch)
{
  dim3 g = config->gridDim, b = config->blockDim;
  enter();
  size_t limit = std::max(pen_cuda::SHARED_BYTES_PLAIN,
                          shared_limits()[launch->kernel]);
  leave();
  if (!g.x || !g.y || !g.z || g.x > 0x7fffffff || g.y > 65535 || g.z > 65535 ||
      !b.x || b.x > THREADS_MAX || b.y != 1 || b.z != 1 ||
      config->dynamicSmemBytes > limit) {
    fprintf(stderr,
            "simt: no device takes a grid of %u x %u x %u blocks of %u threads "
            "with %zu bytes of shared memory\n",
            g.x, g.y, g.z, b.x, config->dynamicSmemBytes);
    delete launch;
    return cudaErrorInvalidValue;
  }
  launch->grid = g;
  launch->threads = b.x;
  launch->shared_bytes = config->dynamicSmemBytes;
  return (cudaError_t)simt_submit(config->stream, run_record, launch);
}
