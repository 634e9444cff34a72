/* Saved state, by element: what was written comes back whatever the tiles, and
 * every damaged file is refused with the place. */
#include "tests/test.h"

#include <fcntl.h>

#include "io/files.h"
#include "src/train/saved.h"
#include "tests/tmpdir.h"

#define BLOCKS 2
#define CHUNK PEN_NORM_CHUNK_ELEMS

static const size_t block_elems[BLOCKS] = {2 * CHUNK + 192, 64};

/* A layout with only what saving asks of one. */
struct small {
  struct pen_layout layout;
  struct pen_tile tiles[8];
};

static void small_init(struct small *s, size_t tile_elems, uint32_t in_store)
{
  *s = (struct small){0};
  uint32_t n_store = 0;
  for (uint32_t b = 0; b < BLOCKS; b++)
    for (size_t e = 0; e < block_elems[b]; e += tile_elems) {
      size_t left = block_elems[b] - e;
      uint32_t t = (uint32_t)s->layout.n_tiles++;
      bool stored = in_store & (1u << t);
      s->tiles[t] = (struct pen_tile){
          b, e, left < tile_elems ? left : tile_elems,
          stored ? UINT32_MAX : 0, stored ? n_store++ : UINT32_MAX, UINT32_MAX};
    }
  s->layout.state = &pen_state_fp32;
  s->layout.tiles = s->tiles;
  s->layout.n_store_tiles = n_store;
}

static float value(uint32_t block, size_t elem, int which)
{
  return (float)(block * 1000000 + elem) + 0.25f * (float)which;
}

static const struct pen_cursor cursor = {.magic = PEN_CURSOR_MAGIC,
                                         .version = PEN_CURSOR_VERSION,
                                         .step = 7,
                                         .applied = 6,
                                         .tile_elems = CHUNK};

static void write_state(const char *path, const struct small *s)
{
  struct pen_saved_writer *w;
  test_ok(pen_saved_create(path, &s->layout, &cursor, 3, &w));
  float *state = malloc(3 * 3 * CHUNK * sizeof *state);
  for (size_t i = s->layout.n_tiles; i-- > 0;) { /* any order */
    const struct pen_tile *t = &s->tiles[i];
    if (t->store_tile != UINT32_MAX)
      continue;
    for (int which = 0; which < 3; which++)
      for (size_t e = 0; e < t->elems; e++)
        state[(size_t)which * t->elems + e] =
            value(t->block, t->begin + e, which);
    test_ok(pen_saved_put_tile(w, (uint32_t)i, state, NULL));
  }
  free(state);
  struct pen_store_place places[8] = {
      {.dir = 1, .crc = 2, .extent = 3, .bytes = 4096},
      {.dir = 0, .crc = 5, .extent = 6, .bytes = 8192}};
  test_ok(pen_saved_put_places(w, places));
  test_ok(pen_saved_finish(&w));
}

static void check_range(struct pen_saved *saved, uint32_t block, size_t begin,
                        size_t n)
{
  float *p = malloc(3 * n * sizeof *p), *m = p + n, *v = m + n;
  test_ok(pen_saved_read(saved, block, begin, n, p, m, v));
  for (size_t i = 0; i < n; i++)
    if (p[i] != value(block, begin + i, 0) ||
        m[i] != value(block, begin + i, 1) || v[i] != value(block, begin + i, 2))
      fail_msg("element %zu of block %u", begin + i, block);
  free(p);
}

static void test_reads_across_tiles(void **state)
{
  (void)state;
  struct small s;
  for (size_t tile = CHUNK; tile <= 3 * CHUNK; tile += CHUNK) {
    const char *path = test_tmp("state");
    struct pen_saved *saved;
    small_init(&s, tile, 0);
    write_state(path, &s);
    test_ok(pen_saved_open(path, &saved));
    assert_int_equal(pen_saved_cursor(saved)->step, 7);
    assert_true(pen_saved_matches(saved, &s.layout));
    check_range(saved, 0, 0, block_elems[0]);
    check_range(saved, 0, CHUNK - 5, 11);
    check_range(saved, 1, 60, 4);
    float x;
    test_fails(pen_saved_read(saved, 2, 0, 1, &x, &x, &x), PEN_EMISMATCH,
               "another model's");
    test_fails(pen_saved_read(saved, 0, block_elems[0], 1, &x, &x, &x),
               PEN_EMISMATCH, "does not hold element");
    pen_saved_close(&saved);
  }
}

