/* Model directories: what is refused with which words, element conversion, and
 * that a directory being written is never half there. */
#include "io/hfdir.h"
#include "io/hfdir_write.h"

#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "base/rng.h"
#include "io/files.h"
#include "tests/test.h"
#include "tests/tmpdir.h"

static const uint64_t shape_a[] = {3, 5}, shape_b[] = {9000}, shape_c[] = {4};
static const struct pen_safetensors_spec specs[] = {
  {"a", PEN_FILE_BF16, 2, shape_a},
  {"b", PEN_FILE_F32, 1, shape_b},
  {"c", PEN_FILE_F16, 1, shape_c},
};
static const char *const shard_names[] = {"model-00001-of-00002.safetensors",
                                          "model-00002-of-00002.safetensors"};

static const size_t in_two[] = {0, 1, 0}, in_one[] = {0, 0, 0};
static const char *const single_name[] = {PEN_HFDIR_SINGLE};
static const struct pen_hfdir_layout sharded = {specs, in_two, 3, shard_names,
                                                2, true};
static const struct pen_hfdir_layout single = {specs, in_one, 3, single_name,
                                               1, false};

static float value(size_t tensor, size_t i)
{
  return (float)((int)(i % 251) - 120 + (int)tensor) * 0.25f; /* exact in all */
}

/* Writes all tensors in pieces, b from its end. */
static void fill(struct pen_hfdir_writer *w)
{
  float wide[9000];
  for (size_t i = 0; i < 9000; i++)
    wide[i] = value(1, i);
  for (size_t end = 9000; end; end -= 1000)
    test_ok(pen_hfdir_write_elems(w, 1, end - 1000, 1000, wide + end - 1000,
                                  PEN_FILE_F32));
  for (size_t i = 0; i < 15; i++)
    wide[i] = value(0, i);
  test_ok(pen_hfdir_write_elems(w, 0, 7, 8, wide + 7, PEN_FILE_F32));
  test_ok(pen_hfdir_write_elems(w, 0, 0, 7, wide, PEN_FILE_F32));
  uint16_t half[4];
  for (size_t i = 0; i < 4; i++)
    wide[i] = value(2, i);
  test_ok(pen_file_dtype_from_f32(PEN_FILE_BF16, wide, 4, half, NULL));
  test_ok(pen_hfdir_write_elems(w, 2, 0, 4, half, PEN_FILE_BF16));
}

static const char *make(const char *name, const struct pen_hfdir_layout *layout)
{
  const char *path = test_tmp(name);
  struct pen_hfdir_writer *w = NULL;
  test_ok(pen_hfdir_create(path, layout, true, &w));
  fill(w);
  test_ok(pen_hfdir_put_file(w, "config.json", "{}", 2));
  test_ok(pen_hfdir_commit(&w));
  assert_null(w);
  return path;
}

static void check_contents(const char *path)
{
  struct pen_hfdir *dir = NULL;
  float wide[9000];
  uint16_t half[9000];
  test_ok(pen_hfdir_open(path, false, &dir));
  assert_int_equal(pen_hfdir_n_tensors(dir), 3);
  assert_int_equal(pen_hfdir_dtype(dir), PEN_FILE_F32);
  for (size_t t = 0; t < 3; t++) {
    size_t i = pen_hfdir_find(dir, specs[t].name);
    assert_true(i != SIZE_MAX);
    const struct pen_hfdir_tensor *tensor = pen_hfdir_tensor(dir, i);
    assert_int_equal(tensor->dtype, specs[t].dtype);
    size_t from = tensor->elems / 3, n = tensor->elems - from;
    test_ok(pen_hfdir_read_elems(dir, i, from, n, PEN_FILE_F32, wide));
    test_ok(pen_hfdir_read_elems(dir, i, from, n, PEN_FILE_BF16, half));
    for (size_t k = 0; k < n; k++) {
      float back;
      test_ok(pen_file_dtype_to_f32(PEN_FILE_BF16, &half[k], 1, &back));
      assert_true(wide[k] == value(t, from + k));
      assert_true(back == value(t, from + k));
    }
    test_fails(pen_hfdir_read_elems(dir, i, from, n + 1, PEN_FILE_F32, wide),
               EINVAL, "are not in the");
  }
  assert_true(pen_hfdir_find(dir, "d") == SIZE_MAX);
  pen_hfdir_close(&dir);
}

