/* Lines as written, cut back on resume, never torn, never twice. */
#include "src/train/runlog.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <sys/resource.h>

#include "tests/test.h"
#include "tests/tmpdir.h"

static struct pen_runlog_step line_of(uint64_t step)
{
  return (struct pen_runlog_step){
    .step = step, .epoch = 0.5, .loss = 2.25, .grad_norm = 1.5,
    .learning_rate = 1e-3, .tokens_per_second = 100.5, .step_seconds = 0.25,
    .n_tokens = 25,
  };
}

static char *whole(const char *path)
{
  FILE *f = fopen(path, "r");
  assert_non_null(f);
  char *text = calloc(1, 1 << 20);
  size_t n = fread(text, 1, (1 << 20) - 1, f);
  fclose(f);
  text[n] = '\0';
  return text;
}

/* Lines for steps 1 .. n, an evaluation after every second. */
static void write_log(const char *path, uint64_t n)
{
  struct pen_runlog *log;
  test_ok(pen_runlog_open(path, 0, &log));
  for (uint64_t step = 1; step <= n; step++) {
    struct pen_runlog_step line = line_of(step);
    test_ok(pen_runlog_append_step(log, &line));
    if (step % 2 == 0)
      test_ok(pen_runlog_append_eval(log, step, 0.5, 2.125, 1000));
  }
  test_ok(pen_runlog_sync(log));
  pen_runlog_close(&log);
  assert_null(log);
}

static void test_text(void **state)
{
  const char *path = test_tmp("text.jsonl");
  struct pen_runlog *log;
  test_ok(pen_runlog_open(path, 0, &log));
  struct pen_runlog_step line = line_of(1);
  test_ok(pen_runlog_append_step(log, &line));
  line = line_of(2);
  line.loss = line.grad_norm = NAN;
  line.n_skipped = 1;
  line.skipped_block = "layers.3";
  line.bound = "write";
  test_ok(pen_runlog_append_step(log, &line));
  test_ok(pen_runlog_append_eval(log, 2, 0.5, 2.125, 1000));
  pen_runlog_close(&log);
  char *text = whole(path);
  assert_string_equal(text,
    "{\"step\": 1, \"epoch\": 0.5, \"loss\": 2.25, \"grad_norm\": 1.5, "
    "\"learning_rate\": 0.001, \"num_tokens\": 25, \"tokens_per_second\": 100.5, "
    "\"step_seconds\": 0.25, \"skipped_steps\": 0}\n"
    "{\"step\": 2, \"epoch\": 0.5, \"loss\": null, \"grad_norm\": null, "
    "\"learning_rate\": 0.001, \"num_tokens\": 25, \"tokens_per_second\": 100.5, "
    "\"step_seconds\": 0.25, \"skipped_steps\": 1, "
    "\"skipped_block\": \"layers.3\", \"bound\": \"write\"}\n"
    "{\"step\": 2, \"epoch\": 0.5, \"eval_loss\": 2.125, \"eval_num_tokens\": 1000}\n");
  free(text);
}

/* Cutting back to every step and going on gives the same bytes as going
 * straight through. */
static void test_resume_at_every_step(void **state)
{
  const char *straight = test_tmp("straight.jsonl");
  const char *resumed = test_tmp("resumed.jsonl");
  write_log(straight, 9);
  char *wanted = whole(straight);
  for (uint64_t cut = 0; cut <= 9; cut++) {
    struct pen_runlog *log;
    write_log(resumed, 9);
    test_ok(pen_runlog_open(resumed, cut, &log));
    assert_int_equal(pen_runlog_last_step(log), cut);
    assert_int_equal(pen_runlog_last_eval_step(log), cut / 2 * 2);
    for (uint64_t step = cut + 1; step <= 9; step++) {
      struct pen_runlog_step line = line_of(step);
      test_ok(pen_runlog_append_step(log, &line));
      if (step % 2 == 0)
        test_ok(pen_runlog_append_eval(log, step, 0.5, 2.125, 1000));
    }
    pen_runlog_close(&log);
    char *got = whole(resumed);
    assert_string_equal(got, wanted);
    free(got);
  }
  free(wanted);
}

/* Torn at every byte: what is whole stays, the rest goes, nothing twice. */
static void test_torn_at_every_byte(void **state)
{
  const char *straight = test_tmp("straight.jsonl");
  const char *torn = test_tmp("torn.jsonl");
  write_log(straight, 3);
  char *text = whole(straight);
  size_t n = strlen(text);
  for (size_t cut = 0; cut <= n; cut++) {
    struct pen_runlog *log;
    size_t kept = cut;
    while (kept > 0 && text[kept - 1] != '\n')
      kept--;
    test_write_file(torn, text, cut);
    test_ok(pen_runlog_open(torn, 100, &log));
    pen_runlog_close(&log);
    char *got = whole(torn);
    assert_int_equal(strlen(got), kept);
    assert_memory_equal(got, text, kept);
    free(got);
  }
  free(text);
}

