/* stop.h: Ctrl-C and SIGTERM ask a verb to stop where that leaves nothing half
 * done. */
#ifndef PEN_SRC_CLI_STOP_H
#define PEN_SRC_CLI_STOP_H

#include <signal.h>

/* From now on the first of these signals sets what is returned to 1; the next
 * one ends the program at once.  Main thread. */
const volatile sig_atomic_t *pen_stop_on_signals(void);
/* From now on they end the program again, and with it the folder `dir` of plain
 * files, at most PEN_STOP_FILES_MAX of them, if there is one. */
void pen_stop_ends(const char *dir);
#define PEN_STOP_FILES_MAX 8

#endif