static void test_round_trip(void **state)
{
  struct pen_hfdir *dir = NULL;
  check_contents(make("single", &single));
  check_contents(make("sharded", &sharded));
  test_ok(pen_hfdir_open(test_tmp("sharded"), false, &dir));
  assert_int_equal(pen_hfdir_n_shards(dir), 2);
  assert_true(pen_hfdir_has_index(dir));
  assert_string_equal(pen_hfdir_shard_name(dir, 1), shard_names[1]);
  pen_hfdir_close(&dir);
  assert_false(pen_files_exists(test_tmp("sharded.tmp")));
  make("slash/", &single);
  check_contents(test_tmp("slash"));
}

static void write_index(const char *map)
{
  char text[1024];
  int n = snprintf(text, sizeof text, "{\"weight_map\":{%s}}", map);
  test_write_file(test_tmp("m/" PEN_HFDIR_INDEX), text, (size_t)n);
}

#define IN_1 "\"model-00001-of-00002.safetensors\""
#define IN_2 "\"model-00002-of-00002.safetensors\""
#define FULL "\"a\":" IN_1 ",\"b\":" IN_2 ",\"c\":" IN_1

static void test_index(void **state)
{
  static const struct {
    int code;
    const char *map, *says;
  } cases[] = {
    {PEN_EMISMATCH, "\"a\":" IN_1 ",\"b\":" IN_2,
     "tensor c of model-00001-of-00002.safetensors is not in the index"},
    {PEN_EMISMATCH, FULL ",\"d\":" IN_2,
     "the index puts tensor d into model-00002-of-00002.safetensors, which "
     "does not hold it"},
    {PEN_EMISMATCH, "\"a\":" IN_2 ",\"b\":" IN_2 ",\"c\":" IN_1,
     "the index puts tensor a into model-00002-of-00002.safetensors, it is in "
     "model-00001-of-00002.safetensors"},
    {PEN_EMISMATCH, FULL ",\"d\":\"model-3.safetensors\"",
     "shard model-3.safetensors is missing; the index puts tensor d there"},
    {PEN_EFORMAT, FULL ",\"d\":\"../single/model.safetensors\"",
     "weight_map.d: \"../single/model.safetensors\" is not a file name"},
    {PEN_EFORMAT, FULL ",\"d\":5", "weight_map.d must be a string, is 5"},
    {PEN_EFORMAT, "", "weight_map is empty"},
  };
  struct pen_hfdir *dir = NULL;
  const char *path = make("m", &sharded);
  write_index(FULL);
  check_contents(path);
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    write_index(cases[i].map);
    test_fails(pen_hfdir_open(path, false, &dir), cases[i].code,
               cases[i].says);
  }
  write_index(FULL);
  assert_int_equal(rename(test_tmp("m/model-00002-of-00002.safetensors"),
                          test_tmp("m/gone")), 0);
  test_fails(pen_hfdir_open(path, false, &dir), PEN_EMISMATCH,
             "shard model-00002-of-00002.safetensors is missing");
  test_ok(pen_files_copy(test_tmp("m/model-00001-of-00002.safetensors"),
                         test_tmp("m/model-00002-of-00002.safetensors")));
  test_fails(pen_hfdir_open(path, false, &dir), PEN_EMISMATCH,
             "tensor a is in both model-00001-of-00002.safetensors and "
             "model-00002-of-00002.safetensors");
  assert_int_equal(rename(test_tmp("m/gone"),
                          test_tmp("m/model.safetensors")), 0);
  test_fails(pen_hfdir_open(path, false, &dir), PEN_EMISMATCH,
             "holds both model.safetensors and model.safetensors.index.json");
  assert_null(dir);
}

