/* engine_uring.c: the engine `uring`; the only file that includes liburing.
 *
 * One ring per owner, files registered, buffers registered where the memory
 * lock limit permits; a request whose buffer lies in a registered region uses
 * it.  Invariant: requests queued and not yet taken by the kernel stay in the
 * submission queue, and every wait submits them again.
 * Threads: the ring's owner (no SINGLE_ISSUER: the owner may not be the thread
 * that made it).  Disadvantage: no polling, so a wait is a system call. */
#include "io/engine_uring.h"

#include <errno.h>
#include <liburing.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "base/error.h"
#include "io/engine_posix.h"

#define REQUEST_BYTES_MAX ((size_t)1 << 30) /* longer: moved short, go on */

struct uring_ring {
  struct pen_engine_ring base;
  struct io_uring uring;
  bool uring_made;
  int *fds; /* [n_files] */
  bool files_registered;
  struct iovec *buffers; /* [n_buffers], sorted by address */
  size_t n_buffers;
  bool buffers_registered;
  size_t depth, in_flight;
};

static int by_address(const void *a, const void *b)
{
  const char *x = ((const struct iovec *)a)->iov_base;
  const char *y = ((const struct iovec *)b)->iov_base;
  return (x > y) - (x < y);
}

/* Regions cut into what the kernel takes as one buffer. */
static int cut_regions(struct uring_ring *ring,
                       const struct pen_engine_region *regions, size_t n,
                       size_t *ret_bytes)
{
  size_t total = 0, count = 0;
  for (size_t i = 0; i < n; i++)
    count += (regions[i].bytes + PEN_ENGINE_REGION_BYTES_MAX - 1) /
             PEN_ENGINE_REGION_BYTES_MAX;
  ring->buffers = calloc(count ? count : 1, sizeof *ring->buffers);
  if (!ring->buffers)
    return -ENOMEM;
  for (size_t i = 0; i < n; i++)
    for (size_t at = 0; at < regions[i].bytes;) {
      size_t left = regions[i].bytes - at;
      struct iovec *v = &ring->buffers[ring->n_buffers++];
      v->iov_base = (char *)regions[i].base + at;
      v->iov_len = left < PEN_ENGINE_REGION_BYTES_MAX
                       ? left
                       : PEN_ENGINE_REGION_BYTES_MAX;
      at += v->iov_len;
      total += v->iov_len;
    }
  qsort(ring->buffers, ring->n_buffers, sizeof *ring->buffers, by_address);
  *ret_bytes = total;
  return 0;
}

/* Index of the registered buffer that holds all of the request, or -1. */
static int buffer_of(const struct uring_ring *ring,
                     const struct pen_engine_request *request)
{
  if (!ring->buffers_registered)
    return -1;
  const char *first = request->buffer;
  size_t low = 0, high = ring->n_buffers;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    const struct iovec *v = &ring->buffers[middle];
    const char *base = v->iov_base;
    if (first < base)
      high = middle;
    else if (first >= base + v->iov_len)
      low = middle + 1;
    else
      return request->bytes <= (size_t)(base + v->iov_len - first)
                 ? (int)middle
                 : -1;
  }
  return -1;
}

static void append(struct uring_ring *ring, const char *text)
{
  size_t n = strlen(ring->base.note);
  snprintf(ring->base.note + n, sizeof ring->base.note - n, "%s", text);
}

/* Both are attempts: what came of them goes into the note. */
static int register_all(struct uring_ring *ring, size_t n_files,
                        const struct pen_engine_region *regions,
                        size_t n_regions)
{
  char text[200];
  size_t bytes = 0;
  int code = cut_regions(ring, regions, n_regions, &bytes);
  if (code)
    return pen_error_set(code, "cannot make an I/O ring");
  code = io_uring_register_files(&ring->uring, ring->fds, (unsigned)n_files);
  ring->files_registered = code == 0;
  if (code)
    append(ring, ", files not registered");
  if (!ring->n_buffers)
    return 0;
  code = io_uring_register_buffers(&ring->uring, ring->buffers,
                                   (unsigned)ring->n_buffers);
  ring->buffers_registered = code == 0;
  struct rlimit limit = {0, 0};
  getrlimit(RLIMIT_MEMLOCK, &limit);
  if (code == -ENOMEM)
    snprintf(text, sizeof text,
             ", buffers not registered: %zu bytes needed, the limit of locked "
             "memory is %llu (ulimit -l)", bytes,
             (unsigned long long)limit.rlim_cur);
  else if (code)
    snprintf(text, sizeof text, ", %zu bytes of buffers not registered: %s",
             bytes, pen_error_describe(code));
  else
    snprintf(text, sizeof text, ", %zu bytes of buffers registered", bytes);
  append(ring, text);
  return 0;
}

static int uring_ring_reap(struct pen_engine_ring *base, size_t min,
                           size_t max,
                           struct pen_engine_completion *ret_completions);

static void uring_ring_free(struct pen_engine_ring **base)
{
  struct uring_ring *ring = (struct uring_ring *)*base;
  if (!ring)
    return;
  struct pen_engine_completion dropped;
  while (ring->uring_made && ring->in_flight)
    if (uring_ring_reap(*base, 1, 1, &dropped) < 0)
      break;
  if (ring->uring_made)
    io_uring_queue_exit(&ring->uring);
  free(ring->fds);
  free(ring->buffers);
  free(ring);
  *base = NULL;
}

