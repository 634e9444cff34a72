/* Running the tool, with shell scripts in its place: found, its words, its
 * exit codes, its cache. */
#include "tests/data/test.h"
#include "tests/data/token_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io/files.h"
#include "src/data/prepare.h"
#include "src/data/prepare_server.h"
#include "src/data/tokens.h"

/* A script of the program, in the tool's place; named by
 * $PENSTOCK_PREPARE. */
static void tool_is_by(const char *program, const char *script)
{
  char text[1024];
  int n = snprintf(text, sizeof text, "#!%s\n%s\n", program, script);
  const char *path = test_file("tool", text, (size_t)n);

  assert_int_equal(chmod(path, 0755), 0);
  assert_int_equal(setenv("PENSTOCK_PREPARE", path, 1), 0);
}

static void tool_is(const char *script)
{
  tool_is_by("/bin/sh", script);
}

static const char *const no_arguments[] = { NULL };

/* In the C library's place. */
static int poll_failure;
int poll(struct pollfd *fds, nfds_t n, int ms)
{
  const struct timespec wait = { ms / 1000, ms % 1000 * 1000000L };

  errno = poll_failure;
  return poll_failure ? -1 : ppoll(fds, n, ms < 0 ? NULL : &wait, NULL);
}

/* Then read() is what waits. */
static void words_come_without_poll(void **state)
{
  char note[64];

  poll_failure = ENOMEM;
  tool_is("echo first >&2; sleep .1; echo last >&2");
  alarm(20); /* it would wait for ever */
  assert_done(pen_prepare_run(no_arguments, NULL, note, sizeof note));
  alarm(0);
  poll_failure = 0;
  assert_string_equal(note, "first\nlast");
}

static void words_are_passed_on(void **state)
{
  char note[64], long_note[16384];

  tool_is("echo noise; echo first >&2; printf 'last word\\n\\n' >&2");
  assert_done(pen_prepare_run(no_arguments, NULL, note, sizeof note));
  assert_string_equal(note, "first\nlast word");
  /* more lines, and longer ones, than are kept */
  tool_is("for i in $(seq 3000); do printf %010d $i >&2; done; echo >&2\n"
          "for i in $(seq 3000); do echo $i >&2; done");
  assert_done(pen_prepare_run(no_arguments, NULL, long_note, sizeof long_note));
  assert_int_equal(strncmp(long_note, "00000000010000000002", 20), 0);
  assert_in_range(strlen(long_note), 8000, 8191);
  tool_is("printf 'no end of line' >&2");
  assert_done(pen_prepare_run(no_arguments, NULL, note, sizeof note));
  assert_string_equal(note, "no end of line");
  assert_done(pen_prepare_run(no_arguments, NULL, NULL, 0));
}

static void failures_keep_their_text(void **state)
{
  tool_is("seq 9000 >&2; echo Traceback >&2; echo 'line 3 of x.jsonl is no JSON' >&2; exit 1");
  assert_refused(pen_prepare_run(no_arguments, NULL, NULL, 0), PEN_EFORMAT, "line 3 of x.jsonl");
  tool_is("echo 'no such option' >&2; exit 2");
  assert_refused(pen_prepare_run(no_arguments, NULL, NULL, 0), PEN_EUSAGE, "no such option");
  tool_is("exit 1");
  assert_refused(pen_prepare_run(no_arguments, NULL, NULL, 0), PEN_EFORMAT, "without a word");
  volatile sig_atomic_t stop = 1;
  tool_is("trap 'exit 1' TERM; sleep 20 2> /dev/null & wait");
  assert_refused(pen_prepare_run(no_arguments, &stop, NULL, 0), PEN_ESTOPPED, "stopped while");
  tool_is("kill -9 $$");
  assert_refused(pen_prepare_run(no_arguments, NULL, NULL, 0), PEN_ESTOPPED, "signal 9");
}

/* Killed by signal 9, we take the tool along. */
static void the_tool_ends_with_us(void **state)
{
  char script[512], *at_work = strdup(test_path("at-work"));
  int status = 0;
  pid_t ours, tool;

  assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1), 0); /* the orphan becomes ours */
  snprintf(script, sizeof script, ": > %s; exec sleep 20", at_work);
  tool_is(script);
  ours = fork();
  if (ours == 0)
    _exit(pen_prepare_run(no_arguments, NULL, NULL, 0) ? 1 : 2);
  for (int i = 0; i < 1000 && access(at_work, F_OK) < 0; i++)
    usleep(10000);
  assert_int_equal(access(at_work, F_OK), 0);
  kill(ours, SIGKILL);
  assert_int_equal(waitpid(ours, &status, 0), ours);
  tool = 0;
  for (int i = 0; i < 500 && tool == 0; i++) {
    usleep(10000);
    tool = waitpid(-1, &status, WNOHANG);
  }
  prctl(PR_SET_CHILD_SUBREAPER, 0);
  assert_true(tool > 0); /* else it sleeps on */
  assert_true(WIFSIGNALED(status));
  assert_int_equal(WTERMSIG(status), SIGTERM);
  free(at_work);
}

