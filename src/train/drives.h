/* drives.h: which of a profile's drives a run would use. */
#ifndef PEN_SRC_TRAIN_DRIVES_H
#define PEN_SRC_TRAIN_DRIVES_H

#include "offload/machine.h"
#include "src/train/settings.h"

/* Leaves in *machine one drive per directory of `settings`: the one measured on
 * its file system or, in a described machine, the n-th; directories on one drive
 * share it.  -PEN_EUSAGE where the profile says nothing of a directory's
 * drive. */
int pen_drives_choose(const struct pen_machine_settings *settings,
                      struct pen_machine *machine);

/* [PEN_MACHINE_DRIVES_MAX]: what stands for the directories of drives that are
 * only described. */
const char *const *pen_drives_names(void);

#endif
