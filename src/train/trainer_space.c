/* trainer_space.c: room on drives, asked for before anything is written.
 *
 * Main thread.  Disadvantage: free space is looked at, not taken: another
 * program may use it up before a checkpoint does. */
#include <inttypes.h>
#include <stdio.h>

#include "base/error.h"
#include "base/size.h"
#include "io/files.h"
#include "src/train/trainer.h"

int pen_trainer_check_stores(struct pen_trainer *t)
{
  uint64_t state =
      (uint64_t)pen_trainer_extents(t) * t->session.layout.tile_bytes;
  uint64_t bytes = state + t->session.layout.tier_bytes[PEN_TIER_NVME];
  char need[PEN_SIZE_TEXT_BYTES], allowed[PEN_SIZE_TEXT_BYTES];
  pen_memory_add(&t->session.memory, "optimizer state, copy-on-write",
                 PEN_TIER_NVME, state);
  if (!t->set.machine.nvme_bytes || bytes <= t->set.machine.nvme_bytes)
    return 0;
  pen_size_format(bytes, need);
  pen_size_format(t->set.machine.nvme_bytes, allowed);
  return pen_error_set(PEN_ENOFIT,
                       "does not fit: state needs %s under --nvme-path, "
                       "--nvme-memory allows %s: %" PRIu64 " bytes too few",
                       need, allowed, bytes - t->set.machine.nvme_bytes);
}

uint64_t pen_trainer_model_bytes(const struct pen_trainer *t)
{
  const struct pen_session *s = &t->session;
  uint64_t bytes = 0;
  if (!s->dir) /* only planned: as if kept in what is computed */
    return s->params->n_elems * pen_elem_bytes(s->elem);
  for (size_t i = 0; i < pen_hfdir_n_shards(s->dir); i++)
    bytes += pen_hfdir_shard_bytes(s->dir, i);
  return bytes;
}

uint64_t pen_trainer_checkpoint_bytes(const struct pen_trainer *t)
{
  const struct pen_layout *l = &t->session.layout;
  uint64_t bytes = pen_trainer_model_bytes(t);
  for (size_t i = 0; i < l->n_tiles; i++)
    if (l->tiles[i].store_tile == UINT32_MAX)
      bytes += pen_layout_image_bytes(l, &l->tiles[i]);
  return bytes;
}

static int check_output(struct pen_trainer *t)
{
  uint64_t steps[1024], saves = 0, there = 0;
  uint64_t model = pen_trainer_model_bytes(t);
  if (t->set.save_steps)
    saves = t->n_steps / t->set.save_steps;
  /* One more than is kept: the oldest goes only when the newest is whole. */
  if (t->set.save_total_limit && saves > t->set.save_total_limit + 1)
    saves = t->set.save_total_limit + 1;
  if (t->resumes)
    there = pen_rundir_checkpoints(&t->rundir, steps, 1024);
  saves = saves > there ? saves - there : 0;
  char what[64];
  snprintf(what, sizeof what, "the model with %" PRIu64 " checkpoints", saves);
  return pen_files_check_room(
      t->set.output_dir, model + saves * pen_trainer_checkpoint_bytes(t), what,
      "lower --save-total-limit or choose another --output-dir");
}

int pen_trainer_check_space(struct pen_trainer *t)
{
  int rc = pen_trainer_check_stores(t);
  return rc < 0 ? rc : check_output(t);
}
