/* race.cc: the functions that -fsanitize=thread makes instrumented code call.
 *
 * A cell per two bytes remembers the last writer and the last readers.  This
 * file itself must not be instrumented.  Disadvantage: several readers of one
 * cell are remembered as "several of a warp" or "several of the block", never
 * by name, and a report has only addresses: addr2line tells the lines. */
#include "tests/gpu/simt/race.h"

#include <stdio.h>

#include <unordered_map>
#include <vector>

__thread const simt_race_thread *simt_race_current;

namespace {

constexpr uint32_t SEVERAL = 0x80000000; /* readers of more than one thread */
constexpr size_t PAGE_CELLS = 2048;

struct access {
  simt_race_thread by = {};
  bool is_there = false, several_warps = false;
};

struct cell {
  access write, read;
};

struct range {
  uintptr_t begin, end;
};

struct state {
  std::unordered_map<uintptr_t, std::vector<cell>> pages; /* global memory */
  std::vector<cell> *last_page = nullptr; /* the one asked for last */
  uintptr_t last_number = 0;
  std::vector<cell> shared;
  uintptr_t shared_begin = 0;
  std::vector<range> exempt;
  const char *kernel = "";
  size_t races = 0;
};

state &the_state()
{
  static state s;
  return s;
}

bool is_ordered(const access &a, const simt_race_thread &now)
{
  if (!a.is_there)
    return true;
  if (a.by.block != now.block)
    return false;
  if (a.by.block_epoch < now.block_epoch)
    return true;
  bool one_warp =
      !a.several_warps && (a.by.thread & ~SEVERAL) / 32 == now.thread / 32;
  return a.by.thread == now.thread ||
         (one_warp && a.by.warp_epoch < now.warp_epoch);
}

void report(const char *what, const access &before, const simt_race_thread &now,
            uintptr_t address, void *pc)
{
  state &s = the_state();
  bool is_shared = address - s.shared_begin < s.shared.size() * 2;
  if (s.races++ < 5)
    fprintf(stderr,
            "simt: race in %s: %s of %s memory at %s%zu by block %u thread %u "
            "(at %p) and block %u thread %u%s\n",
            s.kernel, what, is_shared ? "shared" : "global",
            is_shared ? "offset " : "address ",
            (size_t)(is_shared ? address - s.shared_begin : address), now.block,
            now.thread, pc, before.by.block, before.by.thread & ~SEVERAL,
            before.by.thread & SEVERAL ? " and others" : "");
}

cell *cell_of(uintptr_t address)
{
  state &s = the_state();
  if (address - s.shared_begin < s.shared.size() * 2)
    return &s.shared[(address - s.shared_begin) / 2];
  uintptr_t number = address / 2 / PAGE_CELLS;
  if (!s.last_page || number != s.last_number) {
    s.last_number = number;
    s.last_page = &s.pages[number];
    s.last_page->resize(PAGE_CELLS);
  }
  return &(*s.last_page)[address / 2 % PAGE_CELLS];
}

bool is_exempt(uintptr_t address)
{
  for (const range &r : the_state().exempt)
    if (address - r.begin < r.end - r.begin)
      return true;
  return false;
}

void on_read(access &read, const simt_race_thread &now)
{
  bool is_same_time = read.is_there && read.by.block == now.block &&
                      read.by.block_epoch == now.block_epoch;
  if (!is_same_time || read.by.thread == now.thread) {
    read = access{now, true, false};
    return;
  }
  bool one_warp = (read.by.thread & ~SEVERAL) / 32 == now.thread / 32;
  read.several_warps |= !one_warp;
  read.by.thread = now.thread | SEVERAL;
  read.by.warp_epoch = now.warp_epoch;
}

void touch(void *p, size_t bytes, bool is_write, void *pc)
{
  if (!simt_race_current)
    return;
  simt_race_thread now = *simt_race_current;
  uintptr_t at = (uintptr_t)p / 2 * 2, end = (uintptr_t)p + bytes;
  if (is_exempt(at))
    return;
  for (; at < end; at += 2) {
    cell *c = cell_of(at);
    if (!is_ordered(c->write, now))
      report(is_write ? "two writes" : "read and write", c->write, now, at, pc);
    if (is_write && !is_ordered(c->read, now))
      report("write and read", c->read, now, at, pc);
    if (is_write)
      c->write = access{now, true, false};
    else
      on_read(c->read, now);
  }
}

} // namespace

size_t simt_races(void)
{
  return the_state().races;
}

bool simt_race_is_on(void)
{
  return true;
}

void simt_race_begin_kernel(const char *name)
{
  the_state().kernel = name;
  the_state().pages.clear();
  the_state().last_page = nullptr;
}

void simt_race_begin_block(const void *shared, size_t bytes)
{
  the_state().shared_begin = (uintptr_t)shared;
  the_state().shared.assign(bytes / 2, cell{});
}

void simt_race_exempt(const void *p, size_t bytes)
{
  uintptr_t begin = (uintptr_t)p;
  the_state().exempt.push_back(range{begin, begin + bytes});
}

#define PC __builtin_return_address(0)
#define ACCESS(name, bytes, is_write)                                         \
  extern "C" void name(void *p)                                               \
  {                                                                           \
    touch(p, bytes, is_write, PC);                                            \
  }
ACCESS(__tsan_read1, 1, false)
ACCESS(__tsan_read2, 2, false)
ACCESS(__tsan_read4, 4, false)
ACCESS(__tsan_read8, 8, false)
ACCESS(__tsan_read16, 16, false)
ACCESS(__tsan_write1, 1, true)
ACCESS(__tsan_write2, 2, true)
ACCESS(__tsan_write4, 4, true)
ACCESS(__tsan_write8, 8, true)
ACCESS(__tsan_write16, 16, true)
ACCESS(__tsan_unaligned_read2, 2, false)
ACCESS(__tsan_unaligned_read4, 4, false)
ACCESS(__tsan_unaligned_read8, 8, false)
ACCESS(__tsan_unaligned_read16, 16, false)
ACCESS(__tsan_unaligned_write2, 2, true)
ACCESS(__tsan_unaligned_write4, 4, true)
ACCESS(__tsan_unaligned_write8, 8, true)
ACCESS(__tsan_unaligned_write16, 16, true)

extern "C" void __tsan_read_range(void *p, size_t bytes)
{
  touch(p, bytes, false, PC);
}

extern "C" void __tsan_write_range(void *p, size_t bytes)
{
  touch(p, bytes, true, PC);
}

/* Calls, virtual tables and start-up are of no interest. */
extern "C" void __tsan_func_entry(void *)
{
}

extern "C" void __tsan_func_exit(void)
{
}

extern "C" void __tsan_vptr_update(void **, void *)
{
}

extern "C" void __tsan_vptr_read(void **)
{
}

extern "C" void __tsan_init(void)
{
}
