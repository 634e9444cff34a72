/* profile.h: where this machine's profile lies. */
#ifndef PEN_SRC_CLI_PROFILE_H
#define PEN_SRC_CLI_PROFILE_H

#include "offload/machine.h"

/* `wish` (--profile), or machine.json in the user's configuration folder:
 * $XDG_CONFIG_HOME/penstock, else ~/.config/penstock.  -PEN_EUSAGE where there
 * is no home either. */
int pen_profile_path(const char *wish, char *ret_path, size_t bytes);

/* The profile there.  *ret_found false, and 0, where nobody asked for one by
 * name and there is none. */
int pen_profile_load(const char *wish, bool *ret_found,
                     struct pen_machine *ret_machine);

#endif
