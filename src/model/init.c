/* init.c: random weights, each a function of seed, tensor and place.
 *
 * The stream of a tensor is the 64-bit FNV-1a hash of its name (offset basis
 * 0xcbf29ce484222325, prime 0x100000001b3), which needs no table of streams
 * and does not change when a family gains a tensor.  Disadvantage: log, cos and
 * sin come from the C library, so that another library may differ in the last
 * bit; a run starts from what was written, not from the seed. */
#include "src/model/init.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/rng.h"

static uint64_t stream_of(const char *name)
{
  uint64_t hash = 0xcbf29ce484222325;
  for (; *name; name++)
    hash = (hash ^ (unsigned char)*name) * 0x100000001b3;
  return hash;
}

/* out [n] = elements [first, first + n) of the tensor's normal sequence. */
static void fill_normal(uint64_t seed, uint64_t stream, double std,
                        uint64_t first, size_t n, float *out)
{
  double pair[2];
  for (size_t i = 0; i < n; i++) {
    uint64_t element = first + i;
    if (i == 0 || element % 2 == 0)
      pen_rng_normal_pair(seed, stream, element / 2, pair);
    out[i] = (float)(std * pair[element % 2]);
  }
}

static bool is_norm(enum pen_param_role role)
{
  static const bool norms[PEN_N_ROLES] = {
    [PEN_ROLE_ATTN_NORM] = true,      [PEN_ROLE_Q_NORM] = true,
    [PEN_ROLE_K_NORM] = true,         [PEN_ROLE_ATTN_POST_NORM] = true,
    [PEN_ROLE_MLP_NORM] = true,       [PEN_ROLE_MLP_POST_NORM] = true,
    [PEN_ROLE_FINAL_NORM] = true,
  };
  return norms[role];
}

/* Projections onto the residual stream are smaller in families that say so. */
static double std_of(const struct pen_model_config *c, enum pen_param_role role)
{
  bool is_residual = role == PEN_ROLE_O || role == PEN_ROLE_DOWN;
  if (!is_residual || !c->family->scales_residual_init)
    return c->init_std;
  return c->init_std / sqrt(2 * (double)c->n_layers);
}

static void fill(const struct pen_params *params, uint64_t seed,
                 const struct pen_param *q, uint64_t first, size_t n,
                 float *out)
{
  const struct pen_model_config *c = &params->config;
  const struct pen_param_tensor *t = &params->tensors[q->tensor];
  if (t->rank == 1) {
    for (size_t i = 0; i < n; i++)
      out[i] = is_norm(q->role) ? 1.0f - c->family->norm_w_plus : 0.0f;
    return;
  }
  bool is_table = q->role == PEN_ROLE_EMBED || q->role == PEN_ROLE_HEAD;
  uint64_t valid = is_table ? (uint64_t)c->vocab_size * q->cols
                            : t->shape[0] * t->shape[1];
  size_t n_valid = first >= valid ? 0 : valid - first < n ? valid - first : n;
  fill_normal(seed, stream_of(t->name), std_of(c, q->role), first, n_valid,
              out);
  memset(out + n_valid, 0, (n - n_valid) * sizeof *out);
}

int pen_init_elems(const struct pen_params *params, uint64_t seed,
                   size_t block, size_t begin, size_t n, float *out)
{
  if (block >= params->n_blocks || begin > params->blocks[block].elems ||
      n > params->blocks[block].elems - begin)
    return pen_error_set(-EINVAL, "elements [%zu, +%zu) are not in block %zu",
                         begin, n, block);
  const struct pen_param_block *info = &params->infos[block];
  memset(out, 0, n * sizeof *out); /* the padding */
  for (size_t i = 0; i < info->n_params; i++) {
    const struct pen_param *q = &params->params[info->first_param + i];
    size_t end = q->offset + q->rows * q->cols;
    size_t low = begin > q->offset ? begin : q->offset;
    size_t high = begin + n < end ? begin + n : end;
    if (low < high)
      fill(params, seed, q,
           (uint64_t)q->row_begin * q->cols + (low - q->offset), high - low,
           out + (low - begin));
  }
  return 0;
}
