/* params_dir.c: the parameter table and a model directory: binding names,
 * loading element ranges, and saving them under the same names.
 *
 * Invariant: every tensor of the directory is accounted for, and so is every
 * row of the table; nothing is ever made up.  Loading may run in any thread;
 * saving in one.  Disadvantage: a tied head stored twice is read in full once,
 * to compare. */
#include "src/model/params.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "io/hfdir.h"
#include "io/hfdir_write.h"

#define COMPARE_BYTES ((size_t)1 << 20)

/* Tensors that files hold and that we, as the library that wrote them,
 * compute. */
static bool is_buffer(const struct pen_params *p, const char *name)
{
  const char *const *pattern = p->config.family->names->buffers;
  size_t prefix = strlen(p->prefix);
  if (!pattern || strncmp(name, p->prefix, prefix) != 0)
    return false;
  for (; *pattern; pattern++) {
    const char *a = *pattern, *b = name + prefix;
    while (*a && *b && (*a == '#' || *a == *b)) {
      if (*a == '#')
        b += strspn(b, "0123456789");
      else
        b++;
      a++;
    }
    if (!*a && !*b)
      return true;
  }
  return false;
}

/* text [cap] = "[32000, 64]". */
static const char *shape_text(size_t rank, const uint64_t *shape, char *text,
                              size_t cap)
{
  size_t used = (size_t)snprintf(text, cap, "[");
  for (size_t d = 0; d < rank && used < cap; d++)
    used += (size_t)snprintf(text + used, cap - used, "%s%" PRIu64,
                             d ? ", " : "", shape[d]);
  if (used < cap)
    snprintf(text + used, cap - used, "]");
  return text;
}

static int refuse_shape(const struct pen_hfdir *dir, const char *name,
                        const struct pen_hfdir_tensor *found, size_t rank,
                        const uint64_t *shape)
{
  char is[96], must[96];
  return pen_error_set(-PEN_EMISMATCH,
                       "%s: tensor %s has shape %s, config.json asks for %s",
                       pen_hfdir_path(dir), name,
                       shape_text(found->rank, found->shape, is, sizeof is),
                       shape_text(rank, shape, must, sizeof must));
}

/* The embedding's place in the files; and the prefix of the names there. */
static int find_embed(const struct pen_model_config *c,
                      const struct pen_hfdir *dir, const char **ret_prefix,
                      size_t *ret_embed)
{
  const struct pen_family_names *names = c->family->names;
  char name[128];
  snprintf(name, sizeof name, "%s%s", names->prefix, names->embed);
  size_t i = pen_hfdir_find(dir, name);
  *ret_prefix = names->prefix;
  if (i == SIZE_MAX && names->may_lack_prefix) {
    i = pen_hfdir_find(dir, names->embed);
    *ret_prefix = i == SIZE_MAX ? names->prefix : "";
  }
  if (i == SIZE_MAX)
    return pen_error_set(-PEN_EMISMATCH, "%s: tensor %s is missing",
                         pen_hfdir_path(dir), name);
  *ret_embed = i;
  return 0;
}

/* Rows of the embedding as stored: at least vocab_size, for padded ones. */
static int find_vocab_rows(const struct pen_model_config *c,
                           const struct pen_hfdir *dir, size_t embed,
                           size_t *ret_rows)
{
  const struct pen_hfdir_tensor *t = pen_hfdir_tensor(dir, embed);
  uint64_t must[2] = {c->vocab_size, c->hidden_size};
  if (t->rank != 2 || t->shape[1] != must[1] || t->shape[0] < must[0] ||
      t->shape[0] > SIZE_MAX / 2 / must[1])
    return refuse_shape(dir, t->name, t, 2, must);
  *ret_rows = t->shape[0];
  return 0;
}

/* Whether two tensors hold the same bytes in the same format. */
static int compare_tensors(const struct pen_hfdir *dir, size_t i, size_t j,
                           bool *ret_same)
{
  const struct pen_hfdir_tensor *a = pen_hfdir_tensor(dir, i),
                                *b = pen_hfdir_tensor(dir, j);
  bool same = a->dtype == b->dtype && a->bytes == b->bytes;
  char *buffer = malloc(2 * COMPARE_BYTES);
  if (!buffer)
    return pen_error_set(-ENOMEM, "cannot compare %s and %s", a->name, b->name);
  int rc = 0;
  for (uint64_t at = 0; same && at < a->bytes && !rc; at += COMPARE_BYTES) {
    size_t n = a->bytes - at < COMPARE_BYTES ? a->bytes - at : COMPARE_BYTES;
    rc = pen_hfdir_read_bytes(dir, i, at, n, buffer);
    if (!rc)
      rc = pen_hfdir_read_bytes(dir, j, at, n, buffer + COMPARE_BYTES);
    same = !rc && !memcmp(buffer, buffer + COMPARE_BYTES, n);
  }
  free(buffer);
  if (!rc)
    *ret_same = same;
  return rc;
}

