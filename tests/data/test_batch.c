/* Micro-batches: borders, positions, masks by position (case G1), reuse. */
#include "tests/data/test.h"
#include "tests/data/token_writer.h"

#include <errno.h>
#include <stdlib.h>

#include "src/data/batch.h"

/* Three records: "5 6 2", "7 2 2 8" and "9 4"; 2 ends a text and pads it. */
static const uint32_t ids[] = { 5, 6, 2, 7, 2, 2, 8, 9, 4 };
static const uint8_t trained[] = { 0, 1, 1, 1, 1, 0, 1, 0, 1 };
static const uint64_t borders[] = { 0, 3, 7, 9 };

static struct pen_sequences_limits row(uint32_t n_inputs)
{
  return (struct pen_sequences_limits){ n_inputs, 1 };
}

static void open_records(struct pen_tokens **ret_tokens, struct pen_sequences **ret_sequences)
{
  struct token_file file = { .token_bytes = 2, .vocab_size = 10, .records = true,
    .n_tokens = 9, .n_docs = 3, .ids = ids, .trained = trained, .borders = borders };
  size_t n_bytes;
  uint8_t *image = token_file_image(&file, &n_bytes);

  assert_done(pen_tokens_open(test_file("r.pent", image, n_bytes),
                              &(struct pen_tokens_options){ 0 }, ret_tokens));
  free(image);
  assert_done(pen_sequences_create(*ret_tokens, &(struct pen_sequences_options){ .max_length = 16 },
                                   ret_sequences));
}

static void one_batch_of_three(void **state)
{
  const uint32_t expected_ids[] = { 7, 2, 2, 5, 6, 9 };
  const uint32_t expected_positions[] = { 0, 1, 2, 0, 1, 0 };
  /* by position: the first 2 of the second record is trained, the other not,
   * and the end of the first record is, although it has the same id */
  const int32_t expected_targets[] = { 2, -1, 8, 6, 2, 4 };
  const uint32_t expected_begin[] = { 0, 3, 5, 6 };
  const uint64_t order[] = { 1, 0, 2 };
  struct pen_tokens *tokens;
  struct pen_sequences *s;
  struct pen_batch *b;

  open_records(&tokens, &s);
  assert_done(pen_batch_create(3, pen_sequences_limits(s), &b));
  for (int again = 0; again < 2; again++) {
    assert_done(pen_batch_fill(b, s, order, 3));
    assert_int_equal(b->n_tokens, 6);
    assert_int_equal(b->n_docs, 3);
    assert_int_equal(b->n_targets, 5);
    assert_memory_equal(b->ids, expected_ids, sizeof expected_ids);
    assert_memory_equal(b->positions, expected_positions, sizeof expected_positions);
    assert_memory_equal(b->targets, expected_targets, sizeof expected_targets);
    assert_memory_equal(b->doc_begin, expected_begin, sizeof expected_begin);
    /* a smaller fill between must leave nothing behind */
    assert_done(pen_batch_fill(b, s, order, 1));
    assert_int_equal(b->n_tokens, 3);
    assert_int_equal(b->n_docs, 1);
    assert_int_equal(b->doc_begin[1], 3);
    assert_int_equal(b->n_targets, 2);
  }
  pen_batch_free(&b);
  assert_null(b);
  pen_sequences_free(&s);
  pen_tokens_close(&tokens);
}

static void too_much_is_refused(void **state)
{
  const uint64_t order[] = { 0, 1, 2 };
  struct pen_tokens *tokens;
  struct pen_sequences *s;
  struct pen_batch *b;

  open_records(&tokens, &s);
  assert_done(pen_batch_create(2, row(3), &b));
  assert_refused(pen_batch_fill(b, s, order, 3), EINVAL, "made for 2");
  assert_int_equal(b->n_docs, 0);
  pen_batch_free(&b);
  assert_done(pen_batch_create(3, row(2), &b));
  assert_refused(pen_batch_fill(b, s, order, 2), EINVAL, "3 tokens");
  assert_int_equal(b->n_tokens, 0);
  pen_batch_free(&b);
  assert_refused(pen_batch_create(SIZE_MAX / 4, row(UINT32_MAX), &b), PEN_ENOFIT, "4294967295");
  assert_refused(pen_batch_create(1u << 16, row(1u << 16), &b), PEN_ENOFIT, "65536");
  assert_true(pen_batch_bytes(SIZE_MAX / 4, row(UINT32_MAX)) == SIZE_MAX);
  pen_sequences_free(&s);
  pen_tokens_close(&tokens);
}

