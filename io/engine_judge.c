/* engine_judge.c: how a transfer's result is judged, and blocking transfers that
 * follow the judgement.
 *
 * Invariant: no byte count of a completion is believed before
 * pen_engine_judge has seen it.  Any thread.  Disadvantage: an EAGAIN that
 * lasts is answered by sleeping, up to a few seconds, before it is an error. */
#include <errno.h>
#include <inttypes.h>
#include <time.h>

#include "base/error.h"
#include "io/engine.h"

#define ATTEMPTS_MAX 2000 /* without progress, then it is a failure */
#define ATTEMPTS_FAST 100 /* of them without sleeping */

static int failed(const struct pen_engine_file *file, bool write,
                  size_t bytes, uint64_t offset, int code)
{
  return pen_error_set(code, "cannot %s %zu bytes at byte %" PRIu64 " of %s",
                       write ? "write" : "read", bytes, offset, file->path);
}

/* Nothing usable moved: again, unless that has been tried often enough. */
static enum pen_engine_next again(const struct pen_engine_file *file,
                                  bool write, size_t bytes, uint64_t offset,
                                  int code, uint32_t *attempts, int *ret_code)
{
  if (++*attempts > ATTEMPTS_MAX) {
    *ret_code = pen_error_set(
        code, "gave up after %u attempts to %s %zu bytes at byte %" PRIu64
        " of %s", *attempts, write ? "write" : "read", bytes, offset,
        file->path);
    return PEN_ENGINE_FAILED;
  }
  if (code == -EAGAIN && *attempts > ATTEMPTS_FAST)
    nanosleep(&(struct timespec){.tv_nsec = 1000 * 1000}, NULL);
  return PEN_ENGINE_RETRY;
}

enum pen_engine_next pen_engine_judge(struct pen_engine_file *file, bool write,
                                      size_t bytes, uint64_t offset,
                                      int64_t result, uint32_t *attempts,
                                      size_t *ret_moved, int *ret_code)
{
  if (result == -EINTR || result == -EAGAIN)
    return again(file, write, bytes, offset, (int)result, attempts, ret_code);
  if (result < 0) {
    *ret_code = failed(file, write, bytes, offset, (int)result);
    return PEN_ENGINE_FAILED;
  }
  if ((uint64_t)result > bytes) {
    *ret_code = pen_error_set(
        -EIO, "%s of %zu bytes at byte %" PRIu64 " of %s reports %" PRId64
        " bytes", write ? "write" : "read", bytes, offset, file->path, result);
    return PEN_ENGINE_FAILED;
  }
  if ((uint64_t)result == bytes)
    return PEN_ENGINE_DONE;
  /* A direct transfer must go on from an aligned offset: the one below. */
  size_t moved = (size_t)result & ~(size_t)(PEN_ENGINE_ALIGN - 1);
  if (moved) {
    *attempts = 0;
    *ret_moved = moved;
    return PEN_ENGINE_ADVANCE;
  }
  struct pen_engine_info info;
  if (!write) {
    int code = file->engine->info(file, &info);
    if (code) {
      *ret_code = code;
      return PEN_ENGINE_FAILED;
    }
    if (offset + (uint64_t)result >= info.size_bytes) {
      *ret_code = pen_error_set(
          -PEN_ESHORT, "unexpected end of file at byte %" PRIu64 " of %s",
          info.size_bytes, file->path);
      return PEN_ENGINE_FAILED;
    }
  }
  return again(file, write, bytes, offset, -EIO, attempts, ret_code);
}

/* One loop for both directions; `buffer` is only written to by reads. */
static int whole(struct pen_engine_file *file, bool write, char *buffer,
                 size_t bytes, uint64_t offset, uint64_t *retries)
{
  uint32_t attempts = 0;
  while (bytes) {
    int64_t result =
        write ? file->engine->write_at(file, buffer, bytes, offset)
              : file->engine->read_at(file, buffer, bytes, offset);
    size_t moved = bytes;
    int code = 0;
    switch (pen_engine_judge(file, write, bytes, offset, result, &attempts,
                             &moved, &code)) {
    case PEN_ENGINE_FAILED:
      return code;
    case PEN_ENGINE_RETRY:
      moved = 0;
      /* fall through */
    case PEN_ENGINE_ADVANCE:
      if (retries)
        ++*retries;
      /* fall through */
    case PEN_ENGINE_DONE:
      buffer += moved;
      offset += moved;
      bytes -= moved;
    }
  }
  return 0;
}

int pen_engine_read_whole(struct pen_engine_file *file, void *buffer,
                          size_t bytes, uint64_t offset, uint64_t *retries)
{
  return whole(file, false, buffer, bytes, offset, retries);
}

int pen_engine_write_whole(struct pen_engine_file *file, const void *buffer,
                           size_t bytes, uint64_t offset, uint64_t *retries)
{
  return whole(file, true, (char *)buffer, bytes, offset, retries);
}
