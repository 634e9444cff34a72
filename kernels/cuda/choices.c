/* choices.c: which algorithm each shape of product takes: a table in memory, and
 * its lines of text.
 *
 * Entries are added and never changed, so a shape keeps its algorithm, and a run
 * that is resumed from the text has the bits it would have had.  Any one thread
 * at a time.  Disadvantage: found by looking at all of them, some dozens. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "kernels/cuda/state.h"

/* More than the products of a model times the powers of two of tokens. */
#define CHOICES_MAX ((size_t)4096)

const struct pen_cuda_choice *
pen_cuda_choices_find(const struct pen_cuda *cuda,
                      const struct pen_cuda_shape *shape)
{
  for (size_t i = 0; i < cuda->n_choices; i++)
    if (memcmp(&cuda->choices[i].shape, shape, sizeof *shape) == 0)
      return &cuda->choices[i];
  return NULL;
}

const struct pen_cuda_choice *
pen_cuda_choices_add(struct pen_cuda *cuda,
                     const struct pen_cuda_choice *choice)
{
  if (cuda->n_choices == CHOICES_MAX)
    return NULL;
  cuda->choices[cuda->n_choices] = *choice;
  return &cuda->choices[cuda->n_choices++];
}

bool pen_cuda_choices_is_refused(const struct pen_cuda *cuda,
                                 const struct pen_cuda_shape *shape)
{
  for (size_t i = 0; i < cuda->n_refused; i++)
    if (memcmp(&cuda->refused[i], shape, sizeof *shape) == 0)
      return true;
  return false;
}

void pen_cuda_choices_refuse(struct pen_cuda *cuda,
                             const struct pen_cuda_shape *shape)
{
  if (cuda->n_refused < CHOICES_MAX)
    cuda->refused[cuda->n_refused++] = *shape;
}

static const char *elem_name(uint8_t elem)
{
  return elem == PEN_ELEM_BF16 ? "bf16" : "fp32";
}

#define NUMBERS "%" PRIu64 " %" PRIu64 " %" PRIu64

void pen_cuda_choices_write(const struct pen_cuda_choice *choice,
                            char ret_line[PEN_BACKEND_CHOICE_BYTES])
{
  const struct pen_cuda_shape *s = &choice->shape;
  int at = snprintf(ret_line, PEN_BACKEND_CHOICE_BYTES,
                    "%s %s %c%c%c%s " NUMBERS " " NUMBERS " %u %u %u",
                    elem_name(s->ab_elem), elem_name(s->c_elem),
                    s->a_trans ? 't' : 'n', s->b_trans ? 't' : 'n',
                    s->accumulate ? '+' : '=', s->bias ? "b" : "", s->m, s->n,
                    s->k, s->lda, s->ldb, s->ldc, s->a_align, s->b_align,
                    s->c_align);
  for (int i = 0; i < 8; i++)
    at += snprintf(ret_line + at, PEN_BACKEND_CHOICE_BYTES - (size_t)at,
                   " %016" PRIx64, choice->algorithm[i]);
}

static bool parse_elem(const char *text, uint8_t *ret_elem)
{
  *ret_elem = strcmp(text, "bf16") == 0 ? PEN_ELEM_BF16 : PEN_ELEM_F32;
  return strcmp(text, elem_name(*ret_elem)) == 0;
}

int pen_cuda_choices_parse(const char *line, struct pen_cuda_choice *ret_choice)
{
  struct pen_cuda_choice c;
  struct pen_cuda_shape *s = &c.shape;
  uint64_t *a = c.algorithm;
  char ab[8], result[8], how[5];
  int end = -1;
  memset(&c, 0, sizeof c);
  int n = sscanf(line,
                 "%7s %7s %4s %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64
                 " %" SCNu64 " %" SCNu64 " %" SCNu8 " %" SCNu8 " %" SCNu8
                 " %" SCNx64 " %" SCNx64 " %" SCNx64 " %" SCNx64 " %" SCNx64
                 " %" SCNx64 " %" SCNx64 " %" SCNx64 "%n",
                 ab, result, how, &s->m, &s->n, &s->k, &s->lda, &s->ldb,
                 &s->ldc, &s->a_align, &s->b_align, &s->c_align, &a[0], &a[1],
                 &a[2], &a[3], &a[4], &a[5], &a[6], &a[7], &end);
  if (n != 20 || end < 0 || line[end] || strlen(how) < 3 ||
      (how[3] && how[3] != 'b') ||
      !parse_elem(ab, &s->ab_elem) || !parse_elem(result, &s->c_elem))
    return pen_cuda_error_set(PEN_EFORMAT, "\"%.60s\" is no algorithm of a "
                              "product", line);
  s->a_trans = how[0] == 't';
  s->b_trans = how[1] == 't';
  s->accumulate = how[2] == '+';
  s->bias = how[3] == 'b';
  *ret_choice = c;
  return 0;
}

int pen_cuda_choices_open(struct pen_cuda *cuda)
{
  cuda->choices = calloc(CHOICES_MAX, sizeof *cuda->choices);
  cuda->refused = calloc(CHOICES_MAX, sizeof *cuda->refused);
  return cuda->choices && cuda->refused
             ? 0
             : pen_cuda_error_set(PEN_ENOFIT, "no memory for a table of products");
}

void pen_cuda_choices_close(struct pen_cuda *cuda)
{
  free(cuda->choices);
  free(cuda->refused);
  cuda->choices = NULL;
  cuda->refused = NULL;
  cuda->n_choices = cuda->n_refused = 0;
}