/* F5, F6: is the model tied, and does the file hold the head all the same? */
static int decide_tie(struct pen_model_config *c, const struct pen_hfdir *dir,
                      size_t embed, bool untie, bool *ret_head_is_copy)
{
  size_t head = pen_hfdir_find(dir, PEN_PARAMS_HEAD_NAME);
  *ret_head_is_copy = false;
  if (!c->tied && head == SIZE_MAX)
    return pen_error_set(-PEN_EMISMATCH,
                         "%s: tensor " PEN_PARAMS_HEAD_NAME " is missing and config.json "
                         "does not tie it to the embedding "
                         "(tie_word_embeddings)", pen_hfdir_path(dir));
  if (!c->tied)
    return 0;
  if (untie && head == SIZE_MAX)
    return pen_error_set(-PEN_EMISMATCH,
                         "%s: --untie needs a " PEN_PARAMS_HEAD_NAME " of its own in the "
                         "files, there is none", pen_hfdir_path(dir));
  if (head == SIZE_MAX)
    return 0;
  if (untie) {
    c->tied = false;
    return 0;
  }
  bool same = false;
  int rc = compare_tensors(dir, embed, head, &same);
  if (!rc && !same)
    rc = pen_error_set(-PEN_EMISMATCH,
                       "%s: config.json ties head and embedding, but "
                       PEN_PARAMS_HEAD_NAME " differs from %s; --untie trains them "
                       "apart", pen_hfdir_path(dir),
                       pen_hfdir_tensor(dir, embed)->name);
  *ret_head_is_copy = !rc;
  return rc;
}

static int bind_tensor(struct pen_param_tensor *t, const struct pen_hfdir *dir,
                       bool *used)
{
  size_t i = pen_hfdir_find(dir, t->name);
  if (i == SIZE_MAX)
    return pen_error_set(-PEN_EMISMATCH, "%s: tensor %s is missing",
                         pen_hfdir_path(dir), t->name);
  const struct pen_hfdir_tensor *found = pen_hfdir_tensor(dir, i);
  if (found->rank != t->rank || found->shape[0] != t->shape[0] ||
      (t->rank == 2 && found->shape[1] != t->shape[1]))
    return refuse_shape(dir, t->name, found, t->rank, t->shape);
  if (found->dtype != PEN_FILE_BF16 && found->dtype != PEN_FILE_F16 &&
      found->dtype != PEN_FILE_F32 && found->dtype != PEN_FILE_F64)
    return pen_error_set(-PEN_EUNSUPPORTED,
                         "%s: tensor %s is stored as %s; BF16, F16, F32 and "
                         "F64 weights are read", pen_hfdir_path(dir), t->name,
                         pen_file_dtype_name(found->dtype));
  t->dir_index = i;
  used[i] = true;
  return 0;
}

/* Appends what is no parameter: the tied head's second name, and buffers. */
static int append_tensor(struct pen_params *p, struct pen_param_tensor tensor,
                         const char *name, size_t i)
{
  struct pen_param_tensor *grown =
      realloc(p->tensors, (p->n_tensors + 1) * sizeof *grown);
  if (grown)
    p->tensors = grown;
  tensor.name = strdup(name);
  if (!grown || !tensor.name) {
    free((char *)tensor.name);
    return pen_error_set(-ENOMEM, "cannot hold the parameter table");
  }
  tensor.n_params = 0;
  tensor.dir_index = i;
  p->tensors[p->n_tensors++] = tensor;
  return 0;
}

static int append_head_copy(struct pen_params *p, size_t i)
{
  size_t head = p->params[p->infos[p->head_begin].first_param].tensor;
  int rc = append_tensor(p, p->tensors[head], PEN_PARAMS_HEAD_NAME, i);
  if (!rc)
    p->head_copy = p->n_tensors - 1;
  return rc;
}

static int append_buffer(struct pen_params *p, const char *name, size_t i)
{
  struct pen_param_tensor buffer = {.role = PEN_ROLE_BUFFER, .layer = SIZE_MAX};
  return append_tensor(p, buffer, name, i);
}

/* F12: every tensor of the files is a parameter or a known buffer, or has no
 * elements: such a one holds nothing to train. */
static int account_for_rest(struct pen_params *p, const struct pen_hfdir *dir,
                            const bool *used)
{
  for (size_t i = 0; i < pen_hfdir_n_tensors(dir); i++) {
    const char *name = pen_hfdir_tensor(dir, i)->name;
    if (used[i] || pen_hfdir_tensor(dir, i)->bytes == 0)
      continue;
    if (!is_buffer(p, name))
      return pen_error_set(-PEN_EMISMATCH,
                           "%s: tensor %s would not be used by a %s model with "
                           "this config.json; training without it would drop "
                           "it", pen_hfdir_path(dir), name,
                           p->config.family->model_type);
    int rc = append_buffer(p, name, i);
    if (rc)
      return rc;
  }
  return 0;
}

static int bind_all(struct pen_params *p, const struct pen_hfdir *dir,
                    bool head_is_copy)
{
  bool *used = calloc(pen_hfdir_n_tensors(dir) + 1, sizeof *used);
  if (!used)
    return pen_error_set(-ENOMEM, "cannot hold the parameter table");
  int rc = 0;
  for (size_t i = 0; i < p->n_tensors && !rc; i++)
    rc = bind_tensor(&p->tensors[i], dir, used);
  if (!rc && head_is_copy) {
    size_t head = pen_hfdir_find(dir, PEN_PARAMS_HEAD_NAME);
    used[head] = true;
    rc = append_head_copy(p, head);
  }
  if (!rc)
    rc = account_for_rest(p, dir, used);
  free(used);
  return rc;
}

