/* Running penstock-prepare.
 *
 * Main thread, before training.  The child's standard input and output are
 * /dev/null; its standard error is a pipe, whose lines are its word to the user,
 * and the last one the reason where it fails.  It is told to end (SIGTERM) when
 * the thread that started it is gone, killed or not.
 *
 * Disadvantage: no progress is shown while the tool runs; its words are passed
 * on when it has ended. */
#include "src/data/prepare.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"

#define TOOL "penstock-prepare"
#define MOST_ARGUMENTS 64
#define LINE_BYTES 2048
#define WORDS_BYTES 8192
#define STOP_POLL_MS 100

static int not_found(void)
{
  return pen_error_say(-ENOENT, "text is turned into tokens by " TOOL ", which is not "
                       "installed: run tools/setup, or pip install ./prepare, or name it in "
                       "$PENSTOCK_PREPARE");
}

/* `folder`/.venv/bin/TOOL for the program's folder and each one above it. */
static bool find_beside_program(char *ret_path, size_t path_bytes)
{
  char folder[PATH_MAX];
  ssize_t n = readlink("/proc/self/exe", folder, sizeof folder - 1);

  if (n <= 0)
    return false;
  folder[n] = 0;
  for (char *slash; (slash = strrchr(folder, '/'));) {
    *slash = 0;
    int length = snprintf(ret_path, path_bytes, "%s/.venv/bin/" TOOL, folder);
    if (length > 0 && (size_t)length < path_bytes && access(ret_path, X_OK) == 0)
      return true;
  }
  return false;
}

static bool find_on_path(char *ret_path, size_t path_bytes)
{
  const char *at = getenv("PATH");

  while (at && *at) {
    size_t n = strcspn(at, ":");
    int length = snprintf(ret_path, path_bytes, "%.*s/" TOOL, (int)n, at);
    if (n && length > 0 && (size_t)length < path_bytes && access(ret_path, X_OK) == 0)
      return true;
    at += n + (at[n] == ':');
  }
  return false;
}

int pen_prepare_find(char *ret_path, size_t path_bytes)
{
  const char *named = getenv("PENSTOCK_PREPARE");

  if (named && *named) {
    if (access(named, X_OK) < 0)
      return pen_error_set(-errno, "$PENSTOCK_PREPARE names %s, which cannot be run", named);
    if (snprintf(ret_path, path_bytes, "%s", named) >= (int)path_bytes)
      return pen_error_set(-ENAMETOOLONG, "$PENSTOCK_PREPARE is too long");
    return 0;
  }
  if (find_beside_program(ret_path, path_bytes) || find_on_path(ret_path, path_bytes))
    return 0;
  return not_found();
}

/* What the tool said on standard error. */
struct words {
  char all[WORDS_BYTES];  /* lines that are not empty, "\n" between; the first ones */
  char last[LINE_BYTES];  /* of them, whether or not it is in `all` */
};

static void line_add(struct words *words, const char *line)
{
  size_t n = strlen(words->all);

  if (!line[0])
    return;
  snprintf(words->last, sizeof words->last, "%s", line);
  if (n + strlen(line) + 2 <= sizeof words->all)
    snprintf(words->all + n, sizeof words->all - n, "%s%s", n ? "\n" : "", line);
}

/* Waits until there is something to read, and ends the tool once *stop is set. */
static void words_wait(int fd, pid_t tool, const volatile sig_atomic_t *stop)
{
  struct pollfd ready = { .fd = fd, .events = POLLIN };
  bool told = false;

  for (;;) {
    int n = poll(&ready, 1, STOP_POLL_MS);

    if (n > 0 || (n < 0 && errno != EINTR))
      return; /* read() says what there is, or waits */
    if (stop && *stop && !told)
      told = kill(tool, SIGTERM) == 0;
  }
}

/* All that comes through `fd`; what is too long for a line is cut off. */
static void words_read(int fd, pid_t tool, const volatile sig_atomic_t *stop,
                       struct words *words)
{
  char line[LINE_BYTES], chunk[4096];
  size_t n_line = 0;
  ssize_t n;

  words->all[0] = words->last[0] = 0;
  while (words_wait(fd, tool, stop), (n = read(fd, chunk, sizeof chunk)) != 0) {
    if (n < 0 && errno == EINTR)
      continue;
    if (n < 0)
      break;
    for (ssize_t i = 0; i < n; i++) {
      if (chunk[i] == '\n') {
        line[n_line] = 0;
        line_add(words, line);
        n_line = 0;
      } else if (n_line < sizeof line - 1) {
        line[n_line++] = chunk[i];
      }
    }
  }
  line[n_line] = 0;
  line_add(words, line);
}

