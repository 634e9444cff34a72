/* sample.h: one token out of the logits of a vocabulary. */
#ifndef PEN_SRC_TRAIN_SAMPLE_H
#define PEN_SRC_TRAIN_SAMPLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pen_sampling {
  bool greedy;        /* the most likely token, the first of equals */
  double temperature; /* else drawn from softmax(logits / temperature), */
  uint64_t top_k;     /* of the k most likely and what equals the last of them;
                         0: of all, */
  double top_p;       /* of which the fewest that together have at least this
                         probability; 1: all */
  uint64_t seed;
};

/* A token that may be drawn; workspace of pen_sample. */
struct pen_sample_choice {
  float logit;
  uint32_t id;
};

/* The token for place `place` of its document: one number of the seed's
 * sequence, so that the same logits give the same token whatever was drawn
 * before.  choices: workspace [n]. */
uint32_t pen_sample(const struct pen_sampling *how, const float *logits,
                    size_t n, uint64_t place,
                    struct pen_sample_choice *choices);

#endif
