/* stop.c: one flag, set by a signal handler and read by whoever works; and a
 * folder that goes with the program where nobody reads flags.
 *
 * Disadvantage: one for the program, which has one verb. */
#include "src/cli/stop.h"

#include <dirent.h>
#include <stdio.h>
#include <unistd.h>

static volatile sig_atomic_t asked;

/* What goes: paths, made while no handler runs. */
static char folder[4096], files[PEN_STOP_FILES_MAX][4096 + 256];
static size_t n_files;

static void on_signal(int number)
{
  (void)number;
  __atomic_store_n(&asked, 1, __ATOMIC_RELAXED); /* threads look at it, too */
  signal(SIGINT, SIG_DFL);
  signal(SIGTERM, SIG_DFL);
}

/* Calls nothing that a signal handler may not. */
static void on_end(int number)
{
  for (size_t i = 0; i < n_files; i++)
    unlink(files[i]);
  rmdir(folder);
  signal(number, SIG_DFL);
  raise(number);
}

static void handle(void (*handler)(int))
{
  struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, NULL);
  sigaction(SIGTERM, &action, NULL);
}

const volatile sig_atomic_t *pen_stop_on_signals(void)
{
  handle(on_signal);
  return &asked;
}

void pen_stop_ends(const char *dir)
{
  handle(SIG_DFL);
  DIR *listed = opendir(dir);
  struct dirent *entry;
  snprintf(folder, sizeof folder, "%s", dir);
  n_files = 0;
  while (listed && n_files < PEN_STOP_FILES_MAX && (entry = readdir(listed)))
    if (entry->d_name[0] != '.')
      snprintf(files[n_files++], sizeof files[0], "%s/%s", folder,
               entry->d_name);
  if (!listed)
    return;
  closedir(listed);
  handle(on_end);
}
