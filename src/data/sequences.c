/* Cutting documents into sequences.
 *
 * One pass over the borders, and over the loss flags where there are any, at
 * creation; after that the table is read-only and any thread may look.
 * Invariant: sequences lie inside one document each, in file order.
 *
 * Disadvantage: 16 bytes of RAM per sequence; a billion short records would
 * need 16 GB, where a table on disk would not. */
#include "src/data/sequences.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "src/data/crc32.h"
#include "src/data/pack.h"

#define BORDER_CHUNK 1024
#define FLAG_CHUNK 8192

struct pen_sequences {
  const struct pen_tokens *tokens;
  struct pen_sequences_options options;
  struct pen_sequences_counts counts;
  struct pen_sequence *table; /* [counts.n_sequences] */
  size_t capacity;
  uint32_t longest_inputs;
  struct pen_pack pack; /* all zero without packing */
  struct pen_sequences_limits limits;
};

/* Trained tokens among the targets begin+1 .. begin+n_tokens-1. */
static int count_targets(const struct pen_tokens *tokens, const struct pen_sequence *sequence,
                         uint64_t *ret_targets)
{
  uint8_t trained[FLAG_CHUNK];
  uint64_t n_targets = 0, left = sequence->n_tokens - 1, at = sequence->begin + 1;

  if (!pen_tokens_info(tokens)->has_loss) {
    *ret_targets = left;
    return 0;
  }
  while (left) {
    size_t n = left < FLAG_CHUNK ? (size_t)left : FLAG_CHUNK;
    int r = pen_tokens_read(tokens, at, n, NULL, trained);
    if (r < 0)
      return r;
    for (size_t i = 0; i < n; i++)
      n_targets += trained[i];
    at += n;
    left -= n;
  }
  *ret_targets = n_targets;
  return 0;
}

/* Takes tokens begin .. begin+n_tokens-1 as one sample. */
static int sample_add(struct pen_sequences *s, uint64_t begin, uint64_t n_tokens)
{
  struct pen_sequence sequence = { .begin = begin, .n_tokens = (uint32_t)n_tokens };
  uint64_t n_targets = 0;

  s->counts.n_samples++;
  if (n_tokens >= 2) {
    int r = count_targets(s->tokens, &sequence, &n_targets);
    if (r < 0)
      return r;
  }
  if (!n_targets) {
    s->counts.n_dropped++;
    return 0;
  }
  if (s->counts.n_sequences == s->capacity) {
    size_t more = s->capacity ? s->capacity * 2 : 1024;
    struct pen_sequence *table = reallocarray(s->table, more, sizeof *table);
    if (!table)
      return pen_error_set(-ENOMEM, "cannot hold a table of %zu sequences (%zu bytes)", more,
                           more * sizeof *table);
    s->table = table;
    s->capacity = more;
  }
  s->table[s->counts.n_sequences++] = sequence;
  s->counts.n_inputs += n_tokens - 1;
  s->counts.n_targets += n_targets;
  if (n_tokens - 1 > s->longest_inputs)
    s->longest_inputs = (uint32_t)(n_tokens - 1);
  return 0;
}

static int record_add(struct pen_sequences *s, uint64_t begin, uint64_t n_tokens)
{
  if (n_tokens > s->options.max_length) {
    s->counts.n_truncated++;
    s->counts.n_truncated_tokens += n_tokens - s->options.max_length;
    n_tokens = s->options.max_length;
  }
  return sample_add(s, begin, n_tokens);
}

static int text_add(struct pen_sequences *s, uint64_t begin, uint64_t n_tokens)
{
  uint64_t most = (uint64_t)s->options.max_length + 1;
  int r;

  do {
    r = sample_add(s, begin, n_tokens < most ? n_tokens : most);
    begin += s->options.max_length;
    n_tokens -= n_tokens < s->options.max_length ? n_tokens : s->options.max_length;
  } while (r == 0 && n_tokens > 1);
  return r;
}

static int documents_cut(struct pen_sequences *s)
{
  const struct pen_tokens_info *info = pen_tokens_info(s->tokens);
  uint64_t borders[BORDER_CHUNK + 1];

  for (uint64_t doc = 0; doc < info->n_docs;) {
    uint64_t left = info->n_docs - doc;
    size_t n = left < BORDER_CHUNK ? (size_t)left : BORDER_CHUNK;
    int r = pen_tokens_borders(s->tokens, doc, n + 1, borders);
    for (size_t i = 0; r == 0 && i < n; i++)
      r = (info->records ? record_add : text_add)(s, borders[i], borders[i + 1] - borders[i]);
    if (r < 0)
      return r;
    doc += n;
  }
  return 0;
}

