/* checkpoint.c: one folder, filled by the write lane, named when whole.
 *
 * Begin and finish on main, the hooks on the write lane in between.
 * Disadvantage: weights go through the page cache. */
#include "src/train/checkpoint.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "io/hfdir_write.h"

struct pen_checkpoint {
  struct pen_session *session;
  struct pen_hfdir_writer *model;
  struct pen_saved_writer *state; /* NULL: weights only */
};

int pen_checkpoint_begin(struct pen_session *session, const char *path,
                         const char *chat_template,
                         const struct pen_cursor *cursor, uint32_t generation,
                         struct pen_checkpoint **ret_checkpoint)
{
  char file[4096 + 64];
  struct pen_checkpoint *c = calloc(1, sizeof *c);
  if (!c)
    return pen_error_set(PEN_ENOFIT, "no memory for a checkpoint");
  c->session = session;
  int rc = pen_params_create_dir_like(session->params, session->dir,
                                      PEN_FILE_NONE, path, true, &c->model);
  if (rc == 0 && chat_template)
    rc = pen_hfdir_copy_file(c->model, "chat_template.jinja", chat_template);
  snprintf(file, sizeof file, "%s.tmp/" PEN_SAVED_FILE, path);
  if (rc == 0 && cursor)
    rc = pen_saved_create(file, &session->layout, cursor, generation,
                          &c->state);
  if (rc < 0)
    pen_checkpoint_abandon(&c);
  else
    *ret_checkpoint = c;
  return rc;
}

int pen_checkpoint_save_tile(struct pen_checkpoint *c, uint32_t tile,
                             const void *state, const void *half)
{
  return c->state ? pen_saved_put_tile(c->state, tile, state, half) : 0;
}

int pen_checkpoint_save_block(struct pen_checkpoint *c, uint32_t block,
                              const void *weights)
{
  return pen_params_save_block(c->session->params, c->model, block, weights,
                               c->session->elem == PEN_ELEM_BF16
                                   ? PEN_FILE_BF16
                                   : PEN_FILE_F32);
}

int pen_checkpoint_finish(struct pen_checkpoint **checkpoint,
                          const struct pen_store_place *places)
{
  struct pen_checkpoint *c = *checkpoint;
  int rc = 0;
  if (c->state && places)
    rc = pen_saved_put_places(c->state, places);
  if (c->state && rc == 0)
    rc = pen_saved_finish(&c->state);
  if (rc == 0)
    rc = pen_hfdir_commit(&c->model);
  pen_checkpoint_abandon(checkpoint);
  return rc;
}

void pen_checkpoint_abandon(struct pen_checkpoint **checkpoint)
{
  struct pen_checkpoint *c = *checkpoint;
  if (!c)
    return;
  pen_saved_abandon(&c->state);
  pen_hfdir_abandon(&c->model);
  free(c);
  *checkpoint = NULL;
}