/* F1 on the last shard: one byte less, one more. */
static void test_shard_size(void **state)
{
  struct pen_hfdir *dir = NULL;
  const char *path = make("cut", &sharded);
  const char *shard = test_tmp("cut/model-00002-of-00002.safetensors");
  struct stat st;
  assert_int_equal(stat(shard, &st), 0);
  assert_int_equal(truncate(shard, st.st_size - 1), 0);
  test_fails(pen_hfdir_open(path, true, &dir), PEN_EFORMAT,
             "1 bytes are missing; download or copy it again");
  assert_int_equal(truncate(shard, st.st_size + 1), 0);
  test_fails(pen_hfdir_open(path, false, &dir), PEN_EFORMAT,
             "1 bytes after the last tensor");
  test_ok(pen_hfdir_open(path, true, &dir));
  assert_non_null(strstr(pen_hfdir_shard_warning(dir, 1), "1 bytes after"));
  pen_hfdir_close(&dir);
}

static void test_no_model(void **state)
{
  struct pen_hfdir *dir = NULL;
  test_fails(pen_hfdir_open(test_tmp("nowhere"), false, &dir), ENOENT,
             "cannot open the model directory");
  test_ok(pen_files_make_dirs(test_tmp("pickle")));
  test_fails(pen_hfdir_open(test_tmp("pickle"), false, &dir), ENOENT,
             "holds neither");
  test_write_file(test_tmp("pickle/pytorch_model.bin"), "x", 1);
  test_fails(pen_hfdir_open(test_tmp("pickle"), false, &dir), PEN_EUNSUPPORTED,
             "holds pytorch_model.bin; only safetensors are read");
}

/* Only a model directory is ever replaced, and only when asked. */
static void test_target(void **state)
{
  struct pen_hfdir_writer *w = NULL;
  test_ok(pen_files_make_dirs(test_tmp("empty")));
  test_ok(pen_hfdir_create(test_tmp("empty"), &single, false, &w));
  pen_hfdir_abandon(&w);
  assert_false(pen_files_exists(test_tmp("empty.tmp")));
  make("old", &single);
  test_fails(pen_hfdir_create(test_tmp("old"), &single, false, &w), EEXIST,
             "choose another or --overwrite");
  test_ok(pen_files_make_dirs(test_tmp("mine")));
  test_write_file(test_tmp("mine/thesis.txt"), "x", 1);
  test_fails(pen_hfdir_create(test_tmp("mine"), &single, true, &w), EEXIST,
             "it is not just a model directory");
  test_ok(pen_files_make_dirs(test_tmp("old/sub")));
  test_fails(pen_hfdir_create(test_tmp("old"), &single, true, &w), EEXIST,
             "it is not just a model directory");
  assert_null(w);
}

/* What is in the way is named for what it is, and left as it is. */
static void test_in_the_way(void **state)
{
  struct pen_hfdir_writer *w = NULL;
  test_write_file(test_tmp("file"), "x", 1);
  test_fails(pen_hfdir_create(test_tmp("file"), &single, true, &w), ENOTDIR,
             "is a file; name a folder");
  test_fails(pen_hfdir_create(test_tmp("file/new"), &single, true, &w), ENOTDIR,
             "file/new: what it would lie in is a file");
  test_ok(pen_files_make_dirs(test_tmp("left.tmp/mine.state")));
  test_write_file(test_tmp("left.tmp/config.json"), "x", 1);
  test_write_file(test_tmp("left.tmp/other.tmp"), "x", 1);
  test_fails(pen_hfdir_create(test_tmp("left"), &single, true, &w), EEXIST,
             "holds mine.state");
  assert_true(pen_files_exists(test_tmp("left.tmp/config.json")));
  assert_true(pen_files_exists(test_tmp("left.tmp/other.tmp")));
  assert_null(w);
}

