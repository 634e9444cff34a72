/* inference.h: a session that only runs forward, its weights in RAM or, where
 * they do not fit or are asked to, on drives, streamed by the schedule that
 * training has. */
#ifndef PEN_SRC_TRAIN_INFERENCE_H
#define PEN_SRC_TRAIN_INFERENCE_H

#include <signal.h>

#include "io/store.h"
#include "src/train/session.h"

struct pen_inference {
  struct pen_session session;
  struct pen_store *store;         /* NULL: nothing on drives */
  char *dirs[PEN_STORE_DIRS_MAX];  /* of the store: DIR/penstock-forward */
};

/* As pen_session_open, for inference.  After any return pen_inference_close is
 * right. */
int pen_inference_open(struct pen_inference *inference,
                       const struct pen_model_settings *model,
                       const struct pen_machine_settings *machine,
                       const struct pen_session_shape *shape,
                       size_t max_length);

/* Takes the memory, the drives' space too, and loads the weights; -PEN_ESTOPPED
 * once *stop is not 0 (NULL: never).  With `ends_steps` that ends a step too, and
 * nothing is left to do then but to close. */
int pen_inference_start(struct pen_inference *inference,
                        const volatile sig_atomic_t *stop, bool ends_steps);

/* Frees all and removes what it put on drives. */
void pen_inference_close(struct pen_inference *inference);

#endif