static void test_places_of_store_tiles(void **state)
{
  (void)state;
  struct small s, other;
  struct pen_saved *saved;
  const char *path = test_tmp("mixed");
  size_t n;
  small_init(&s, CHUNK, 2 | 8); /* tiles 1 and 3 are in the store */
  write_state(path, &s);
  test_ok(pen_saved_open(path, &saved));
  const struct pen_store_place *places = pen_saved_places(saved, &n);
  assert_int_equal(n, 2);
  assert_int_equal(places[0].extent, 3);
  assert_int_equal(places[1].bytes, 8192);
  assert_int_equal(pen_saved_generation(saved), 3);
  assert_true(pen_saved_matches(saved, &s.layout));
  small_init(&other, CHUNK, 2);
  assert_false(pen_saved_matches(saved, &other.layout));
  small_init(&other, 2 * CHUNK, 2);
  assert_false(pen_saved_matches(saved, &other.layout));
  check_range(saved, 0, 0, CHUNK);
  pen_saved_close(&saved);
}

/* Any one byte changed, or the file cut anywhere, is refused at open or at the
 * read that meets it. */
static void test_damage_is_found(void **state)
{
  (void)state;
  struct small s;
  const char *path = test_tmp("damaged");
  char *bytes;
  size_t n;
  small_init(&s, CHUNK, 0);
  write_state(path, &s);
  test_ok(pen_files_read_whole(path, SIZE_MAX / 2, &bytes, &n));
  float *x = malloc(3 * block_elems[0] * sizeof *x);
  for (size_t at = 0; at < n; at += at < 256 ? 1 : n / 97) {
    bool is_padding = (at >= sizeof(uint64_t) * 16 && at < 4096);
    struct pen_saved *saved = NULL;
    bytes[at] ^= 0x40;
    test_write_file(path, bytes, n);
    int rc = pen_saved_open(path, &saved);
    for (uint32_t b = 0; rc == 0 && b < BLOCKS; b++)
      rc = pen_saved_read(saved, b, 0, block_elems[b], x, x + block_elems[b],
                          x + 2 * block_elems[b]);
    /* Bytes between tiles, and of the header's page, belong to nothing. */
    if (rc == 0 && !is_padding) {
      bool used = false;
      for (size_t i = 0; i < pen_saved_n_tiles(saved); i++) {
        const struct pen_saved_tile *t = pen_saved_tile(saved, i);
        used |= at >= t->offset && at < t->offset + t->elems * 12;
      }
      assert_false(used);
    }
    pen_error_clear();
    pen_saved_close(&saved);
    bytes[at] ^= 0x40;
  }
  for (size_t cut = 0; cut < n; cut += n / 50 + 1) {
    struct pen_saved *saved = NULL;
    test_write_file(path, bytes, cut);
    assert_true(pen_saved_open(path, &saved) < 0);
    pen_error_clear();
  }
  free(x);
  free(bytes);
}

static void test_unfinished_is_no_state(void **state)
{
  (void)state;
  struct small s;
  struct pen_saved_writer *w;
  struct pen_saved *saved = NULL;
  const char *path = test_tmp("unfinished");
  small_init(&s, CHUNK, 0);
  test_ok(pen_saved_create(path, &s.layout, &cursor, 0, &w));
  pen_saved_abandon(&w);
  test_fails(pen_saved_open(path, &saved), PEN_ECORRUPT, "not a whole state");
  assert_null(saved);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_reads_across_tiles),
      cmocka_unit_test(test_places_of_store_tiles),
      cmocka_unit_test(test_damage_is_found),
      cmocka_unit_test(test_unfinished_is_no_state),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