/* What cannot be run is told with its reason. */
/* Sent to the child as soon as there is one. */
static int early_signal;
static void in_child(void)
{
  if (early_signal)
    raise(early_signal);
}

static void nobody_listens(int number)
{
  (void)number;
}

/* Our own handler does not swallow a signal for the tool before it is one. */
static void a_signal_before_it_runs(void **state)
{
  static const int signals[] = {SIGTERM, SIGINT};

  tool_is("exit 0");
  assert_int_equal(pthread_atfork(NULL, NULL, in_child), 0);
  for (size_t i = 0; i < 2; i++) {
    struct sigaction ours = {.sa_handler = nobody_listens}, before;
    sigaction(signals[i], &ours, &before);
    early_signal = signals[i];
    assert_refused(pen_prepare_run(no_arguments, NULL, NULL, 0), PEN_ESTOPPED,
                   "ended by signal");
    early_signal = 0;
    assert_done(pen_prepare_run(no_arguments, NULL, NULL, 0));
    sigaction(signals[i], &before, NULL);
  }
}

static void a_tool_that_is_no_program(void **state)
{
  assert_int_equal(setenv("PENSTOCK_PREPARE", test_path(""), 1), 0); /* a folder */
  assert_refused(pen_prepare_run(no_arguments, NULL, NULL, 0), EACCES, "cannot run");
}

static void a_tool_whose_python_is_gone(void **state)
{
  struct pen_prepare_server *server;

  tool_is_by("/nonexistent/python3", "");
  assert_refused(pen_prepare_run(no_arguments, NULL, NULL, 0), PEN_EFORMAT, "run tools/setup again");
  assert_refused(pen_prepare_server_open("no-tokenizer", NULL, &server), PEN_EFORMAT, "run tools/setup again");
}

static void missing_tool_says_how_to_install_it(void **state)
{
  char path[PATH_MAX], *old_path = strdup(getenv("PATH"));

  setenv("PENSTOCK_PREPARE", "/nonexistent/penstock-prepare", 1);
  assert_refused(pen_prepare_find(path, sizeof path), ENOENT, "/nonexistent/penstock-prepare");
  unsetenv("PENSTOCK_PREPARE");
  setenv("PATH", "/nonexistent", 1);
  pen_error_clear();
  int r = pen_prepare_find(path, sizeof path);
  if (r == -ENOENT) /* else there is a .venv beside the build, which is as it should be */
    assert_non_null(strstr(pen_error_text(), "tools/setup"));
  else
    assert_non_null(strstr(path, ".venv/bin/penstock-prepare"));
  pen_error_clear();
  setenv("PATH", old_path, 1);
  free(old_path);
}

/* Each option and each file the tool reads besides makes another name. */
static void forms_are_part_of_the_key(const struct pen_prepare_request *plain,
                                      const char *plain_path)
{
  char paths[7][PATH_MAX], note[64];
  const char *template = test_file("t.jinja", "{{ a }}", 7);
  struct pen_prepare_request requests[] = { *plain, *plain, *plain, *plain, *plain, *plain };

  requests[0].assistant_only = true;
  requests[1].held_out = true;
  requests[2].chat_template = "chatml";
  requests[3].chat_template = requests[4].chat_template = strdup(template);
  for (size_t i = 0; i < 6; i++) {
    if (i == 4)
      test_file("t.jinja", "{{ b }}", 7);
    if (i == 5)
      test_file("model/chat_template.jinja", "{{ c }}", 7);
    assert_done(pen_prepare_cached(&requests[i], paths[i], sizeof paths[i], note, sizeof note));
    assert_string_not_equal(note, "");
    assert_string_not_equal(paths[i], plain_path);
    assert_done(pen_prepare_cached(&requests[i], paths[6], sizeof paths[6], note, sizeof note));
    assert_string_equal(note, ""); /* was there */
    for (size_t j = 0; j < i; j++)
      assert_string_not_equal(paths[i], paths[j]);
  }
  test_file("dataset_info.json", "{}", 2);
  assert_done(pen_prepare_cached(plain, paths[6], sizeof paths[6], note, sizeof note));
  assert_string_not_equal(paths[6], paths[5]);
  free((void *)(uintptr_t)requests[3].chat_template);
}

