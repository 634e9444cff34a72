/* inspect.h: what a path given to inspect or verify is. */
#ifndef PEN_SRC_CLI_INSPECT_H
#define PEN_SRC_CLI_INSPECT_H

#include <stdint.h>

enum pen_inspect_kind {
  PEN_INSPECT_MODEL,       /* a directory, or a hub id */
  PEN_INSPECT_CONFIG,      /* a .json file: a model's config */
  PEN_INSPECT_SAFETENSORS, /* a .safetensors file */
  PEN_INSPECT_GGUF,        /* a file that begins as GGUF does */
  PEN_INSPECT_TOKENS,      /* any other file */
};

/* -ENOENT when there is nothing of that name, unless it may be a hub id;
 * -PEN_EUNSUPPORTED for what PyTorch saves. */
int pen_inspect_kind(const char *path, enum pen_inspect_kind *ret_kind);

/* gguf.c: what a GGUF file says of itself. */
struct pen_inspect_gguf {
  uint32_t version;
  uint64_t n_tensors, n_keys; /* keys: of metadata */
  uint64_t bytes;             /* of the whole file */
};
/* -PEN_ESHORT where the file ends before its last tensor does; -PEN_EUNSUPPORTED
 * for another version than 2 or 3; -PEN_EFORMAT for metadata not understood. */
int pen_inspect_read_gguf(const char *path, struct pen_inspect_gguf *ret_gguf);

#endif