/* Packed at 6 inputs (of 2, 3 and 1): one row with all three, apart from each other;
 * a batch of one row is the batch of the three. */
static void a_packed_row(void **state)
{
  const uint64_t order[] = { 0, 1, 2 }, one[] = { 0 };
  struct pen_tokens *tokens;
  struct pen_sequences *s, *packed;
  struct pen_batch *apart, *b;

  open_records(&tokens, &s);
  assert_done(pen_sequences_create(tokens, &(struct pen_sequences_options){ .max_length = 6,
                                     .packing = true }, &packed));
  assert_int_equal(pen_sequences_n_rows(packed), 1);
  assert_done(pen_batch_create(3, pen_sequences_limits(s), &apart));
  assert_done(pen_batch_create(1, pen_sequences_limits(packed), &b));
  assert_int_equal(b->max_tokens, 6);
  assert_int_equal(b->max_docs, 3);
  assert_done(pen_batch_fill(apart, s, order, 3));
  assert_done(pen_batch_fill(b, packed, one, 1));
  assert_int_equal(b->n_tokens, 6);
  assert_int_equal(b->n_docs, 3);
  assert_int_equal(b->n_targets, apart->n_targets);
  assert_memory_equal(b->ids, apart->ids, 6 * sizeof *b->ids);
  assert_memory_equal(b->positions, apart->positions, 6 * sizeof *b->positions);
  assert_memory_equal(b->targets, apart->targets, 6 * sizeof *b->targets);
  assert_memory_equal(b->doc_begin, apart->doc_begin, 4 * sizeof *b->doc_begin);
  pen_batch_free(&b);
  /* made for fewer tokens than its rows have */
  assert_done(pen_batch_create(1, (struct pen_sequences_limits){ 5, 3 }, &b));
  assert_refused(pen_batch_fill(b, packed, one, 1), EINVAL, "made for 3");
  pen_batch_free(&b);
  pen_batch_free(&apart);
  pen_sequences_free(&packed);
  pen_sequences_free(&s);
  pen_tokens_close(&tokens);
}

/* Windows of one long text: input i+1 is target i, across windows too. */
static void windows_of_one_text(void **state)
{
  uint8_t text[1000];
  uint64_t random = data_seed();
  struct pen_tokens *tokens;
  struct pen_sequences *s;
  struct pen_batch *b;

  for (size_t i = 0; i < sizeof text; i++)
    text[i] = (uint8_t)(1 + test_random(&random) % 255);
  assert_done(pen_tokens_open(test_file("t.txt", text, sizeof text),
                              &(struct pen_tokens_options){ 0 }, &tokens));
  assert_done(pen_sequences_create(tokens, &(struct pen_sequences_options){ .max_length = 64 }, &s));
  assert_done(pen_batch_create(16, row(64), &b));
  const uint64_t order[] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 };
  assert_int_equal(pen_sequences_counts(s)->n_sequences, 16);
  assert_done(pen_batch_fill(b, s, order, 16));
  assert_int_equal(b->n_tokens, 999);
  assert_int_equal(b->n_targets, 999);
  for (size_t i = 0; i < 999; i++) {
    assert_int_equal(b->ids[i], text[i]);
    assert_int_equal(b->targets[i], text[i + 1]);
    assert_int_equal(b->positions[i], i % 64);
  }
  assert_int_equal(b->doc_begin[16], 999);
  pen_batch_free(&b);
  pen_sequences_free(&s);
  pen_tokens_close(&tokens);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(one_batch_of_three),
    cmocka_unit_test(too_much_is_refused),
    cmocka_unit_test(a_packed_row),
    cmocka_unit_test(windows_of_one_text),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
