/* engine.h: the one table that all I/O of a store goes through.
 *
 * An engine is a const row of hooks over two things: files (made, preallocated,
 * locked, synced, and read and written by blocking calls: manifests) and rings
 * (many transfers of one thread in flight at once: tiles).  Rows:
 *   uring    io_uring, O_DIRECT, registered buffers and files where permitted
 *   threads  pread and pwrite by worker threads; anywhere
 *   auto     uring where the kernel permits it, else threads; says which, why
 *   ram      files in this process's memory, which outlive close but not exit
 *   null     accepts everything and moves nothing: measures ourselves
 * and rows made by pen_engine_parse from "fault:..." (io/engine_fault.h), which
 * wrap another.
 *
 * Hooks are dumb on purpose: a transfer may come back short, or fail with
 * -EINTR or -EAGAIN; io/transfer.h and the helpers below do what it takes.
 * Codes are negative errnos or PEN_E...; hooks that return int leave a text
 * (base/error.h), the results of transfers do not.
 *
 * Threads: a ring belongs to the thread that uses it; a file may be used by
 * several rings and threads at once. */
#ifndef PEN_IO_ENGINE_H
#define PEN_IO_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PEN_ENGINE_ALIGN 4096 /* of buffers, offsets and lengths */
#define PEN_ENGINE_REGION_BYTES_MAX ((size_t)1 << 30) /* of one registration */

struct pen_engine;

/* What every engine's file begins with. */
struct pen_engine_file {
  const struct pen_engine *engine; /* who made it */
  char *path;
  char note[160]; /* "" or what to warn of, once */
  bool direct;    /* transfers pass by the page cache */
  bool created;   /* this open made it */
};

/* What every engine's ring begins with. */
struct pen_engine_ring {
  const struct pen_engine *engine; /* who made it: after `auto` not `auto` */
  char note[320];                  /* wanted, got, and why not */
};

struct pen_engine_region {
  void *base; /* page aligned */
  size_t bytes;
};

struct pen_engine_request {
  bool write;
  uint32_t file; /* index among the files the ring was made with */
  void *buffer;  /* borrowed until the tag comes back */
  size_t bytes;
  uint64_t offset;
  uint64_t tag;
};

struct pen_engine_completion {
  uint64_t tag;
  int64_t result; /* bytes moved, or negative errno */
};

struct pen_engine_info {
  uint64_t size_bytes;
  uint64_t allocated_bytes; /* on the file system, by this file */
  uint64_t free_bytes;      /* left on its file system, for this user */
  uint64_t file_system;     /* equal for two files that share free_bytes */
};

struct pen_engine {
  const char *name;
  bool keeps; /* what is written can be read back */
  bool drive; /* a figure measured on it says something about a drive */
  bool absent; /* this build lacks the library: every ring is refused */
  void *context;

  /* Opens for reading and writing, making an empty file if `create`; -ENOENT
   * without.  Caller owns *ret_file. */
  int (*open)(const struct pen_engine *engine, const char *path, bool create,
              struct pen_engine_file **ret_file);
  void (*close)(struct pen_engine_file **file);
  /* -EBUSY while another open of the same file holds the lock.  Held until
   * close, or the death of the process. */
  int (*lock)(struct pen_engine_file *file);
  int (*info)(struct pen_engine_file *file, struct pen_engine_info *ret_info);
  /* Makes the file `bytes` long with every byte backed by space; keeps what is
   * in it. */
  int (*allocate)(struct pen_engine_file *file, uint64_t bytes);
  /* Everything written so far is durable after 0 (fdatasync). */
  int (*sync)(struct pen_engine_file *file);
  /* Blocking transfers, aligned like the ring's; bytes moved or -errno. */
  int64_t (*read_at)(struct pen_engine_file *file, void *buffer, size_t bytes,
                     uint64_t offset);
  int64_t (*write_at)(struct pen_engine_file *file, const void *buffer,
                      size_t bytes, uint64_t offset);

  int (*make_dirs)(const struct pen_engine *engine, const char *dir);
  int (*rename)(const struct pen_engine *engine, const char *from,
                const char *to);
  /* 0 also when there is no such file. */
  int (*remove)(const struct pen_engine *engine, const char *path);
  /* The names in `dir` are durable after 0. */
  int (*sync_dir)(const struct pen_engine *engine, const char *dir);

  /* A ring for up to `depth` requests in flight on these files (borrowed until
   * ring_free).  Regions are where buffers will lie; registering them is an
   * attempt, its outcome is in the note.  Caller owns *ret_ring. */
  int (*ring_create)(const struct pen_engine *engine, size_t depth,
                     struct pen_engine_file *const *files, size_t n_files,
                     const struct pen_engine_region *regions, size_t n_regions,
                     struct pen_engine_ring **ret_ring);
  /* Waits for what is in flight. */
  void (*ring_free)(struct pen_engine_ring **ring);
  /* Hands over n requests; the caller keeps within the depth. */
  int (*ring_submit)(struct pen_engine_ring *ring,
                     const struct pen_engine_request *requests, size_t n);
  /* Waits for at least `min` completions (fewer only if fewer are in flight or
   * a signal came), writes up to `max` and returns how many. */
  int (*ring_reap)(struct pen_engine_ring *ring, size_t min, size_t max,
                   struct pen_engine_completion *ret_completions);
};

/* The row of that name; NULL when there is none. */
const struct pen_engine *pen_engine_find(const char *name);

/* A name, or "fault:NAME,key=value,..." (keys in io/engine_fault.h).
 * -PEN_EUSAGE names what is wrong.  Release with pen_engine_release once
 * nothing uses the row. */
int pen_engine_parse(const char *spec, const struct pen_engine **ret_engine);
void pen_engine_release(const struct pen_engine **engine);

/* Blocking transfers of all the bytes: short ones are continued, EINTR and
 * EAGAIN retried; a file that ends early is -PEN_ESHORT.  `retries` is added
 * to; may be NULL. */
int pen_engine_read_whole(struct pen_engine_file *file, void *buffer,
                          size_t bytes, uint64_t offset, uint64_t *retries);
int pen_engine_write_whole(struct pen_engine_file *file, const void *buffer,
                           size_t bytes, uint64_t offset, uint64_t *retries);

/* What a transfer that moved `result` of `bytes` bytes asks for next. */
enum pen_engine_next {
  PEN_ENGINE_DONE,    /* all moved */
  PEN_ENGINE_ADVANCE, /* *ret_moved (aligned) bytes are done, do the rest */
  PEN_ENGINE_RETRY,   /* nothing usable was moved: the same again */
  PEN_ENGINE_FAILED,  /* the failure is told; its code is in *ret_code */
};
/* The one place where short and interrupted transfers are judged.  `attempts`
 * counts retries without progress (kept per transfer by the caller, 0 at the
 * start) so that nothing spins for ever. */
enum pen_engine_next pen_engine_judge(struct pen_engine_file *file, bool write,
                                      size_t bytes, uint64_t offset,
                                      int64_t result, uint32_t *attempts,
                                      size_t *ret_moved, int *ret_code);

/* Each engine's row, for the table in engine.c. */
extern const struct pen_engine pen_engine_uring;
extern const struct pen_engine pen_engine_threads;
extern const struct pen_engine pen_engine_auto;
extern const struct pen_engine pen_engine_ram;
extern const struct pen_engine pen_engine_null;

#endif
