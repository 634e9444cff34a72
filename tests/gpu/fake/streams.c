/* streams.c: streams as threads with queues, events as tickets.
 *
 * Compiled without ThreadSanitizer, and its locks are bare futexes, so that it
 * sees no order between threads but those told by __tsan_ calls, which are those
 * that CUDA promises: from putting an operation in to its start, from a record
 * to a wait for it, from a record to the host's wait for it.  Disadvantage: one
 * allocation per operation. */
#include <linux/futex.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "tests/gpu/fake/fake.h"
#include "tests/gpu/fake/include/cuda_runtime_api.h"

#ifdef FAKE_TSAN
void __tsan_acquire(void *at);
void __tsan_release(void *at);
void AnnotateIgnoreReadsBegin(const char *file, int line);
void AnnotateIgnoreReadsEnd(const char *file, int line);
void AnnotateIgnoreWritesBegin(const char *file, int line);
void AnnotateIgnoreWritesEnd(const char *file, int line);
static void own_begin(void)
{
  AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
  AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
}
static void own_end(void)
{
  AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
  AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
}
#else
#define __tsan_acquire(at) ((void)(at))
#define __tsan_release(at) ((void)(at))
#define own_begin() ((void)0)
#define own_end() ((void)0)
#endif

/* ---- a lock that sanitizers do not see ---- */

static int lock_word;
static int change; /* grows whenever anything happens */

static void futex(int *word, int operation, int value)
{
  syscall(SYS_futex, word, operation | FUTEX_PRIVATE_FLAG, value, NULL, NULL, 0);
}