static int cut_check(const struct pen_sequences *s)
{
  const struct pen_sequences_counts *counts = &s->counts;
  const char *path = s->options.name ? s->options.name : pen_tokens_path(s->tokens);

  if (s->options.refuse_truncation && counts->n_truncated)
    return pen_error_set(PEN_EFORMAT,
                         "%" PRIu64 " of the %" PRIu64 " samples of %s are longer than %" PRIu32
                         " tokens (%" PRIu64 " tokens would be lost): raise --max-length, or "
                         "drop --refuse-truncation", counts->n_truncated, counts->n_samples, path,
                         s->options.max_length, counts->n_truncated_tokens);
  if (!counts->n_sequences)
    return pen_error_set(PEN_EFORMAT,
                         "none of the %" PRIu64 " samples of %s has a target to train on "
                         "(%" PRIu64 " were cut off at %" PRIu32 " tokens)",
                         counts->n_samples, path, counts->n_truncated, s->options.max_length);
  return 0;
}

static int rows_pack(struct pen_sequences *s)
{
  uint64_t n = s->counts.n_sequences;
  uint32_t *lengths = calloc((size_t)n, sizeof *lengths);

  if (!lengths)
    return pen_error_set(-ENOMEM, "cannot pack %" PRIu64 " sequences", n);
  for (uint64_t i = 0; i < n; i++)
    lengths[i] = s->table[i].n_tokens - 1;
  int r = pen_pack_best_fit(lengths, n, s->options.max_length, &s->pack);
  for (uint64_t row = 0; r == 0 && row < s->pack.n_rows; row++) {
    uint32_t n_inputs = 0, size = (uint32_t)pen_sequences_row_size(s, row);
    for (uint32_t i = 0; i < size; i++)
      n_inputs += lengths[pen_sequences_in_row(s, row, i)];
    if (n_inputs > s->limits.n_inputs)
      s->limits.n_inputs = n_inputs;
    if (size > s->limits.n_sequences)
      s->limits.n_sequences = size;
  }
  free(lengths);
  return r;
}

int pen_sequences_create(const struct pen_tokens *tokens,
                         const struct pen_sequences_options *options,
                         struct pen_sequences **ret_sequences)
{
  uint32_t least = pen_tokens_info(tokens)->records ? 2 : 1;
  struct pen_sequences *s;
  int r;

  if (options->max_length < least || options->max_length == UINT32_MAX)
    return pen_error_set(PEN_EUSAGE, "sequences of %" PRIu32 " tokens cannot be trained on: "
                         "at least %" PRIu32, options->max_length, least);
  s = calloc(1, sizeof *s);
  if (!s)
    return pen_error_set(-ENOMEM, "cannot cut %s", pen_tokens_path(tokens));
  s->tokens = tokens;
  s->options = *options;
  r = documents_cut(s);
  if (r == 0)
    r = cut_check(s);
  if (r == 0 && options->packing)
    r = rows_pack(s);
  else
    s->limits = (struct pen_sequences_limits){ s->longest_inputs, 1 };
  if (r < 0) {
    pen_sequences_free(&s);
    return r;
  }
  s->options.name = NULL;
  /* Give back what doubling took too much; failing to is no harm. */
  struct pen_sequence *table = reallocarray(s->table, (size_t)s->counts.n_sequences,
                                            sizeof *table);
  if (table)
    s->table = table;
  *ret_sequences = s;
  return 0;
}

void pen_sequences_free(struct pen_sequences **sequences)
{
  if (!*sequences)
    return;
  pen_pack_free(&(*sequences)->pack);
  free((*sequences)->table);
  free(*sequences);
  *sequences = NULL;
}

const struct pen_sequences_counts *pen_sequences_counts(const struct pen_sequences *sequences)
{
  return &sequences->counts;
}

const struct pen_tokens *pen_sequences_tokens(const struct pen_sequences *sequences)
{
  return sequences->tokens;
}

const struct pen_sequence *pen_sequences_at(const struct pen_sequences *sequences, uint64_t id)
{
  return &sequences->table[id];
}