static void test_incomplete(void **state)
{
  struct pen_hfdir_writer *w = NULL;
  float wide[15] = {0};
  make("whole", &sharded);
  test_ok(pen_hfdir_create(test_tmp("whole"), &sharded, true, &w));
  test_ok(pen_hfdir_write_elems(w, 0, 0, 15, wide, PEN_FILE_F32));
  test_fails(pen_hfdir_commit(&w), PEN_EMISMATCH, "0 of 8 bytes of tensor c");
  assert_null(w);
  assert_false(pen_files_exists(test_tmp("whole.tmp")));
  check_contents(test_tmp("whole"));
  test_ok(pen_hfdir_create(test_tmp("whole"), &sharded, true, &w));
  wide[3] = 1e30f;
  test_fails(pen_hfdir_write_elems(w, 2, 0, 4, wide, PEN_FILE_F32), ERANGE,
             "1 numbers of tensor c are too large for F16");
  pen_hfdir_abandon(&w);
}

/* Killed at every moment the writer passes: the old directory stays whole, and
 * the next export clears what was left. */
static void test_killed(void **state)
{
  for (int moment = 0; moment < 4; moment++) {
    make("kill", &single);
    pid_t child = test_fork();
    if (child == 0) {
      struct pen_hfdir_writer *w = NULL;
      test_ok(pen_hfdir_create(test_tmp("kill"), &sharded, true, &w));
      if (moment > 0)
        fill(w);
      if (moment > 1)
        test_ok(pen_hfdir_put_file(w, "config.json", "{}", 2));
      if (moment > 2)
        test_ok(pen_hfdir_commit(&w));
      kill(getpid(), SIGKILL);
      _exit(1);
    }
    int status = 0;
    struct pen_hfdir *dir = NULL;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    check_contents(test_tmp("kill"));
    test_ok(pen_hfdir_open(test_tmp("kill"), false, &dir));
    assert_int_equal(pen_hfdir_n_shards(dir), moment > 2 ? 2 : 1);
    pen_hfdir_close(&dir);
    assert_int_equal(pen_files_exists(test_tmp("kill.tmp")), moment <= 2);
  }
  make("kill", &single);
  assert_false(pen_files_exists(test_tmp("kill.tmp")));
}

/* The same at random moments of exports without end. */
static void test_killed_anywhere(void **state)
{
  uint64_t seed = test_seed(3);
  make("any", &single);
  for (uint64_t round = 0; round < 40; round++) {
    pid_t child = test_fork();
    if (child == 0)
      for (;;) {
        make("any", &sharded);
        make("any", &single);
      }
    usleep((useconds_t)pen_rng_below(seed, 0, round, 20000));
    int status = 0;
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    check_contents(test_tmp("any"));
  }
  make("any", &single);
  assert_false(pen_files_exists(test_tmp("any.tmp")));
}

/* E14: room is taken at the start, so that too little is told then.  A file
 * size limit stands in for a full drive. */
static void test_no_room(void **state)
{
  make("room", &single);
  pid_t child = test_fork();
  if (child == 0) {
    struct rlimit limit = {20000, 20000};
    struct pen_hfdir_writer *w = NULL;
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &limit);
    int rc = pen_hfdir_create(test_tmp("room"), &single, true, &w);
    _exit(rc == -EFBIG && strstr(pen_error_text(), "are free there") ? 0 : 1);
  }
  int status = 0;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  assert_false(pen_files_exists(test_tmp("room.tmp")));
  check_contents(test_tmp("room"));
}

int main(void)
{
  test_tmpdir(); /* before any fork: the parent removes it */
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_round_trip), cmocka_unit_test(test_index),
    cmocka_unit_test(test_shard_size), cmocka_unit_test(test_no_model),
    cmocka_unit_test(test_target),     cmocka_unit_test(test_in_the_way),
    cmocka_unit_test(test_incomplete), cmocka_unit_test(test_killed),
    cmocka_unit_test(test_killed_anywhere), cmocka_unit_test(test_no_room),
  };
  return cmocka_run_group_tests_name("hfdir", tests, NULL, NULL);
}