/* The script writes its count of runs, so that a second run would show. */
/* Written again, or found elsewhere, the same data are not prepared again. */
static void data_is_known_by_its_contents(struct pen_prepare_request *request, const char *path)
{
  struct timespec long_ago[2] = { { .tv_sec = 1000 }, { .tv_sec = 1000 } };
  char again[PATH_MAX], note[64];
  const char *data = request->data;

  assert_int_equal(utimensat(AT_FDCWD, data, long_ago, 0), 0);
  assert_done(pen_prepare_cached(request, again, sizeof again, note, sizeof note));
  assert_string_equal(again, path);
  assert_int_equal(mkdir(test_path("elsewhere"), 0777), 0);
  request->data = test_file("elsewhere/data.txt", "text", 4);
  assert_done(pen_prepare_cached(request, again, sizeof again, note, sizeof note));
  assert_string_equal(again, path);
  assert_string_equal(note, "");
  request->data = test_file("elsewhere/data.txt", "tixt", 4); /* as long as before */
  assert_int_equal(utimensat(AT_FDCWD, request->data, long_ago, 0), 0);
  assert_done(pen_prepare_cached(request, again, sizeof again, note, sizeof note));
  assert_string_not_equal(again, path);
  request->data = test_file("elsewhere/data.jsonl", "text", 4); /* read otherwise */
  assert_done(pen_prepare_cached(request, again, sizeof again, note, sizeof note));
  assert_string_not_equal(again, path);
  request->data = data;
}

static void cache_is_used_until_something_changes(void **state)
{
  char path[PATH_MAX], again[PATH_MAX], note[64];
  struct pen_prepare_request request = { .completion_only = false };
  char *data = strdup(test_file("data.txt", "text", 4));
  char *model = strdup(test_path("model")), *cache = strdup(test_path("cache"));

  request.data = data;
  request.tokenizer = model;
  request.cache_dir = cache;
  assert_int_equal(mkdir(model, 0777), 0);
  assert_refused(pen_prepare_cached(&request, path, sizeof path, note, sizeof note),
                 PEN_EFORMAT, "no tokenizer.json");
  test_file("model/tokenizer.json", "{}", 2);
  /* --tokenizer MODEL --output PATH [OPTIONS] -- DATA */
  tool_is("test \"$1\" = --tokenizer && test \"$3\" = --output || exit 2\n"
          "echo x > \"$4\"; echo \"made $5 $6 $#\" >&2\n"
          "test \"$5\" != --chat-template || echo y > \"$8\"");
  assert_done(pen_prepare_cached(&request, path, sizeof path, note, sizeof note));
  assert_int_equal(access(path, R_OK), 0);
  assert_int_equal(strncmp(note, "made -- ", 8), 0);
  assert_done(pen_prepare_cached(&request, again, sizeof again, note, sizeof note));
  assert_string_equal(path, again);
  assert_string_equal(note, "");
  data_is_known_by_its_contents(&request, path);
  request.completion_only = true;
  assert_done(pen_prepare_cached(&request, again, sizeof again, note, sizeof note));
  assert_string_not_equal(path, again);
  assert_string_equal(note, "made --completion-only-loss -- 7");
  request.completion_only = false;
  forms_are_part_of_the_key(&request, path);
  test_file("data.txt", "other text", 10);
  assert_done(pen_prepare_cached(&request, again, sizeof again, note, sizeof note));
  assert_string_not_equal(path, again);
  test_file("model/tokenizer.json", "{ }", 3);
  assert_done(pen_prepare_cached(&request, path, sizeof path, note, sizeof note));
  assert_string_not_equal(path, again);
  free(data);
  free(model);
  free(cache);
}

