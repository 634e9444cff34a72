/* The file that drives are measured on: it has no name, its pages are known,
 * and what is no drive's I/O is refused. */
#include "src/bench/file.h"

#include <dirent.h>
#include <errno.h>

#include "src/bench/traffic.h"
#include "tests/bench/fake_drive.h"
#include "tests/tmpdir.h"

static struct pen_bench_file file;

static size_t n_entries(const char *path)
{
  size_t n = 0;
  DIR *dir = opendir(path);
  for (struct dirent *e; dir && (e = readdir(dir));)
    n += e->d_name[0] != '.';
  if (dir)
    closedir(dir);
  return n;
}

static const struct pen_bench_evidence good = {
  .note = "", .direct = true, .bytes = 1 << 20, .allocated_bytes = 1 << 20,
  .pages = 256};

static void test_what_is_no_drive(void **state)
{
  struct pen_bench_evidence e = good;
  test_ok(pen_bench_judge("D", &e));
  e.resident_pages = 2; /* somebody looked at a page */
  test_ok(pen_bench_judge("D", &e));
  e.resident_pages = 3;
  test_fails(pen_bench_judge("D", &e), PEN_EUNSUPPORTED, "the page cache holds");
  e = good;
  e.direct = false;
  test_fails(pen_bench_judge("D", &e), PEN_EUNSUPPORTED, "no direct I/O");
  e = good;
  e.note = "tmpfs keeps files in memory";
  test_fails(pen_bench_judge("D", &e), PEN_EUNSUPPORTED, "in D: tmpfs keeps");
  e = good;
  e.compressed = true;
  test_fails(pen_bench_judge("D", &e), PEN_EUNSUPPORTED, "compresses");
  e = good;
  e.unwritten = true;
  test_fails(pen_bench_judge("D", &e), PEN_EUNSUPPORTED, "sparse");
  e = good;
  e.allocated_bytes = 1000000;
  test_fails(pen_bench_judge("D", &e), PEN_EUNSUPPORTED, "sparse");
}

static void open_fake(uint64_t bytes)
{
  fake_drive = (struct fake_drive){.burst = 1e9, .sustained = 1e9, .read = 1e9};
  test_ok(pen_bench_file_open(&fake_drive_engine, "fake", bytes, &file));
}

/* Every page in its place, as last written; whatever else is told. */
static void test_every_page_is_known(void **state)
{
  enum { BYTES = 2 * 65536 };
  static _Alignas(4096) unsigned char a[BYTES], b[BYTES];
  open_fake(4 << 20);
  pen_bench_file_fill(&file, a, BYTES);
  memcpy(b, a, BYTES);
  pen_bench_file_stamp(&file, a, BYTES, 65536);
  test_ok(pen_bench_file_check(&file, a, BYTES, 65536, true));
  test_fails(pen_bench_file_check(&file, a, BYTES, 131072, false), PEN_ECORRUPT,
             "other bytes"); /* another place */
  memcpy(b, a, BYTES);
  pen_bench_file_stamp(&file, a, BYTES, 65536);
  test_fails(pen_bench_file_check(&file, b, BYTES, 65536, false), PEN_ECORRUPT,
             "in page 16"); /* older bytes */
  a[BYTES - 1] ^= 1;
  test_ok(pen_bench_file_check(&file, a, BYTES, 65536, false));
  test_fails(pen_bench_file_check(&file, a, BYTES, 65536, true), PEN_ECORRUPT,
             "in page 47");
  pen_bench_file_close(&file);
}

static void test_no_page_is_alike(void **state)
{
  static _Alignas(4096) unsigned char a[2][65536];
  open_fake(1 << 20);
  pen_bench_file_fill(&file, a[0], sizeof a[0]);
  pen_bench_file_fill(&file, a[1], sizeof a[1]);
  for (size_t i = 4096; i < sizeof a; i += 4096)
    assert_memory_not_equal(a[0], (unsigned char *)a + i, 4096);
  pen_bench_file_close(&file);
}

/* Every way round the file several times, in sizes that do not divide it: what
 * is there in the end is what was written. */
