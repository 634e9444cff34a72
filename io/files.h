/* files.h: small files and folders handled so that what has a name is whole. */
#ifndef PEN_IO_FILES_H
#define PEN_IO_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* out [n] = the file's bytes from offset on; -PEN_ESHORT when it ends before.
 * path is for messages. */
int pen_files_read_at(int fd, const char *path, void *out, size_t n,
                      uint64_t offset);

/* All n bytes at offset. */
int pen_files_write_at(int fd, const char *path, const void *bytes, size_t n,
                       uint64_t offset);

/* Makes an empty file n bytes long with room on the drive for them; -ENOSPC
 * says how many are needed and free.  Where the file system cannot reserve,
 * only the length is set. */
int pen_files_reserve(int fd, const char *path, uint64_t n_bytes);

/* *ret_bytes = what is free on the drive where `path` is, or will be. */
int pen_files_free_bytes(const char *path, uint64_t *ret_bytes);

/* -PEN_ENOFIT, with both sizes, unless the drive of `path` has n_bytes free:
 * "`what` needs ...; `remedy`". */
int pen_files_check_room(const char *path, uint64_t n_bytes, const char *what,
                         const char *remedy);

/* *ret_bytes = the whole file, NUL-terminated, to be freed by the caller.
 * -PEN_EFORMAT above max_bytes, or when it is not a regular file. */
int pen_files_read_whole(const char *path, size_t max_bytes, char **ret_bytes,
                         size_t *ret_n);

/* path = these bytes, through path.tmp, synced and renamed. */
int pen_files_write_whole(const char *path, const void *bytes, size_t n);

/* The same with the bytes of another file. */
int pen_files_copy(const char *from, const char *to);

bool pen_files_exists(const char *path);

/* May path, which `option` names, be written?  -PEN_EUSAGE where something is
 * there, or at path.tmp, that is no file or does not have `mark` in its first 512
 * bytes: what somebody else wrote is not replaced.  An empty file may be.  What
 * errno says where it cannot be read, or its folder is missing or takes no
 * files. */
int pen_files_may_replace(const char *path, const char *option,
                          const char *mark);

/* Syncs a folder; its entries are durable then. */
int pen_files_sync_dir(const char *path);
/* Syncs the folder that holds `path`. */
int pen_files_sync_parent(const char *path);

/* Makes a folder and those above it, each durable in the one that holds it. */
int pen_files_make_dirs(const char *path);
/* Bytes of path's longest beginning that is there; 0: none is. */
size_t pen_files_existing(const char *path);
/* Removes the folders of path that are longer than `existing`, the innermost
 * first, up to one that holds anything: what make_dirs made for nothing. */
void pen_files_unmake_dirs(const char *path, size_t existing);
/* Does path, which need not be there, lie in the folder `dir`, or is it that
 * folder?  False where `dir` is no folder. */
bool pen_files_lies_in(const char *path, const char *dir);

/* Removes a folder of plain files; a folder inside it is -ENOTEMPTY, but for one of
 * plain files that is called `inside` (NULL: none).  Absent is fine. */
int pen_files_remove_flat_dir(const char *path, const char *inside);

/* Makes the folder `from` be `to`, in one step where the file system can: `to`
 * as it was is removed after that, with `inside` as above.  `from` must be synced. */
int pen_files_replace_dir(const char *from, const char *to, const char *inside);

/* The same where it cannot: for a moment there is no `to`, and what it was is
 * whole under TO.old. */
int pen_files_replace_dir_by_steps(const char *from, const char *to,
                                   const char *inside);

#endif