/* The script notes what it is asked and answers with what the test wants. */
static void the_server_is_asked_line_by_line(void **state)
{
  const uint32_t ids[] = { 7, 0, 4294967295u };
  const struct pen_prepare_message messages[] = { { "system", "be \"short\"" }, { "user", "hi" } };
  struct pen_prepare_server *server;
  uint32_t *got;
  const char *text;
  size_t n;
  char *said = strdup(test_path("said")), script[512];

  snprintf(script, sizeof script,
           "test \"$*\" = '--tokenizer model --serve --chat-template t' || exit 2\n"
           "echo '{}'\n"
           "for a in '{\"ids\":[1,22,4294967295]}' '{\"ids\":[]}' '{}' '{\"text\":\"\\u00e9\"}' "
           "'{\"text\":\"\"}' '{\"error\":\"no such id\"}'; do read -r q; printf '%%s\\n' \"$q\" >> %s; "
           "printf '%%s\\n' \"$a\"; done", said);
  tool_is(script);
  assert_done(pen_prepare_server_open("model", "t", &server));
  assert_done(pen_prepare_server_encode(server, "some\ntext", &got, &n));
  assert_int_equal(n, 3);
  assert_int_equal(got[1], 22);
  assert_int_equal(got[2], 4294967295u);
  free(got);
  assert_done(pen_prepare_server_chat(server, messages, 2, &got, &n));
  assert_int_equal(n, 0);
  free(got);
  assert_done(pen_prepare_server_begin(server, ids, 3));
  assert_done(pen_prepare_server_add(server, ids, 1, &text));
  assert_string_equal(text, "\xc3\xa9");
  assert_done(pen_prepare_server_end(server, &text));
  assert_string_equal(text, "");
  assert_refused(pen_prepare_server_add(server, ids, 1, &text), PEN_EFORMAT, "no such id");
  assert_refused(pen_prepare_server_add(server, ids, 1, &text), PEN_ESTOPPED, "ended");
  pen_prepare_server_close(&server);
  char *asked = NULL;
  assert_done(pen_files_read_whole(said, 4096, &asked, &n));
  assert_string_equal(asked,
                      "{\"encode\": \"some\\ntext\"}\n"
                      "{\"chat\": [{\"role\": \"system\", \"content\": \"be \\\"short\\\"\"}, "
                      "{\"role\": \"user\", \"content\": \"hi\"}]}\n"
                      "{\"begin\": [7, 0, 4294967295]}\n{\"add\": [7]}\n{\"end\": true}\n"
                      "{\"add\": [7]}\n");
  free(asked);
  free(said);
  tool_is("echo '{\"error\": \"there is no tokenizer\"}'");
  assert_refused(pen_prepare_server_open("model", NULL, &server), PEN_EFORMAT, "no tokenizer");
  tool_is("exit 1");
  assert_refused(pen_prepare_server_open("model", NULL, &server), PEN_ESTOPPED, "ended");
}

/* The tool itself, where tools/setup has put it. */
static void the_real_tool(void **state)
{
  const char *root = getenv("PEN_ROOT");
  char tool[PATH_MAX], model[PATH_MAX], path[PATH_MAX], note[128];
  struct pen_tokens *tokens;
  uint8_t hash[PEN_SHA256_BYTES];
  uint32_t *ids;
  const char *text;
  size_t n;
  bool found = false;

  snprintf(tool, sizeof tool, "%s/.venv/bin/penstock-prepare", root ? root : ".");
  snprintf(model, sizeof model, "%s/../shared/data/models/stories260K-hf", root ? root : ".");
  if (access(tool, X_OK) < 0 || access(model, R_OK) < 0) {
    printf("# skipped: %s or %s is not there\n", tool, model);
    skip();
  }
  setenv("PENSTOCK_PREPARE", tool, 1);
  char *data = strdup(test_file("story.txt", "Once upon a time", 16));
  char *cache = strdup(test_path("real-cache"));
  struct pen_prepare_request request = { .data = data, .tokenizer = model, .cache_dir = cache };
  assert_done(pen_prepare_cached(&request, path, sizeof path, note, sizeof note));
  assert_non_null(strstr(note, "1 documents"));
  assert_done(pen_tokens_hash_tokenizer(model, hash, &found));
  assert_true(found);
  assert_done(pen_tokens_open(path, &(struct pen_tokens_options){ .vocab_size = 512,
                                .tokenizer_sha256 = hash }, &tokens));
  struct pen_prepare_server *server;
  assert_done(pen_prepare_server_open(model, NULL, &server));
  assert_done(pen_prepare_server_encode(server, "Once upon a time", &ids, &n));
  assert_int_equal(pen_tokens_info(tokens)->n_tokens, n + 1); /* and the end token */
  uint32_t got[64];
  assert_in_range(n, 2, 63);
  assert_done(pen_tokens_read(tokens, 0, n + 1, got, NULL));
  assert_memory_equal(got, ids, n * sizeof *ids);
  assert_int_equal(got[0], 1);
  assert_int_equal(got[n], 2);
  assert_done(pen_prepare_server_begin(server, ids, 0));
  assert_done(pen_prepare_server_add(server, ids, n, &text));
  assert_string_equal(text, "Once upon a time");
  assert_refused(pen_prepare_server_chat(server, NULL, 0, &ids, &n), PEN_EFORMAT,
                 "no chat template");
  pen_prepare_server_close(&server);
  pen_tokens_close(&tokens);
  free(ids);
  free(data);
  free(cache);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(words_are_passed_on),
    cmocka_unit_test(words_come_without_poll),
    cmocka_unit_test(failures_keep_their_text),
    cmocka_unit_test(the_tool_ends_with_us),
    cmocka_unit_test(a_signal_before_it_runs),
    cmocka_unit_test(a_tool_that_is_no_program),
    cmocka_unit_test(a_tool_whose_python_is_gone),
    cmocka_unit_test(missing_tool_says_how_to_install_it),
    cmocka_unit_test(cache_is_used_until_something_changes),
    cmocka_unit_test(the_server_is_asked_line_by_line),
    cmocka_unit_test(the_real_tool),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