/* A power cut may leave zeros where lines were. */
static void test_garbage_ends_the_log(void **state)
{
  static const char text[] =
    "{\"step\":1,\"loss\":1.0}\n\0\0\0\0\n{\"step\":2,\"loss\":1.0}\n";
  const char *path = test_tmp("garbage.jsonl");
  struct pen_runlog *log;
  test_write_file(path, text, sizeof text - 1);
  test_ok(pen_runlog_open(path, 5, &log));
  assert_int_equal(pen_runlog_last_step(log), 1);
  pen_runlog_close(&log);
  char *got = whole(path);
  assert_string_equal(got, "{\"step\":1,\"loss\":1.0}\n");
  free(got);
}

static int count(void *ctx, const struct pen_json *json,
                 const struct pen_json_node *root)
{
  int64_t step;
  test_ok(pen_json_get_i64(json, root, "step", &step));
  *(int64_t *)ctx += step;
  return step == 4 ? -PEN_ESTOPPED : 0;
}

static void test_read(void **state)
{
  const char *path = test_tmp("read.jsonl");
  int64_t sum = 0;
  write_log(path, 3);
  test_ok(pen_runlog_read(path, count, &sum));
  assert_int_equal(sum, 1 + 2 + 2 + 3);
  write_log(path, 6);
  sum = 0;
  assert_int_equal(pen_runlog_read(path, count, &sum), -PEN_ESTOPPED);
  assert_int_equal(sum, 1 + 2 + 2 + 3 + 4);
}

/* A full drive, played by the file size limit: the line that does not fit
 * leaves no half behind. */
static void test_full_drive(void **state)
{
  const char *path = test_tmp("full.jsonl");
  struct rlimit before, small;
  struct pen_runlog *log;
  struct pen_runlog_step line = line_of(1);
  signal(SIGXFSZ, SIG_IGN);
  getrlimit(RLIMIT_FSIZE, &before);
  test_ok(pen_runlog_open(path, 0, &log));
  test_ok(pen_runlog_append_step(log, &line));
  char *text = whole(path);
  size_t n = strlen(text);
  free(text);
  small = before;
  small.rlim_cur = n + n / 2;
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
  int r = pen_runlog_append_step(log, &line);
  int again = pen_runlog_append_step(log, &line);
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
  assert_true(r < 0 && again < 0);
  assert_non_null(strstr(pen_error_text(), "full.jsonl"));
  pen_error_clear();
  text = whole(path);
  assert_int_equal(strlen(text), n);
  free(text);
  pen_runlog_close(&log);
}

static void test_failures(void **state)
{
  struct pen_runlog *log = NULL;
  test_fails(pen_runlog_open("/nonexistent/log.jsonl", 0, &log), ENOENT,
             "/nonexistent/log.jsonl");
  pen_runlog_close(&log);
  test_ok(pen_runlog_open(test_tmp("long.jsonl"), 0, &log));
  char name[4000];
  memset(name, 'x', sizeof name - 1);
  name[sizeof name - 1] = '\0';
  struct pen_runlog_step line = line_of(1);
  line.skipped_block = name;
  pen_error_clear();
  assert_true(pen_runlog_append_step(log, &line) < 0);
  pen_error_clear();
  pen_runlog_close(&log);
}

/* What was written to drives is known of lines that are cut away, too. */
static void test_nvme_written(void **state)
{
  const char *path = test_tmp("written.jsonl");
  struct pen_runlog *log;
  test_ok(pen_runlog_open(path, 0, &log));
  assert_int_equal(pen_runlog_nvme_written(log), 0);
  for (uint64_t step = 1; step <= 5; step++) {
    struct pen_runlog_step line = line_of(step);
    line.nvme_written = 1000 * step;
    test_ok(pen_runlog_append_step(log, &line));
  }
  pen_runlog_close(&log);
  test_ok(pen_runlog_open(path, 3, &log));
  assert_int_equal(pen_runlog_nvme_written(log), 5000);
  assert_int_equal(pen_runlog_last_step(log), 3);
  pen_runlog_close(&log);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_text),
    cmocka_unit_test(test_resume_at_every_step),
    cmocka_unit_test(test_torn_at_every_byte),
    cmocka_unit_test(test_garbage_ends_the_log),
    cmocka_unit_test(test_read),
    cmocka_unit_test(test_full_drive),
    cmocka_unit_test(test_nvme_written),
    cmocka_unit_test(test_failures),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
