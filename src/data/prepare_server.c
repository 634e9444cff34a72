/* prepare_server.c: a process at the other end of a socket, one JSON line to it
 * and one back.
 *
 * Main thread.  The tool runs in a process group of its own, so that a Ctrl-C
 * meant for us does not end it; it ends when the socket closes.  Disadvantage:
 * each token costs a line to another process and back, some tens of
 * microseconds. */
#include "src/data/prepare_server.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "io/json_write.h"
#include "src/data/prepare.h"

#define SOURCE "penstock-prepare"

extern char **environ;

struct pen_prepare_server {
  pid_t pid;
  int fd;
  char *line; /* the newest answer, ended by NUL */
  size_t used, cap;
  struct pen_json *reply;
};

static int spawn(struct pen_prepare_server *s, const char *const *arguments,
                 int fd)
{
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attr;
  char tool[PATH_MAX];
  char *argv[8] = {tool};
  int rc = pen_prepare_find(tool, sizeof tool);
  if (rc < 0)
    return rc;
  for (size_t i = 0; arguments[i]; i++)
    argv[i + 1] = (char *)(uintptr_t)arguments[i]; /* only read */
  posix_spawn_file_actions_init(&actions);
  posix_spawnattr_init(&attr);
  posix_spawn_file_actions_adddup2(&actions, fd, 0);
  posix_spawn_file_actions_adddup2(&actions, fd, 1);
  posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETPGROUP);
  posix_spawnattr_setpgroup(&attr, 0);
  rc = posix_spawn(&s->pid, tool, &actions, &attr, argv, environ);
  posix_spawnattr_destroy(&attr);
  posix_spawn_file_actions_destroy(&actions);
  return rc ? pen_prepare_cannot_run(tool, -rc) : 0;
}

static int ended(void)
{
  return pen_error_set(PEN_ESTOPPED, SOURCE " ended without an answer");
}

static int send_line(struct pen_prepare_server *s, const char *text, size_t n)
{
  for (size_t done = 0; done < n;) {
    ssize_t sent = send(s->fd, text + done, n - done, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR)
      continue;
    if (sent < 0)
      return ended();
    done += (size_t)sent;
  }
  return 0;
}

static int receive_line(struct pen_prepare_server *s)
{
  s->used = 0;
  while (s->used == 0 || s->line[s->used - 1] != '\n') {
    if (s->used + 2 > s->cap) {
      size_t cap = s->cap ? 2 * s->cap : 4096;
      char *larger = realloc(s->line, cap);
      if (!larger)
        return pen_error_set(PEN_ENOFIT, "no memory for an answer");
      s->line = larger;
      s->cap = cap;
    }
    ssize_t n = read(s->fd, s->line + s->used, s->cap - 1 - s->used);
    if (n < 0 && errno == EINTR)
      continue;
    if (n <= 0)
      return ended();
    s->used += (size_t)n;
  }
  s->line[s->used] = '\0';
  return 0;
}

/* The answer, parsed into s->reply; an error in it becomes ours. */
static int receive(struct pen_prepare_server *s)
{
  const char *why = NULL;
  pen_json_free(&s->reply);
  int rc = receive_line(s);
  if (rc == 0)
    rc = pen_json_parse(s->line, s->used, SOURCE, &s->reply);
  if (rc == 0)
    rc = pen_json_opt_string(s->reply, pen_json_root(s->reply), "error", &why);
  return rc == 0 && why ? pen_error_set(PEN_EFORMAT, "%s", why) : rc;
}

int pen_prepare_server_open(const char *tokenizer, const char *chat_template,
                            struct pen_prepare_server **ret_server)
{
  const char *arguments[] = {"--tokenizer", tokenizer, "--serve",
                             chat_template ? "--chat-template" : NULL,
                             chat_template, NULL};
  int ends[2];
  struct pen_prepare_server *s = calloc(1, sizeof *s);
  if (!s)
    return pen_error_set(PEN_ENOFIT, "no memory to run " SOURCE);
  s->fd = -1;
  int rc = 0;
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0) {
    rc = pen_error_set(-errno, "cannot make a socket to " SOURCE);
  } else {
    s->fd = ends[0];
    rc = spawn(s, arguments, ends[1]);
    close(ends[1]);
  }
  if (rc == 0)
    rc = receive(s);
  if (rc < 0)
    pen_prepare_server_close(&s);
  else
    *ret_server = s;
  return rc;
}

