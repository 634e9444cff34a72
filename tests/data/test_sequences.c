/* Cutting into sequences: every token a target once, truncation and drops
 * counted (cases G5, G6), the held-out tail. */
#include "tests/data/test.h"
#include "tests/data/token_writer.h"

#include <stdlib.h>

#include "src/data/sequences.h"

/* A .pent of documents of the given lengths, ids counting up from 0. */
static struct pen_tokens *documents(bool records, const uint64_t *lengths, size_t n_docs,
                                    const uint8_t *trained)
{
  uint64_t *borders = calloc(n_docs + 1, sizeof *borders);
  struct pen_tokens *tokens;
  size_t n_bytes;

  for (size_t i = 0; i < n_docs; i++)
    borders[i + 1] = borders[i] + lengths[i];
  uint32_t *ids = calloc(borders[n_docs] + 1, sizeof *ids);
  for (uint64_t i = 0; i < borders[n_docs]; i++)
    ids[i] = (uint32_t)i;
  struct token_file file = { .token_bytes = 4, .vocab_size = 1000000, .records = records,
    .n_tokens = borders[n_docs], .n_docs = n_docs, .ids = ids, .trained = trained,
    .borders = borders };
  uint8_t *image = token_file_image(&file, &n_bytes);
  assert_done(pen_tokens_open(test_file("s.pent", image, n_bytes),
                              &(struct pen_tokens_options){ 0 }, &tokens));
  free(image);
  free(ids);
  free(borders);
  return tokens;
}

static int cut(const struct pen_tokens *tokens, uint32_t max_length, struct pen_sequences **ret)
{
  return pen_sequences_create(tokens, &(struct pen_sequences_options){ .max_length = max_length }, ret);
}

/* Text: for every length around the window size, each token of each document
 * but its first is a target exactly once, in order, and none of another. */
static void every_token_is_a_target_once(void **state)
{
  for (uint64_t length = 0; length <= 40; length++)
    for (uint32_t window = 1; window <= 9; window++) {
      const uint64_t lengths[] = { 5, length, 2 };
      struct pen_tokens *tokens = documents(false, lengths, 3, NULL);
      struct pen_sequences *s;
      assert_done(cut(tokens, window, &s));
      const struct pen_sequences_counts *c = pen_sequences_counts(s);
      uint64_t doc_begin[] = { 0, 5, 5 + length, 7 + length };
      uint64_t id = 0;
      for (int doc = 0; doc < 3; doc++) {
        uint64_t next = doc_begin[doc] + 1; /* the target that must come next */
        while (next < doc_begin[doc + 1]) {
          const struct pen_sequence *q = pen_sequences_at(s, id++);
          assert_int_equal(q->begin, next - 1);
          assert_in_range(q->n_tokens, 2, window + 1);
          next += q->n_tokens - 1;
          /* only the last window of a document is short */
          assert_true(q->n_tokens == window + 1 || next == doc_begin[doc + 1]);
        }
        assert_int_equal(next, doc_begin[doc + 1] > doc_begin[doc] ? doc_begin[doc + 1]
                                                                   : doc_begin[doc] + 1);
      }
      assert_int_equal(c->n_sequences, id);
      assert_int_equal(c->n_dropped, length < 2);
      assert_int_equal(c->n_targets, 4 + 1 + (length ? length - 1 : 0));
      assert_int_equal(c->n_truncated, 0);
      pen_sequences_free(&s);
      pen_tokens_close(&tokens);
    }
}

/* G6: lengths 3, 8, 9, 20 at 8: two truncated, 1 + 12 tokens lost. */
static void truncation_is_counted(void **state)
{
  const uint64_t lengths[] = { 3, 8, 9, 20 };
  struct pen_tokens *tokens = documents(true, lengths, 4, NULL);
  struct pen_sequences *s;
  char note[256];

  assert_done(cut(tokens, 8, &s));
  const struct pen_sequences_counts *c = pen_sequences_counts(s);
  assert_int_equal(c->n_samples, 4);
  assert_int_equal(c->n_sequences, 4);
  assert_int_equal(c->n_truncated, 2);
  assert_int_equal(c->n_truncated_tokens, 13);
  assert_int_equal(c->n_targets, 2 + 7 + 7 + 7);
  assert_int_equal(pen_sequences_longest_inputs(s), 7);
  assert_int_equal(pen_sequences_at(s, 3)->begin, 20);
  assert_true(pen_sequences_note(s, note, sizeof note));
  assert_string_equal(note, "2 of 4 samples cut off at 8 tokens, 13 tokens lost");
  pen_sequences_free(&s);
  struct pen_sequences_options strict = { .max_length = 8, .refuse_truncation = true };
  assert_refused(pen_sequences_create(tokens, &strict, &s), PEN_EFORMAT, "13 tokens would be lost");
  strict.max_length = 20;
  assert_done(pen_sequences_create(tokens, &strict, &s));
  assert_false(pen_sequences_note(s, note, sizeof note));
  assert_string_equal(note, "");
  pen_sequences_free(&s);
  assert_refused(cut(tokens, 1, &s), PEN_EUSAGE, "at least 2");
  pen_tokens_close(&tokens);
}