/* Newer flags first; EINVAL is an older kernel's answer to them. */
static int make_uring(struct uring_ring *ring)
{
  int code = io_uring_queue_init((unsigned)ring->depth, &ring->uring,
                                 IORING_SETUP_CLAMP |
                                     IORING_SETUP_COOP_TASKRUN);
  if (code == -EINVAL)
    code = io_uring_queue_init((unsigned)ring->depth, &ring->uring,
                               IORING_SETUP_CLAMP);
  ring->uring_made = code == 0;
  return code ? pen_error_set(
                    code, "io_uring is not permitted here or not in this "
                          "kernel (engine threads needs neither)")
              : 0;
}

int pen_engine_uring_ring_create(const struct pen_engine *engine, size_t depth,
                                 struct pen_engine_file *const *files,
                                 size_t n_files,
                                 const struct pen_engine_region *regions,
                                 size_t n_regions,
                                 struct pen_engine_ring **ret_ring)
{
  struct uring_ring *ring = calloc(1, sizeof *ring);
  if (!ring)
    return pen_error_set(-ENOMEM, "cannot make an I/O ring");
  ring->base.engine = &pen_engine_uring;
  ring->depth = depth;
  ring->fds = calloc(n_files, sizeof *ring->fds);
  snprintf(ring->base.note, sizeof ring->base.note, "%s%s", engine->name,
           engine == &pen_engine_uring ? "" : ": uring");
  struct pen_engine_ring *base = &ring->base;
  int code = ring->fds ? make_uring(ring)
                       : pen_error_set(-ENOMEM, "cannot make an I/O ring");
  if (!code) {
    for (size_t i = 0; i < n_files; i++)
      ring->fds[i] = ((struct pen_engine_posix_file *)files[i])->fd;
    code = register_all(ring, n_files, regions, n_regions);
  }
  if (code)
    uring_ring_free(&base);
  else
    *ret_ring = base;
  return code;
}

static void prepare(struct uring_ring *ring, struct io_uring_sqe *sqe,
                    const struct pen_engine_request *r)
{
  unsigned bytes = (unsigned)(r->bytes < REQUEST_BYTES_MAX
                                  ? r->bytes
                                  : REQUEST_BYTES_MAX);
  int fd = ring->files_registered ? (int)r->file : ring->fds[r->file];
  int buffer = buffer_of(ring, r);
  if (r->write && buffer >= 0)
    io_uring_prep_write_fixed(sqe, fd, r->buffer, bytes, r->offset, buffer);
  else if (r->write)
    io_uring_prep_write(sqe, fd, r->buffer, bytes, r->offset);
  else if (buffer >= 0)
    io_uring_prep_read_fixed(sqe, fd, r->buffer, bytes, r->offset, buffer);
  else
    io_uring_prep_read(sqe, fd, r->buffer, bytes, r->offset);
  if (ring->files_registered)
    sqe->flags |= IOSQE_FIXED_FILE;
  sqe->user_data = r->tag;
}

/* Busy for a moment: what is not taken now is offered again at the wait. */
static bool passes(int code)
{
  return code >= 0 || code == -EINTR || code == -EAGAIN || code == -EBUSY;
}

static int uring_ring_submit(struct pen_engine_ring *base,
                             const struct pen_engine_request *requests,
                             size_t n)
{
  struct uring_ring *ring = (struct uring_ring *)base;
  if (ring->in_flight + n > ring->depth)
    return pen_error_set(-EBUSY, "%zu requests on an I/O ring of %zu with %zu "
                         "in flight", n, ring->depth, ring->in_flight);
  for (size_t i = 0; i < n; i++) {
    struct io_uring_sqe *sqe = io_uring_get_sqe(&ring->uring);
    if (!sqe)
      return pen_error_set(-EBUSY, "io_uring's submission queue is full");
    prepare(ring, sqe, &requests[i]);
    ring->in_flight++;
  }
  int code = io_uring_submit(&ring->uring);
  return passes(code) ? 0
                      : pen_error_set(code, "cannot submit to io_uring");
}

static int uring_ring_reap(struct pen_engine_ring *base, size_t min,
                           size_t max,
                           struct pen_engine_completion *ret_completions)
{
  struct uring_ring *ring = (struct uring_ring *)base;
  if (min > ring->in_flight)
    min = ring->in_flight;
  while (io_uring_cq_ready(&ring->uring) < min) {
    int code = io_uring_submit_and_wait(&ring->uring, (unsigned)min);
    if (!passes(code))
      return pen_error_set(code, "cannot wait for io_uring");
    if (code == -EAGAIN || code == -EBUSY) /* short of memory: let it pass */
      nanosleep(&(struct timespec){.tv_nsec = 100 * 1000}, NULL);
  }
  size_t n = 0;
  struct io_uring_cqe *cqe;
  while (n < max && io_uring_peek_cqe(&ring->uring, &cqe) == 0) {
    ret_completions[n].tag = cqe->user_data;
    ret_completions[n].result = cqe->res;
    io_uring_cqe_seen(&ring->uring, cqe);
    n++;
  }
  ring->in_flight -= n;
  return (int)n;
}

const struct pen_engine pen_engine_uring = {
    .name = "uring",
    .keeps = true,
    .drive = true,
    PEN_ENGINE_POSIX_FILES,
    .ring_create = pen_engine_uring_ring_create,
    .ring_free = uring_ring_free,
    .ring_submit = uring_ring_submit,
    .ring_reap = uring_ring_reap,
};