/* In the child: becomes the tool, whose standard error is `words`; errno goes to
 * `failure`, which a tool that runs closes.  Calls only what is allowed behind
 * fork() in a program with threads.  Signals are blocked until none of our own
 * handlers would swallow one that is meant for the tool; then it has `mask`. */
static void tool_become(char *const *argv, pid_t parent, int words, int failure,
                        const sigset_t *mask)
{
  int null = open("/dev/null", O_RDWR | O_CLOEXEC);

  signal(SIGTERM, SIG_DFL);
  signal(SIGINT, SIG_DFL);
  pthread_sigmask(SIG_SETMASK, mask, NULL);
  if (null >= 0 && dup2(null, 0) == 0 && dup2(null, 1) == 1 && dup2(words, 2) == 2 &&
      prctl(PR_SET_PDEATHSIG, SIGTERM) == 0) {
    if (getppid() != parent)
      _exit(1); /* it was gone before it could be watched */
    execv(argv[0], argv);
  }
  int error = errno;
  ssize_t n = write(failure, &error, sizeof error);
  _exit(n == sizeof error ? 126 : 127);
}

/* Starts `argv` with a pipe of two ends as standard error; 0 or -errno. */
static int tool_fork(char *const *argv, const int *words, pid_t *ret_pid)
{
  int failure[2], error = 0;
  pid_t parent = getpid(), pid;
  sigset_t all, mask;

  if (pipe2(failure, O_CLOEXEC) < 0)
    return -errno;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &mask);
  pid = fork();
  if (pid == 0)
    tool_become(argv, parent, words[1], failure[1], &mask);
  if (pid < 0)
    error = errno;
  pthread_sigmask(SIG_SETMASK, &mask, NULL);
  close(failure[1]);
  while (pid > 0 && read(failure[0], &error, sizeof error) < 0 && errno == EINTR)
    ;
  close(failure[0]);
  if (pid > 0 && error)
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
      ;
  if (!error)
    *ret_pid = pid;
  return -error;
}

int pen_prepare_cannot_run(const char *tool, int error)
{
  if (error == -ENOENT && access(tool, F_OK) == 0)
    return pen_error_set(PEN_EFORMAT, "cannot run %s: the Python that its first line names is gone, as when its folder "
                         "was moved; run tools/setup again", tool);
  return pen_error_set(error, "cannot run %s", tool);
}

/* Starts `argv`; *ret_fd reads its standard error. */
static int tool_spawn(char *const *argv, pid_t *ret_pid, int *ret_fd)
{
  int ends[2];
  int r;

  if (pipe2(ends, O_CLOEXEC) < 0)
    return pen_error_set(-errno, "cannot make a pipe to %s", argv[0]);
  r = tool_fork(argv, ends, ret_pid);
  close(ends[1]);
  if (r < 0) {
    close(ends[0]);
    return pen_prepare_cannot_run(argv[0], r);
  }
  *ret_fd = ends[0];
  return 0;
}

int pen_prepare_run(const char *const *arguments, const volatile sig_atomic_t *stop,
                    char *ret_note, size_t note_bytes)
{
  char tool[PATH_MAX];
  struct words words;
  char *argv[MOST_ARGUMENTS + 2] = { tool };
  pid_t pid = -1;
  int fd = -1, status;
  int r = pen_prepare_find(tool, sizeof tool);

  if (r < 0)
    return r;
  for (size_t i = 0; arguments[i]; i++) {
    if (i == MOST_ARGUMENTS)
      return pen_error_set(PEN_EUSAGE, "more than %d arguments for " TOOL, MOST_ARGUMENTS);
    argv[i + 1] = (char *)(uintptr_t)arguments[i]; /* nobody writes to them */
  }
  r = tool_spawn(argv, &pid, &fd);
  if (r < 0)
    return r;
  words_read(fd, pid, stop, &words);
  close(fd);
  while (waitpid(pid, &status, 0) < 0)
    if (errno != EINTR)
      return pen_error_set(-errno, "cannot wait for %s", tool);
  if (stop && *stop && status)
    return pen_error_set(PEN_ESTOPPED, "stopped while " TOOL " was at work; what it had not "
                         "finished is gone");
  if (WIFSIGNALED(status))
    return pen_error_set(PEN_ESTOPPED, "%s was ended by signal %d", tool, WTERMSIG(status));
  if (WEXITSTATUS(status))
    return pen_error_set(WEXITSTATUS(status) == 2 ? PEN_EUSAGE : PEN_EFORMAT, "%s",
                         words.last[0] ? words.last : TOOL " failed without a word");
  if (ret_note)
    snprintf(ret_note, note_bytes, "%s", words.all);
  return 0;
}
