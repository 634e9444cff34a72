/* stop.c: one flag, set by a signal handler and read by whoever works.
 *
 * Disadvantage: one for the program, which has one verb. */
#include "src/cli/stop.h"

static volatile sig_atomic_t asked;

void pen_stop_default(void)
{
  signal(SIGINT, SIG_DFL);
  signal(SIGTERM, SIG_DFL);
}

static void on_signal(int number)
{
  (void)number;
  asked = 1;
  pen_stop_default();
}

const volatile sig_atomic_t *pen_stop_on_signals(void)
{
  struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, NULL);
  sigaction(SIGTERM, &action, NULL);
  return &asked;
}
