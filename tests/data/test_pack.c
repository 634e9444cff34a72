/* Packing: rows are those of the plain way to do best fit decreasing, and hold
 * every sequence once and no more than they may. */
#include "tests/data/test.h"
#include "tests/data/token_writer.h"

#include <stdlib.h>

#include "src/data/pack.h"
#include "src/data/sequences.h"

#define MOST 300

/* By looking at every row for every sequence.  Of rows with equal room the one
 * last laid into is taken. */
static size_t plain_best_fit(const uint32_t *lengths, size_t n, uint32_t capacity,
                             size_t row_of[MOST])
{
  uint32_t room[MOST];
  size_t touched[MOST], n_rows = 0, clock = 0;

  for (uint32_t length = capacity; length > 0; length--)
    for (size_t i = 0; i < n; i++) {
      if (lengths[i] != length)
        continue;
      size_t best = n_rows;
      for (size_t row = 0; row < n_rows; row++)
        if (room[row] >= length &&
            (best == n_rows || room[row] < room[best] ||
             (room[row] == room[best] && touched[row] > touched[best])))
          best = row;
      if (best == n_rows)
        room[n_rows++] = capacity;
      room[best] -= length;
      touched[best] = clock++;
      row_of[i] = best;
    }
  return n_rows;
}

static void check_pack(const uint32_t *lengths, size_t n, uint32_t capacity)
{
  size_t row_of[MOST], seen = 0;
  size_t n_rows = plain_best_fit(lengths, n, capacity, row_of);
  struct pen_pack pack;

  assert_done(pen_pack_best_fit(lengths, n, capacity, &pack));
  assert_int_equal(pack.n_rows, n_rows);
  assert_int_equal(pack.row_begin[0], 0);
  for (size_t row = 0; row < n_rows; row++) {
    uint64_t filled = 0;
    for (uint64_t i = pack.row_begin[row]; i < pack.row_begin[row + 1]; i++, seen++) {
      if (i > pack.row_begin[row])
        assert_true(pack.ids[i] > pack.ids[i - 1]);
      assert_int_equal(row_of[pack.ids[i]], row);
      filled += lengths[pack.ids[i]];
    }
    assert_in_range(filled, 1, capacity);
  }
  assert_int_equal(seen, n); /* each in its row, none twice: all of them */
  pen_pack_free(&pack);
  assert_null(pack.ids);
}

static void rows_are_those_of_the_plain_way(void **state)
{
  uint64_t random = data_seed();
  uint32_t lengths[MOST];

  for (int round = 0; round < 400; round++) {
    size_t n = 1 + test_random(&random) % MOST;
    /* from a word of the set to three of its levels */
    uint32_t capacity = 1 + (uint32_t)(test_random(&random) % (round % 2 ? 70 : 9000));
    uint32_t longest = 1 + (uint32_t)(test_random(&random) % capacity);
    for (size_t i = 0; i < n; i++)
      lengths[i] = 1 + (uint32_t)(test_random(&random) % longest);
    check_pack(lengths, n, capacity);
  }
}

static void by_hand(void **state)
{
  const uint32_t lengths[] = { 3, 7, 5, 2, 1, 10, 2 };
  const uint64_t begin[] = { 0, 1, 3, 7 }, ids[] = { 5, 0, 1, 2, 3, 4, 6 };
  struct pen_pack pack;

  assert_done(pen_pack_best_fit(lengths, 7, 10, &pack));
  assert_int_equal(pack.n_rows, 3);
  assert_memory_equal(pack.row_begin, begin, sizeof begin);
  assert_memory_equal(pack.ids, ids, sizeof ids);
  pen_pack_free(&pack);
  /* a length that no one reaches takes no memory of its own */
  assert_done(pen_pack_best_fit(lengths, 7, UINT32_MAX, &pack));
  assert_int_equal(pack.n_rows, 1);
  pen_pack_free(&pack);
}

/* Records of 3, 2, 4 and 9 tokens in rows of 5: the last is cut off, then all packed;
 * a run that is packed has another fingerprint than one that is not. */
static void sequences_are_packed(void **state)
{
  uint32_t ids[18] = { 0 };
  const uint64_t borders[] = { 0, 3, 5, 9, 18 };
  struct token_file file = { .token_bytes = 2, .vocab_size = 2, .records = true,
    .n_tokens = 18, .n_docs = 4, .ids = ids, .borders = borders };
  size_t n_bytes;
  uint8_t *image = token_file_image(&file, &n_bytes);
  struct pen_sequences_options options = { .max_length = 5 };
  struct pen_sequences *apart, *packed;
  struct pen_tokens *tokens;

  assert_done(pen_tokens_open(test_file("p.pent", image, n_bytes),
                              &(struct pen_tokens_options){ 0 }, &tokens));
  assert_done(pen_sequences_create(tokens, &options, &apart));
  options.packing = true;
  assert_done(pen_sequences_create(tokens, &options, &packed));
  assert_int_equal(pen_sequences_n_rows(apart), 4);
  assert_int_equal(pen_sequences_row_size(apart, 2), 1);
  assert_int_equal(pen_sequences_in_row(apart, 2, 0), 2);
  assert_int_equal(pen_sequences_limits(apart).n_inputs, 4);
  assert_int_equal(pen_sequences_limits(apart).n_sequences, 1);
  /* inputs 2, 1, 3, 4: 4 + 1, 3 + 2 */
  assert_int_equal(pen_sequences_n_rows(packed), 2);
  assert_int_equal(pen_sequences_in_row(packed, 0, 0), 1);
  assert_int_equal(pen_sequences_in_row(packed, 0, 1), 3);
  assert_int_equal(pen_sequences_in_row(packed, 1, 0), 0);
  assert_int_equal(pen_sequences_in_row(packed, 1, 1), 2);
  assert_int_equal(pen_sequences_limits(packed).n_inputs, 5);
  assert_int_equal(pen_sequences_limits(packed).n_sequences, 2);
  assert_int_equal(pen_sequences_counts(packed)->n_truncated, 1);
  assert_true(pen_sequences_bytes(packed) > pen_sequences_bytes(apart));
  assert_int_not_equal(pen_sequences_fingerprint(packed), pen_sequences_fingerprint(apart));
  pen_sequences_free(&packed);
  pen_sequences_free(&apart);
  pen_tokens_close(&tokens);
  free(image);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(rows_are_those_of_the_plain_way),
    cmocka_unit_test(by_hand),
    cmocka_unit_test(sequences_are_packed),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
