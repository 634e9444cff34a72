/* inspect.h: what a path given to inspect or verify is. */
#ifndef PEN_SRC_CLI_INSPECT_H
#define PEN_SRC_CLI_INSPECT_H

enum pen_inspect_kind {
  PEN_INSPECT_MODEL,       /* a directory, or a hub id */
  PEN_INSPECT_CONFIG,      /* a .json file: a model's config */
  PEN_INSPECT_SAFETENSORS, /* a .safetensors file */
  PEN_INSPECT_TOKENS,      /* any other file */
};

/* -ENOENT when there is nothing of that name, unless it may be a hub id. */
int pen_inspect_kind(const char *path, enum pen_inspect_kind *ret_kind);

#endif