uint32_t pen_sequences_longest_inputs(const struct pen_sequences *sequences)
{
  return sequences->longest_inputs;
}

uint64_t pen_sequences_n_rows(const struct pen_sequences *sequences)
{
  return sequences->options.packing ? sequences->pack.n_rows : sequences->counts.n_sequences;
}

uint64_t pen_sequences_row_size(const struct pen_sequences *sequences, uint64_t row)
{
  const struct pen_pack *pack = &sequences->pack;

  return sequences->options.packing ? pack->row_begin[row + 1] - pack->row_begin[row] : 1;
}

uint64_t pen_sequences_in_row(const struct pen_sequences *sequences, uint64_t row, uint64_t i)
{
  const struct pen_pack *pack = &sequences->pack;

  return sequences->options.packing ? pack->ids[pack->row_begin[row] + i] : row;
}

struct pen_sequences_limits pen_sequences_limits(const struct pen_sequences *sequences)
{
  return sequences->limits;
}

size_t pen_sequences_bytes(const struct pen_sequences *sequences)
{
  size_t n = (size_t)sequences->counts.n_sequences;
  size_t packed = sequences->options.packing ? n + (size_t)sequences->pack.n_rows + 2 : 0;

  return n * sizeof *sequences->table + packed * sizeof(uint64_t);
}

bool pen_sequences_note(const struct pen_sequences *sequences, char *ret_text,
                        size_t text_bytes)
{
  const struct pen_sequences_counts *c = &sequences->counts;
  bool many = c->n_dropped > c->n_samples / 100 * PEN_SEQUENCES_DROPPED_PERCENT +
                             c->n_samples % 100 * PEN_SEQUENCES_DROPPED_PERCENT / 100;
  int n = 0;

  ret_text[0] = 0;
  if (c->n_truncated)
    n = snprintf(ret_text, text_bytes, "%" PRIu64 " of %" PRIu64 " samples cut off at %" PRIu32
                 " tokens, %" PRIu64 " tokens lost", c->n_truncated, c->n_samples,
                 sequences->options.max_length, c->n_truncated_tokens);
  if (c->n_dropped && (size_t)n < text_bytes)
    snprintf(ret_text + n, text_bytes - (size_t)n, "%s%" PRIu64 " of %" PRIu64
             " samples without any target dropped", n ? "; " : "", c->n_dropped, c->n_samples);
  return c->n_truncated || many;
}

uint32_t pen_sequences_fingerprint(const struct pen_sequences *sequences)
{
  const struct pen_tokens_info *info = pen_tokens_info(sequences->tokens);
  const uint64_t head[] = { info->n_tokens, info->n_docs, info->n_trained, info->content_crc };
  uint32_t crc = pen_crc32(0, head, sizeof head);

  /* Member by member: the padding of the struct has no defined contents. */
  for (uint64_t i = 0; i < sequences->counts.n_sequences; i++) {
    crc = pen_crc32(crc, &sequences->table[i].begin, sizeof sequences->table[i].begin);
    crc = pen_crc32(crc, &sequences->table[i].n_tokens, sizeof sequences->table[i].n_tokens);
  }
  if (sequences->options.packing) {
    crc = pen_crc32(crc, sequences->pack.row_begin,
                    (size_t)(sequences->pack.n_rows + 1) * sizeof *sequences->pack.row_begin);
    crc = pen_crc32(crc, sequences->pack.ids,
                    (size_t)sequences->counts.n_sequences * sizeof *sequences->pack.ids);
  }
  return crc;
}

int pen_sequences_split(uint64_t n, double eval_share, uint64_t *ret_train, uint64_t *ret_eval)
{
  uint64_t n_eval = 0;

  if (!(eval_share >= 0 && eval_share < 1))
    return pen_error_set(PEN_EUSAGE, "a held-out share of %g: it is at least 0 and below 1",
                         eval_share);
  if (eval_share > 0) {
    if (n < 2)
      return pen_error_set(PEN_EUSAGE, "%" PRIu64 " sequence cannot be split into training "
                           "and held-out ones", n);
    n_eval = (uint64_t)((double)n * eval_share + 0.5);
    if (n_eval < 1)
      n_eval = 1;
    if (n_eval > n - 1)
      n_eval = n - 1;
  }
  *ret_train = n - n_eval;
  *ret_eval = n_eval;
  return 0;
}
