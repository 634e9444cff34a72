/* memory.h: the list of every byte a run will take, made before it takes any. */
#ifndef PEN_SRC_TRAIN_MEMORY_H
#define PEN_SRC_TRAIN_MEMORY_H

#include <stdio.h>

#include "io/json_write.h"
#include "offload/layout.h"

#define PEN_MEMORY_ROWS_MAX 48

/* What libraries, program text and thread stacks take beyond our own
 * allocations; measured (docs/ARCHITECTURE.md, "Memory"), not declared by them.
 * More where a library makes code for micro-batches of many sizes. */
#define PEN_MEMORY_LIBRARY_BYTES ((uint64_t)24 << 20)
#define PEN_MEMORY_SIZES_BYTES ((uint64_t)40 << 20)

struct pen_memory_row {
  const char *purpose; /* static text */
  enum pen_tier tier;
  uint64_t bytes;
};

struct pen_memory {
  struct pen_memory_row rows[PEN_MEMORY_ROWS_MAX];
  size_t n_rows;
  uint64_t total[PEN_TIERS];
};

/* Adds bytes, to the row of that purpose and tier where there is one. */
void pen_memory_add(struct pen_memory *memory, const char *purpose,
                    enum pen_tier tier, uint64_t bytes);
/* Makes that row what it is, whatever was there. */
void pen_memory_set(struct pen_memory *memory, const char *purpose,
                    enum pen_tier tier, uint64_t bytes);
/* Adds a row for each purpose among the layout's slots. */
void pen_memory_add_layout(struct pen_memory *memory,
                           const struct pen_layout *layout);

/* The table for people, and as an array for programs. */
void pen_memory_print(const struct pen_memory *memory, FILE *f);
void pen_memory_write(const struct pen_memory *memory,
                      struct pen_json_writer *writer, const char *key);

/* Bytes that a limit of this process's addresses (`ulimit -v`) leaves to what a
 * plan lists; UINT64_MAX where there is none. */
uint64_t pen_memory_addresses(void);

/* RAM this process may still take: the least of MemAvailable, what the cgroup's
 * limit leaves and pen_memory_addresses; UINT64_MAX where there is none of them. */
uint64_t pen_memory_available(void);

/* -PEN_ENOFIT with the numbers when the host total is above `limit`. */
int pen_memory_check(const struct pen_memory *memory, uint64_t limit,
                     const char *limit_name);

#endif
