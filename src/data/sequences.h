/* sequences.h: a token file cut into the sequences that are trained.
 *
 * Text: each document is cut into windows of max_length inputs; window and
 * successor share one token, the last target of the one and the first input of
 * the other, so that every token but a document's first is a target once.
 * Records: one document is one sequence, cut off after max_length tokens.
 * A sequence without any target is dropped.  All of it is counted.
 *
 * What a micro-batch takes is a row: one sequence, or with packing several whole
 * ones that together are no longer than max_length. */
#ifndef PEN_SRC_DATA_SEQUENCES_H
#define PEN_SRC_DATA_SEQUENCES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/data/tokens.h"

/* A dropped share above this is worth a warning, in percent. */
#define PEN_SEQUENCES_DROPPED_PERCENT 5

struct pen_sequences_options {
  uint32_t max_length;     /* tokens a sequence feeds to the model, at least 1
                              (records: tokens kept, at least 2) */
  bool refuse_truncation;  /* a record longer than max_length is an error */
  bool packing;            /* rows of several sequences, by best fit */
  const char *name;        /* what the user calls the data, in messages; borrowed
                              during the call; NULL: the file's path */
};

/* One sequence: tokens begin .. begin+n_tokens-1 of the file, of which the
 * first n_tokens-1 are inputs and each one's next is its target. */
struct pen_sequence {
  uint64_t begin;
  uint32_t n_tokens; /* at least 2 */
};

struct pen_sequences_counts {
  uint64_t n_sequences;        /* kept */
  uint64_t n_samples;          /* kept and dropped */
  uint64_t n_dropped;          /* without any target (also: of one token) */
  uint64_t n_truncated;        /* records cut off at max_length */
  uint64_t n_truncated_tokens; /* lost by that */
  uint64_t n_inputs;           /* tokens fed to the model in one epoch */
  uint64_t n_targets;          /* trained in one epoch */
};

/* The most a row holds: what one place in a micro-batch must. */
struct pen_sequences_limits {
  uint32_t n_inputs, n_sequences;
};

struct pen_sequences; /* opaque */

/* Builds the table (16 bytes per sequence, and 8 to 16 more with packing); reads the file's borders and, if
 * it has any, loss flags once.  `tokens` is borrowed until pen_sequences_free.
 * -PEN_EFORMAT where nothing is left to train or a truncation is refused;
 * -PEN_EUSAGE for a max_length too small. */
int pen_sequences_create(const struct pen_tokens *tokens,
                         const struct pen_sequences_options *options,
                         struct pen_sequences **ret_sequences);
void pen_sequences_free(struct pen_sequences **sequences);

/* Borrowed until free. */
const struct pen_sequences_counts *pen_sequences_counts(const struct pen_sequences *sequences);
const struct pen_tokens *pen_sequences_tokens(const struct pen_sequences *sequences);
/* `id` below n_sequences.  Borrowed until free. */
const struct pen_sequence *pen_sequences_at(const struct pen_sequences *sequences, uint64_t id);
/* Inputs of the longest sequence. */
uint32_t pen_sequences_longest_inputs(const struct pen_sequences *sequences);

/* Rows are 0 .. n_rows-1; row r has row_size sequences, the i-th of which has the
 * id pen_sequences_in_row.  Without packing a row is the sequence of its number. */
uint64_t pen_sequences_n_rows(const struct pen_sequences *sequences);
uint64_t pen_sequences_row_size(const struct pen_sequences *sequences, uint64_t row);
uint64_t pen_sequences_in_row(const struct pen_sequences *sequences, uint64_t row, uint64_t i);
struct pen_sequences_limits pen_sequences_limits(const struct pen_sequences *sequences);
/* Memory of the table, for the plan. */
size_t pen_sequences_bytes(const struct pen_sequences *sequences);

/* One line about what was cut off and dropped, for the start of a run, into
 * ret_text (always ended; "" where there is nothing to say).  Returns true
 * where it is a warning: anything truncated, or more than
 * PEN_SEQUENCES_DROPPED_PERCENT dropped. */
bool pen_sequences_note(const struct pen_sequences *sequences, char *ret_text,
                        size_t text_bytes);

/* A number that differs where the cut differs: of the places and lengths of
 * all sequences, the rows and the file's counts, for resume to refuse other data.  The
 * ids themselves are only covered where the file has a checksum of its own. */
uint32_t pen_sequences_fingerprint(const struct pen_sequences *sequences);

/* Splits off the last `eval_share` (0 <= share < 1) of n sequences for
 * evaluation: *ret_train + *ret_eval = n; ids from *ret_train on are held out.
 * A share above 0 holds out at least 1 and leaves at least 1; -PEN_EUSAGE where
 * that cannot be. */
int pen_sequences_split(uint64_t n, double eval_share, uint64_t *ret_train,
                        uint64_t *ret_eval);

#endif
