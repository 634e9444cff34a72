/* numerics.h: everything that can change a bit of a run, chosen at its first
 * start and kept with it. */
#ifndef PEN_SRC_TRAIN_NUMERICS_H
#define PEN_SRC_TRAIN_NUMERICS_H

#include "io/json.h"
#include "io/json_write.h"
#include "src/train/settings.h"

/* Raised whenever our own arithmetic changes. */
#define PEN_NUMERICS_VERSION 2

struct pen_numerics {
  uint32_t version;
  enum pen_elem elem;
  const struct pen_state_format *state; /* in the hash where it is not exact */
  char gemm[32];         /* product library that was chosen */
  char gemm_variant[64]; /* and what else decides its bits */
  bool tf32;             /* as its variant says, too */
  uint32_t max_length;
  uint64_t batch_sequences, accumulation; /* how a step is cut */
  bool packing;              /* rows of several sequences */
  uint64_t head_rows;        /* vocabulary rows per block */
  uint64_t seed;             /* of the order of sequences */
  uint32_t data_fingerprint; /* of the sequences' places and lengths */
};

void pen_numerics_write(const struct pen_numerics *numerics,
                        struct pen_json_writer *writer);
int pen_numerics_read(const struct pen_json *json,
                      const struct pen_json_node *node,
                      struct pen_numerics *ret_numerics);

/* A number that differs when any field differs; in every manifest. */
uint64_t pen_numerics_hash(const struct pen_numerics *numerics);
/* The same if the state had another format. */
uint64_t pen_numerics_hash_in(const struct pen_numerics *numerics,
                              const struct pen_state_format *state);

/* -PEN_EMISMATCH naming the first option that was given and differs from what
 * the run was started with. */
int pen_numerics_check(const struct pen_numerics *run,
                       const struct pen_train_settings *settings);

#endif
