/* engine_posix.h: real files, shared by the engines uring, threads and auto. */
#ifndef PEN_IO_ENGINE_POSIX_H
#define PEN_IO_ENGINE_POSIX_H

#include "io/engine.h"

struct pen_engine_posix_file {
  struct pen_engine_file base;
  int fd; /* O_DIRECT unless base.note says why not */
};

/* Hooks of struct pen_engine; contracts are there. */
int pen_engine_posix_open(const struct pen_engine *engine, const char *path,
                          bool create, struct pen_engine_file **ret_file);
void pen_engine_posix_close(struct pen_engine_file **file);
int pen_engine_posix_lock(struct pen_engine_file *file);
int pen_engine_posix_info(struct pen_engine_file *file,
                          struct pen_engine_info *ret_info);
int pen_engine_posix_allocate(struct pen_engine_file *file, uint64_t bytes);
int pen_engine_posix_sync(struct pen_engine_file *file);
int64_t pen_engine_posix_read_at(struct pen_engine_file *file, void *buffer,
                                 size_t bytes, uint64_t offset);
int64_t pen_engine_posix_write_at(struct pen_engine_file *file,
                                  const void *buffer, size_t bytes,
                                  uint64_t offset);
int pen_engine_posix_make_dirs(const struct pen_engine *engine,
                               const char *dir);
int pen_engine_posix_rename(const struct pen_engine *engine, const char *from,
                            const char *to);
int pen_engine_posix_remove(const struct pen_engine *engine, const char *path);
int pen_engine_posix_sync_dir(const struct pen_engine *engine,
                              const char *dir);

/* The file half of a row. */
#define PEN_ENGINE_POSIX_FILES                                                \
  .open = pen_engine_posix_open, .close = pen_engine_posix_close,             \
  .lock = pen_engine_posix_lock, .info = pen_engine_posix_info,               \
  .allocate = pen_engine_posix_allocate, .sync = pen_engine_posix_sync,       \
  .read_at = pen_engine_posix_read_at, .write_at = pen_engine_posix_write_at, \
  .make_dirs = pen_engine_posix_make_dirs, .rename = pen_engine_posix_rename, \
  .remove = pen_engine_posix_remove, .sync_dir = pen_engine_posix_sync_dir

#endif