static void test_traffic_keeps_the_file_right(void **state)
{
  struct pen_bench_traffic *t = NULL;
  uint64_t bytes;
  double seconds;
  open_fake(16 << 20);
  test_ok(pen_bench_traffic_fill(&file, NULL));
  for (int way = 0; way < PEN_BENCH_WAYS; way++)
    for (size_t request = 65536; request <= 5 * 65536; request += 2 * 65536)
      for (size_t depth = 1; depth <= 8; depth *= 2) {
        struct pen_bench_traffic_options o = {
          .way = (enum pen_bench_way)way, .request = request, .depth = depth};
        test_ok(pen_bench_traffic_open(&file, &o, &t));
        test_ok(pen_bench_traffic_move(t, 40 << 20, 0, &bytes, &seconds));
        assert_true(bytes >= 40 << 20 && bytes < (40 << 20) + depth * request);
        test_ok(pen_bench_traffic_sync(t, &seconds));
        pen_bench_traffic_close(&t);
        test_ok(pen_bench_traffic_verify(&file, NULL));
      }
  struct pen_bench_traffic_options o = {.way = PEN_BENCH_UPDATE,
                                        .request = 1 << 20, .depth = 5};
  test_fails(pen_bench_traffic_open(&file, &o, &t), PEN_EUSAGE, "--bench-size");
  fake_drive.corrupts = true;
  test_fails(pen_bench_traffic_verify(&file, NULL), PEN_ECORRUPT, "fake gives back");
  pen_bench_file_close(&file);
}

/* Equal bytes each way, and read and written in different halves. */
static void test_an_update_goes_both_ways(void **state)
{
  struct pen_bench_traffic_options o = {.way = PEN_BENCH_UPDATE,
                                        .request = 65536, .depth = 4};
  struct pen_bench_traffic *t = NULL;
  uint64_t bytes;
  double seconds;
  open_fake(4 << 20);
  test_ok(pen_bench_traffic_fill(&file, NULL));
  uint64_t before = file.written_bytes;
  test_ok(pen_bench_traffic_open(&file, &o, &t));
  test_ok(pen_bench_traffic_move(t, 20 << 20, 0, &bytes, &seconds));
  uint64_t written = file.written_bytes - before;
  assert_true(written >= bytes / 2 - 4 * 65536 && written <= bytes / 2 + 4 * 65536);
  for (size_t grain = 0; grain < file.bytes / 65536; grain++)
    assert_true(file.serial[grain] > before / 65536); /* both halves were written */
  pen_bench_traffic_close(&t);
  pen_bench_file_close(&file);
}

static void test_on_a_real_drive(void **state)
{
  const struct pen_engine *engine = pen_engine_find("threads");
  int rc = pen_bench_file_open(engine, test_tmpdir(), 8 << 20, &file);
  if (rc == -PEN_EUNSUPPORTED) {
    printf("# %s\n", pen_error_text());
    pen_error_clear();
    pen_bench_file_close(&file);
    test_skip("no drive under %s", test_tmpdir());
  }
  test_ok(rc);
  assert_int_equal(n_entries(test_tmpdir()), 0); /* whoever is killed now leaves nothing */
  test_fails(pen_bench_file_look(&file), PEN_EUNSUPPORTED, "sparse"); /* reserved only */
  test_ok(pen_bench_traffic_fill(&file, NULL));
  test_ok(pen_bench_file_look(&file));
  test_ok(pen_bench_traffic_verify(&file, NULL));
  char page[4096]; /* through the cache */
  for (off_t at = 0; at < 8 << 20; at += 4096)
    assert_int_equal(pread(file.fd, page, sizeof page, at), sizeof page);
  test_fails(pen_bench_file_look(&file), PEN_EUNSUPPORTED, "the page cache holds");
  pen_bench_file_close(&file);
}

static void test_refused_at_once(void **state)
{
  const struct pen_engine *engine = pen_engine_find("threads");
  int rc = pen_bench_file_open(engine, test_tmpdir(), UINT64_C(1) << 55, &file);
  if (rc != -PEN_EUNSUPPORTED)
    assert_int_equal(rc, -PEN_ENOFIT);
  pen_error_clear();
  pen_bench_file_close(&file);
  assert_int_equal(n_entries(test_tmpdir()), 0);
  rc = pen_bench_file_open(engine, test_tmp("absent"), 8 << 20, &file);
  assert_int_equal(rc, -ENOENT);
  pen_error_clear();
  pen_bench_file_close(&file);
  open_fake(1 << 20);
  test_fails(pen_bench_file_look(&file), PEN_EUNSUPPORTED, "uses no drive");
  pen_bench_file_close(&file);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_what_is_no_drive),
    cmocka_unit_test(test_every_page_is_known),
    cmocka_unit_test(test_no_page_is_alike),
    cmocka_unit_test(test_traffic_keeps_the_file_right),
    cmocka_unit_test(test_an_update_goes_both_ways),
    cmocka_unit_test(test_on_a_real_drive),
    cmocka_unit_test(test_refused_at_once),
  };
  return cmocka_run_group_tests_name("file", tests, NULL, NULL);
}