static void lock(void)
{
  int free_word = 0;
  if (__atomic_compare_exchange_n(&lock_word, &free_word, 1, false,
                                  __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
    return;
  while (__atomic_exchange_n(&lock_word, 2, __ATOMIC_ACQUIRE) != 0)
    futex(&lock_word, FUTEX_WAIT, 2);
}

static void unlock(void)
{
  if (__atomic_exchange_n(&lock_word, 0, __ATOMIC_RELEASE) == 2)
    futex(&lock_word, FUTEX_WAKE, 1);
}

/* Under the lock. */
static void changed(void)
{
  __atomic_add_fetch(&change, 1, __ATOMIC_RELEASE);
  futex(&change, FUTEX_WAKE, 1 << 30);
}

static void wait_for_change(void)
{
  int seen = __atomic_load_n(&change, __ATOMIC_ACQUIRE);
  unlock();
  futex(&change, FUTEX_WAIT, seen);
  lock();
}

/* ---- operations ---- */

struct ticket {
  int users;
  int stream; /* it was recorded in */
  bool done;
  uint64_t ns;
};

struct operation {
  struct operation *next;
  void (*run)(void *record);
  void *record;
  struct ticket *mark, *awaits; /* or one of these */
  char order; /* what ThreadSanitizer knows it by */
};

struct CUstream_st {
  int number;
  pthread_t thread;
  struct operation *first, *last;
  uint64_t put, done;
  bool quit;
};

struct CUevent_st {
  struct ticket *latest;
};

static struct CUstream_st *streams[FAKE_STREAMS];
static int broken;
static uint64_t launches_run;

int fake_broken(void)
{
  return __atomic_load_n(&broken, __ATOMIC_ACQUIRE);
}

static uint64_t now_ns(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void release_ticket(struct ticket *ticket)
{
  if (ticket && --ticket->users == 0)
    free(ticket);
}

/* Up to 400 microseconds, mostly less, by seed, stream and number. */
static void jitter(const struct CUstream_st *stream)
{
  uint64_t x = fake_settings()->jitter;
  if (!x)
    return;
  x = (x * 0x9e3779b97f4a7c15u) ^ (stream->done * 0xbf58476d1ce4e5b9u) ^
      ((uint64_t)stream->number << 40);
  x ^= x >> 29;
  x *= 0x94d049bb133111ebu;
  x ^= x >> 32;
  struct timespec t = {0, (x & 7) == 0 ? 400000 : (long)(x % 40000)};
  if (x & 16)
    nanosleep(&t, NULL);
}

static void wait_for_ticket(struct ticket *ticket)
{
  lock();
  while (!ticket->done)
    wait_for_change();
  unlock();
  __tsan_acquire(ticket);
}

static void do_operation(struct CUstream_st *stream, struct operation *o)
{
  jitter(stream);
  if (o->awaits)
    wait_for_ticket(o->awaits);
  else if (o->run)
    o->run(o->record);
  else if (o->mark)
    __tsan_release(o->mark);
}

static void *stream_thread(void *arg)
{
  struct CUstream_st *stream = arg;
  fake_allow_device_memory();
  lock();
  for (;;) {
    while (!stream->first && !stream->quit)
      wait_for_change();
    struct operation *o = stream->first;
    if (!o)
      break;
    unlock();
    __tsan_acquire(&o->order);
    do_operation(stream, o);
    lock();
    stream->first = o->next;
    stream->done++;
    if (o->mark) {
      o->mark->ns = now_ns();
      o->mark->done = true;
    }
    release_ticket(o->mark);
    release_ticket(o->awaits);
    own_begin();
    free(o);
    own_end();
    changed();
  }
  unlock();
  return NULL;
}

static struct operation *new_operation(void)
{
  own_begin();
  struct operation *o = calloc(1, sizeof *o);
  own_end();
  if (!o)
    fake_end("no memory for an operation");
  return o;
}

/* Under the lock; `o` belongs to the stream from here on. */
static void append(struct CUstream_st *stream, struct operation *o)
{
  __tsan_release(&o->order);
  if (stream->first)
    stream->last->next = o;
  else
    stream->first = o;
  stream->last = o;
  stream->put++;
  changed();
}

static struct CUstream_st *check_stream(struct CUstream_st *stream)
{
  if (!stream)
    fake_end("the null stream is used, which orders itself with all others");
  return stream;
}

int fake_put(struct CUstream_st *stream, void (*run)(void *record),
             void *record, bool wait)
{
  struct operation *o = new_operation();
  check_stream(stream);
  o->run = run;
  o->record = record;
  lock();
  append(stream, o);
  uint64_t number = stream->put;
  while (wait && stream->done < number)
    wait_for_change();
  unlock();
  return cudaSuccess;
}

struct launch {
  void (*run)(void *record);
  void *record;
};

static void run_launch(void *record)
{
  struct launch *l = record;
  if (++launches_run == fake_settings()->fault)
    __atomic_store_n(&broken, cudaErrorIllegalAddress, __ATOMIC_RELEASE);
  l->run(l->record); /* on a broken device too: it lets go of the record */
  own_begin();
  free(l);
  own_end();
}

int fake_launch(struct CUstream_st *stream, void (*run)(void *record),
                void *record)
{
  if (fake_broken())
    return fake_broken();
  own_begin();
  struct launch *l = malloc(sizeof *l);
  own_end();
  if (!l)
    fake_end("no memory for a launch");
  *l = (struct launch){run, record};
  __atomic_add_fetch(&fake_counts()->launches, 1, __ATOMIC_RELAXED);
  return fake_put(stream, run_launch, l, false);
}

void fake_drain(void)
{
  lock();
  for (int i = 0; i < FAKE_STREAMS; i++)
    while (streams[i] && streams[i]->done < streams[i]->put)
      wait_for_change();
  unlock();
}

/* ---- CUDA's names ---- */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *ret_stream, unsigned flags)
{
  int r = fake_count_allocation(), number = 0;
  if (r)
    return (cudaError_t)r;
  if (flags != cudaStreamNonBlocking)
    fake_end("a stream that waits for the null stream");
  while (number < FAKE_STREAMS && streams[number])
    number++;
  if (number == FAKE_STREAMS)
    fake_end("more than %d streams", FAKE_STREAMS);
  struct CUstream_st *stream = calloc(1, sizeof *stream);
  if (!stream)
    return cudaErrorMemoryAllocation;
  stream->number = number;
  if (pthread_create(&stream->thread, NULL, stream_thread, stream) != 0) {
    free(stream);
    return cudaErrorMemoryAllocation;
  }
  streams[number] = stream;
  *ret_stream = stream;
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
  lock();
  stream->quit = true;
  changed();
  unlock();
  pthread_join(stream->thread, NULL);
  streams[stream->number] = NULL;
  free(stream);
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *ret_event, unsigned flags)
{
  int r = fake_count_allocation();
  (void)flags;
  if (r)
    return (cudaError_t)r;
  *ret_event = calloc(1, sizeof **ret_event);
  return *ret_event ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
  lock();
  release_ticket(event->latest);
  unlock();
  free(event);
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
  struct operation *o = new_operation();
  own_begin();
  struct ticket *ticket = calloc(1, sizeof *ticket);
  own_end();
  check_stream(stream);
  if (!ticket)
    fake_end("no memory for a ticket");
  ticket->users = 2;
  ticket->stream = stream->number;
  o->mark = ticket;
  lock();
  release_ticket(event->latest);
  event->latest = ticket;
  append(stream, o);
  unlock();
  return (cudaError_t)fake_broken();
}

/* What was recorded latest when this is called; nothing if nothing was. */
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event,
                                unsigned flags)
{
  const struct fake_settings *s = fake_settings();
  struct operation *o = new_operation();
  (void)flags;
  check_stream(stream);
  lock();
  struct ticket *ticket = event->latest;
  if (ticket && s->drop_waiter == stream->number &&
      s->drop_waited == ticket->stream) {
    __atomic_add_fetch(&fake_counts()->dropped, 1, __ATOMIC_RELAXED);
    ticket = NULL;
  }
  if (ticket)
    ticket->users++;
  o->awaits = ticket;
  append(stream, o);
  unlock();
  return (cudaError_t)fake_broken();
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
  lock();
  struct ticket *ticket = event->latest;
  if (ticket && ticket->stream == fake_settings()->drop_sync) {
    __atomic_add_fetch(&fake_counts()->dropped, 1, __ATOMIC_RELAXED);
    ticket = NULL;
  }
  while (ticket && !ticket->done)
    wait_for_change();
  unlock();
  if (ticket)
    __tsan_acquire(ticket);
  return (cudaError_t)fake_broken();
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t begin, cudaEvent_t end)
{
  lock();
  const struct ticket *a = begin->latest, *b = end->latest;
  bool recorded = a && b;
  if (recorded && a->done && b->done)
    *ms = (float)((double)(b->ns - a->ns) * 1e-6);
  unlock();
  return recorded ? (cudaError_t)fake_broken() : cudaErrorInvalidValue;
}