int pen_params_open(const struct pen_model_config *config,
                    const struct pen_hfdir *dir, size_t head_rows, bool untie,
                    struct pen_params **ret_params)
{
  struct pen_model_config c = *config;
  struct pen_params *p = NULL;
  size_t vocab_rows = 0, embed = 0;
  const char *prefix = NULL;
  bool head_is_copy = false;
  int rc = find_embed(&c, dir, &prefix, &embed);
  if (!rc)
    rc = find_vocab_rows(&c, dir, embed, &vocab_rows);
  if (!rc)
    rc = decide_tie(&c, dir, embed, untie, &head_is_copy);
  if (!rc)
    rc = pen_params_build_named(&c, prefix, head_rows, vocab_rows, &p);
  if (!rc)
    rc = bind_all(p, dir, head_is_copy);
  if (rc) {
    pen_params_free(&p);
    return rc;
  }
  *ret_params = p;
  return 0;
}

/* The part of [begin, begin + n) of a block that lies in one parameter. */
struct part {
  const struct pen_param *param;
  size_t at;          /* index into the caller's n elements */
  size_t n;           /* elements; 0: none */
  uint64_t in_tensor; /* first element within the tensor */
};

static struct part overlap(const struct pen_param *q, size_t begin, size_t n)
{
  size_t q_end = q->offset + q->rows * q->cols;
  size_t low = begin > q->offset ? begin : q->offset;
  size_t high = begin + n < q_end ? begin + n : q_end;
  struct part part = {.param = q};
  if (low < high) {
    part.at = low - begin;
    part.n = high - low;
    part.in_tensor = (uint64_t)q->row_begin * q->cols + (low - q->offset);
  }
  return part;
}

static int check_range(const struct pen_params *params, size_t block,
                       size_t begin, size_t n)
{
  if (block >= params->n_blocks || begin > params->blocks[block].elems ||
      n > params->blocks[block].elems - begin)
    return pen_error_set(-EINVAL, "elements [%zu, +%zu) are not in block %zu",
                         begin, n, block);
  return 0;
}

int pen_params_load_elems(const struct pen_params *params,
                          const struct pen_hfdir *dir, size_t block,
                          size_t begin, size_t n, float *out)
{
  int rc = check_range(params, block, begin, n);
  if (rc)
    return rc;
  const struct pen_param_block *info = &params->infos[block];
  size_t done = 0; /* elements of out that are set */
  for (size_t i = 0; i < info->n_params && !rc; i++) {
    struct part part =
        overlap(&params->params[info->first_param + i], begin, n);
    if (!part.n)
      continue;
    memset(out + done, 0, (part.at - done) * sizeof *out);
    rc = pen_hfdir_read_elems(
        dir, params->tensors[part.param->tensor].dir_index, part.in_tensor,
        part.n, PEN_FILE_F32, out + part.at);
    done = part.at + part.n;
  }
  if (!rc && done < n)
    memset(out + done, 0, (n - done) * sizeof *out);
  return rc;
}

/* Writes one part under one tensor's name. */
static int save_part(const struct pen_params *params,
                     struct pen_hfdir_writer *writer, size_t tensor,
                     struct part part, const void *w,
                     enum pen_file_dtype dtype)
{
  const char *name = params->tensors[tensor].name;
  size_t i = pen_hfdir_writer_find(writer, name);
  if (i == SIZE_MAX)
    return pen_error_set(-PEN_EMISMATCH,
                         "tensor %s is not in the directory being written",
                         name);
  return pen_hfdir_write_elems(
      writer, i, part.in_tensor, part.n,
      (const char *)w + part.at * pen_file_dtype_bytes(dtype), dtype);
}

int pen_params_save_elems(const struct pen_params *params,
                          struct pen_hfdir_writer *writer, size_t block,
                          size_t begin, size_t n, const void *w,
                          enum pen_file_dtype dtype)
{
  int rc = check_range(params, block, begin, n);
  if (rc)
    return rc;
  const struct pen_param_block *info = &params->infos[block];
  for (size_t i = 0; i < info->n_params && !rc; i++) {
    struct part part =
        overlap(&params->params[info->first_param + i], begin, n);
    if (!part.n)
      continue;
    rc = save_part(params, writer, part.param->tensor, part, w, dtype);
    if (!rc && part.param->role == PEN_ROLE_HEAD &&
        params->head_copy != SIZE_MAX)
      rc = save_part(params, writer, params->head_copy, part, w, dtype);
  }
  return rc;
}

int pen_params_save_block(const struct pen_params *params,
                          struct pen_hfdir_writer *writer, size_t block,
                          const void *w, enum pen_file_dtype dtype)
{
  return pen_params_save_elems(params, writer, block, 0,
                               params->blocks[block].elems, w, dtype);
}