/* G5: 40 records of 4 tokens, of which `n_empty` have no target. */
static void drop_case(size_t n_empty, bool warns)
{
  uint64_t lengths[40];
  uint8_t trained[160] = { 0 };
  struct pen_sequences *s;
  char note[256];

  for (size_t i = 0; i < 40; i++) {
    lengths[i] = 4;
    trained[4 * i] = 1; /* the first token of a record is never a target */
    trained[4 * i + 3] = i >= n_empty;
  }
  struct pen_tokens *tokens = documents(true, lengths, 40, trained);
  if (n_empty == 40) {
    assert_refused(cut(tokens, 8, &s), PEN_EFORMAT, "none of the 40 samples");
  } else {
    assert_done(cut(tokens, 8, &s));
    assert_int_equal(pen_sequences_counts(s)->n_dropped, n_empty);
    assert_int_equal(pen_sequences_counts(s)->n_sequences, 40 - n_empty);
    assert_int_equal(pen_sequences_counts(s)->n_targets, 40 - n_empty);
    assert_int_equal(pen_sequences_at(s, 0)->begin, 4 * n_empty);
    assert_int_equal(pen_sequences_note(s, note, sizeof note), warns);
    assert_int_equal(strlen(note) > 0, n_empty > 0);
    pen_sequences_free(&s);
    /* the targets lie behind the cut: every sample is without one */
    assert_refused(cut(tokens, 3, &s), PEN_EFORMAT, "40 were cut off");
  }
  pen_tokens_close(&tokens);
}

static void samples_without_target_are_dropped(void **state)
{
  drop_case(0, false);
  drop_case(2, false); /* exactly 5 % */
  drop_case(3, true);
  drop_case(40, true);
}

static void fingerprint_tells_other_cuts(void **state)
{
  const uint64_t lengths[] = { 30, 30 }, others[] = { 31, 29 };
  struct pen_tokens *tokens = documents(false, lengths, 2, NULL);
  struct pen_sequences *s;
  uint32_t first, again;

  assert_done(cut(tokens, 8, &s));
  first = pen_sequences_fingerprint(s);
  assert_int_equal(pen_sequences_bytes(s),
                   pen_sequences_counts(s)->n_sequences * sizeof(struct pen_sequence));
  pen_sequences_free(&s);
  assert_done(cut(tokens, 8, &s));
  again = pen_sequences_fingerprint(s);
  assert_int_equal(first, again);
  pen_sequences_free(&s);
  assert_done(cut(tokens, 9, &s));
  assert_int_not_equal(first, pen_sequences_fingerprint(s));
  pen_sequences_free(&s);
  pen_tokens_close(&tokens);
  tokens = documents(false, others, 2, NULL);
  assert_done(cut(tokens, 8, &s));
  assert_int_not_equal(first, pen_sequences_fingerprint(s));
  pen_sequences_free(&s);
  pen_tokens_close(&tokens);
}

static void held_out_tail(void **state)
{
  uint64_t train, eval;

  assert_done(pen_sequences_split(100, 0, &train, &eval));
  assert_int_equal(train, 100);
  assert_int_equal(eval, 0);
  assert_done(pen_sequences_split(100, 0.1, &train, &eval));
  assert_int_equal(train, 90);
  assert_int_equal(eval, 10);
  assert_done(pen_sequences_split(2, 0.001, &train, &eval));
  assert_int_equal(eval, 1);
  assert_done(pen_sequences_split(2, 0.999, &train, &eval));
  assert_int_equal(train, 1);
  assert_refused(pen_sequences_split(1, 0.1, &train, &eval), PEN_EUSAGE, "cannot be split");
  assert_refused(pen_sequences_split(9, 1, &train, &eval), PEN_EUSAGE, "below 1");
  assert_refused(pen_sequences_split(9, -0.5, &train, &eval), PEN_EUSAGE, "below 1");
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_token_is_a_target_once),
    cmocka_unit_test(truncation_is_counted),
    cmocka_unit_test(samples_without_target_are_dropped),
    cmocka_unit_test(fingerprint_tells_other_cuts),
    cmocka_unit_test(held_out_tail),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