void pen_prepare_server_close(struct pen_prepare_server **server)
{
  struct pen_prepare_server *s = *server;
  if (!s)
    return;
  if (s->fd >= 0)
    close(s->fd);
  if (s->pid)
    while (waitpid(s->pid, NULL, 0) < 0 && errno == EINTR)
      ;
  pen_json_free(&s->reply);
  free(s->line);
  free(s);
  *server = NULL;
}

/* Sends what the writer holds, as one line, and waits for the answer. */
static int ask(struct pen_prepare_server *s, struct pen_json_writer *w)
{
  const char *text;
  size_t n;
  pen_json_end_object(w);
  int rc = pen_json_finish(w, &text, &n);
  if (rc == 0)
    rc = send_line(s, text, n);
  if (rc == 0)
    rc = send_line(s, "\n", 1);
  pen_json_writer_done(w);
  return rc < 0 ? rc : receive(s);
}

static void begin_request(struct pen_json_writer *w)
{
  pen_json_writer_init(w, NULL, 0, false);
  pen_json_begin_object(w, NULL);
}

static void put_ids(struct pen_json_writer *w, const char *key,
                    const uint32_t *ids, size_t n)
{
  pen_json_begin_array(w, key);
  for (size_t i = 0; i < n; i++)
    pen_json_put_u64(w, NULL, ids[i]);
  pen_json_end_array(w);
}

static int take_ids(struct pen_prepare_server *s, uint32_t **ret_ids,
                    size_t *ret_n)
{
  const struct pen_json_node *list;
  int rc = pen_json_get_array(s->reply, pen_json_root(s->reply), "ids", &list);
  if (rc < 0)
    return rc;
  size_t n = pen_json_size(list);
  uint32_t *ids = malloc((n ? n : 1) * sizeof *ids);
  if (!ids)
    return pen_error_set(PEN_ENOFIT, "no memory for %zu ids", n);
  for (size_t i = 0; rc == 0 && i < n; i++) {
    size_t id = 0;
    rc = pen_json_as_size(s->reply, pen_json_item(list, i), &id);
    ids[i] = (uint32_t)id;
  }
  if (rc < 0) {
    free(ids);
    return rc;
  }
  *ret_ids = ids;
  *ret_n = n;
  return 0;
}

int pen_prepare_server_encode(struct pen_prepare_server *server,
                              const char *text, uint32_t **ret_ids,
                              size_t *ret_n)
{
  struct pen_json_writer w;
  begin_request(&w);
  pen_json_put_string(&w, "encode", text);
  int rc = ask(server, &w);
  return rc < 0 ? rc : take_ids(server, ret_ids, ret_n);
}

int pen_prepare_server_chat(struct pen_prepare_server *server,
                            const struct pen_prepare_message *messages,
                            size_t n_messages, uint32_t **ret_ids,
                            size_t *ret_n)
{
  struct pen_json_writer w;
  begin_request(&w);
  pen_json_begin_array(&w, "chat");
  for (size_t i = 0; i < n_messages; i++) {
    pen_json_begin_object(&w, NULL);
    pen_json_put_string(&w, "role", messages[i].role);
    pen_json_put_string(&w, "content", messages[i].content);
    pen_json_end_object(&w);
  }
  pen_json_end_array(&w);
  int rc = ask(server, &w);
  return rc < 0 ? rc : take_ids(server, ret_ids, ret_n);
}

int pen_prepare_server_begin(struct pen_prepare_server *server,
                             const uint32_t *ids, size_t n)
{
  struct pen_json_writer w;
  begin_request(&w);
  put_ids(&w, "begin", ids, n);
  return ask(server, &w);
}

static int take_text(struct pen_prepare_server *s, const char **ret_text)
{
  return pen_json_get_string(s->reply, pen_json_root(s->reply), "text",
                             ret_text);
}

int pen_prepare_server_add(struct pen_prepare_server *server,
                           const uint32_t *ids, size_t n,
                           const char **ret_text)
{
  struct pen_json_writer w;
  begin_request(&w);
  put_ids(&w, "add", ids, n);
  int rc = ask(server, &w);
  return rc < 0 ? rc : take_text(server, ret_text);
}

int pen_prepare_server_end(struct pen_prepare_server *server,
                           const char **ret_text)
{
  struct pen_json_writer w;
  begin_request(&w);
  pen_json_put_bool(&w, "end", true);
  int rc = ask(server, &w);
  return rc < 0 ? rc : take_text(server, ret_text);
}
