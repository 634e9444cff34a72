/* choices.c: counts right answers, question by question.
 *
 * Main thread.  Disadvantage: the list of questions is read whole. */
#include "src/train/choices.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "base/error.h"
#include "io/json.h"

struct pen_choices {
  struct pen_json *json;
  const struct pen_json_node *questions;
  uint64_t n_questions, n_documents; /* finished, taken */
  uint64_t n_right, n_right_norm;
  size_t n_taken;   /* choices of the current question */
  double *logprobs; /* [most choices of any] */
  double *lengths;
};

static const struct pen_json_node *lengths_of(const struct pen_choices *c,
                                              size_t question)
{
  return pen_json_member(pen_json_item(c->questions, question), "lengths");
}

int pen_choices_open(const char *path, struct pen_choices **ret_choices)
{
  struct pen_choices *c = calloc(1, sizeof *c);
  size_t most = 1;
  if (!c)
    return pen_error_set(PEN_ENOFIT, "no memory for questions");
  int rc = pen_json_load(path, &c->json);
  if (rc == 0)
    rc = pen_json_get_array(c->json, pen_json_root(c->json), "questions",
                            &c->questions);
  for (size_t q = 0; rc == 0 && q < pen_json_size(c->questions); q++) {
    size_t n = pen_json_size(lengths_of(c, q));
    if (n < 2)
      rc = pen_error_set(PEN_EFORMAT, "%s: question %zu has %zu choices", path,
                         q, n);
    most = n > most ? n : most;
  }
  if (rc == 0) {
    c->logprobs = calloc(most, sizeof *c->logprobs);
    c->lengths = calloc(most, sizeof *c->lengths);
    if (!c->logprobs || !c->lengths)
      rc = pen_error_set(PEN_ENOFIT, "no memory for %zu choices", most);
  }
  if (rc < 0)
    pen_choices_close(&c);
  else
    *ret_choices = c;
  return rc;
}

void pen_choices_close(struct pen_choices **choices)
{
  if (*choices) {
    pen_json_free(&(*choices)->json);
    free((*choices)->logprobs);
    free((*choices)->lengths);
  }
  free(*choices);
  *choices = NULL;
}

/* The greatest of x / by, the first of equals. */
static size_t greatest(const double *x, const double *by, size_t n)
{
  size_t best = 0;
  for (size_t i = 1; i < n; i++)
    if (x[i] / (by ? by[i] : 1) > x[best] / (by ? by[best] : 1))
      best = i;
  return best;
}

int pen_choices_add(struct pen_choices *choices, uint64_t document,
                    double loss_sum, struct pen_choices_question *ret_question,
                    bool *ret_whole)
{
  struct pen_choices *c = choices;
  const struct pen_json_node *lengths = lengths_of(c, c->n_questions);
  size_t n = pen_json_size(lengths), answer;
  if (document != c->n_documents || n == 0)
    return pen_error_set(PEN_EMISMATCH, "document %" PRIu64 " is none of the "
                         "choices", document);
  int rc = pen_json_as_double(c->json, pen_json_item(lengths, c->n_taken),
                              &c->lengths[c->n_taken]);
  if (rc == 0)
    rc = pen_json_get_size(c->json,
                           pen_json_item(c->questions, c->n_questions),
                           "answer", &answer);
  if (rc < 0)
    return rc;
  c->logprobs[c->n_taken++] = -loss_sum;
  c->n_documents++;
  *ret_whole = c->n_taken == n;
  if (!*ret_whole)
    return 0;
  *ret_question = (struct pen_choices_question){
      .number = c->n_questions,
      .answer = answer,
      .n_choices = n,
      .logprobs = c->logprobs,
      .right = greatest(c->logprobs, NULL, n) == answer,
      .right_norm = greatest(c->logprobs, c->lengths, n) == answer};
  c->n_right += ret_question->right;
  c->n_right_norm += ret_question->right_norm;
  c->n_questions++;
  c->n_taken = 0;
  return 0;
}

/* Of the mean of n zeros and ones. */
static double standard_error(double mean, double n)
{
  return n > 1 ? sqrt(mean * (1 - mean) / (n - 1)) : 0;
}

int pen_choices_result(const struct pen_choices *choices,
                       struct pen_choices_result *ret_result)
{
  uint64_t all = pen_json_size(choices->questions);
  double n = (double)choices->n_questions;
  if (choices->n_questions != all || all == 0)
    return pen_error_set(PEN_EMISMATCH, "%" PRIu64 " of %" PRIu64 " questions "
                         "were scored", choices->n_questions, all);
  struct pen_choices_result r = {.n_questions = all,
                                 .acc = (double)choices->n_right / n,
                                 .acc_norm = (double)choices->n_right_norm / n};
  r.acc_stderr = standard_error(r.acc, n);
  r.acc_norm_stderr = standard_error(r.acc_norm, n);
  *ret_result = r;
  return 0;
}
