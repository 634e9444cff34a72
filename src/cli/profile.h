/* profile.h: where this machine's profile lies, and what-if machines. */
#ifndef PEN_SRC_CLI_PROFILE_H
#define PEN_SRC_CLI_PROFILE_H

#include "offload/machine.h"
#include "src/cli/config.h"
#include "src/train/settings.h"

/* `wish` (--profile), or machine.json in the user's configuration folder:
 * $XDG_CONFIG_HOME/penstock, else ~/.config/penstock.  -PEN_EUSAGE where there
 * is no home either. */
int pen_profile_path(const char *wish, char *ret_path, size_t bytes);

/* The profile there.  *ret_found false, and 0, where nobody asked for one by
 * name and there is none. */
int pen_profile_load(const char *wish, bool *ret_found,
                     struct pen_machine *ret_machine);

/* The same with the parts that options describe put in: into the profile or,
 * where there is none, into a desktop (offload/describe.h). */
int pen_profile_described(const struct pen_config *config, bool *ret_found,
                          struct pen_machine *ret_machine);
/* A described machine's memories, device and drives instead of this one's. */
void pen_profile_settings(const struct pen_config *config,
                          const struct pen_machine *machine,
                          struct pen_machine_settings *settings);

#endif
