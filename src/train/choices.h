/* choices.h: multiple choice by log-likelihood: of the ways a prompt may go on,
 * which one does the model find likeliest, and is it the right one? */
#ifndef PEN_SRC_TRAIN_CHOICES_H
#define PEN_SRC_TRAIN_CHOICES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pen_choices;

/* One question, all its choices seen. */
struct pen_choices_question {
  uint64_t number;          /* from 0 */
  size_t answer, n_choices;
  const double *logprobs;   /* [n_choices], summed over each one's tokens */
  bool right;      /* the answer has the greatest, the first of equals counting */
  bool right_norm; /* the same of logprobs / characters of the choice */
};

/* As the lm-evaluation-harness has them: shares of right answers, and the
 * standard errors of these means. */
struct pen_choices_result {
  uint64_t n_questions;
  double acc, acc_stderr, acc_norm, acc_norm_stderr;
};

/* Reads what penstock-prepare --choices wrote: {"questions": [{"answer": 1,
 * "lengths": [5, 7]}, ...]}.  Caller owns *ret_choices. */
int pen_choices_open(const char *path, struct pen_choices **ret_choices);
void pen_choices_close(struct pen_choices **choices);

/* Documents are choices, question after question.  Takes the loss of the next
 * one; *ret_question is filled (logprobs borrowed until the next call) and
 * *ret_whole true when it was the last of a question.  -PEN_EMISMATCH where
 * `document` is not the next one. */
int pen_choices_add(struct pen_choices *choices, uint64_t document,
                    double loss_sum, struct pen_choices_question *ret_question,
                    bool *ret_whole);

/* After the last; -PEN_EMISMATCH where some are missing. */
int pen_choices_result(const struct pen_choices *choices,
                       struct pen_choices_result *ret_result);

#endif
