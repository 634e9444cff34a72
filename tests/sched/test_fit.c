/* The placement rule: as close as it fits, what was wished for is not moved, and
 * what cannot fit says by how many bytes. */
#include "tests/test.h"

#include "offload/fit.h"
#include "offload/schedule.h"
#include "tests/sched/toy.h"

static struct pen_fit_wish plain_wish(void)
{
  return (struct pen_fit_wish){.unified = true,
                               .recompute_blocks = PEN_FIT_RECOMPUTE_AUTO,
                               .recompute_head_blocks = PEN_FIT_RECOMPUTE_AUTO,
                               .tile_elems = PEN_NORM_CHUNK_ELEMS,
                               .weight_slots = 2,
                               .gradient_slots = 2,
                               .tile_slots = 2,
                               .activation_slots = 3};
}

static uint64_t bytes_of(const struct toy *toy, const struct pen_placement *p,
                         enum pen_tier tier)
{
  struct pen_layout l;
  test_ok(pen_layout_init(&l, &toy->workload, p));
  uint64_t bytes = l.tier_bytes[tier];
  pen_layout_done(&l);
  return bytes;
}

static void test_enough_memory_moves_nothing(void **state)
{
  (void)state;
  struct toy toy;
  toy_init(&toy, true, 3);
  struct pen_fit_wish wish = plain_wish();
  struct pen_fit_limits limits = {.host_bytes = PEN_ALL_BYTES,
                                  .has_nvme = true};
  struct pen_placement p;
  test_ok(pen_fit(&toy.workload, &wish, &limits, &p));
  assert_int_equal(p.recompute_blocks, 0);
  assert_int_equal(p.recompute_head_blocks, 0);
  assert_int_equal(bytes_of(&toy, &p, PEN_TIER_NVME), 0);
  assert_int_equal(bytes_of(&toy, &p, PEN_TIER_DEVICE), 0);
}

/* From what all takes down to what is least: each limit is kept, and as much
 * stays in RAM as fits. */
static void test_every_limit_is_kept(void **state)
{
  (void)state;
  struct toy toy;
  toy_init(&toy, false, 3);
  struct pen_fit_wish wish = plain_wish();
  struct pen_fit_limits limits = {.host_bytes = PEN_ALL_BYTES,
                                  .has_nvme = true};
  struct pen_placement p;
  test_ok(pen_fit(&toy.workload, &wish, &limits, &p));
  uint64_t all = bytes_of(&toy, &p, PEN_TIER_HOST), fitted = 0, spilled = 0;
  for (int percent = 99; percent > 0; percent--) {
    limits.host_bytes = all * (uint64_t)percent / 100;
    int rc = pen_fit(&toy.workload, &wish, &limits, &p);
    if (rc == -PEN_ENOFIT) {
      pen_error_clear();
      break;
    }
    test_ok(rc);
    fitted++;
    assert_true(bytes_of(&toy, &p, PEN_TIER_HOST) <= limits.host_bytes);
    struct pen_layout l;
    test_ok(pen_layout_init(&l, &toy.workload, &p));
    spilled += l.n_store_tiles > 0;
    pen_layout_done(&l);
  }
  assert_true(fitted > 10);
  assert_true(spilled > 0);
}

/* Kept logits go first, block by block, and before anything else does. */
static void test_logits_go_first(void **state)
{
  (void)state;
  struct toy toy;
  toy_init(&toy, true, 3);
  size_t n = toy.workload.head_end - toy.workload.head_begin;
  for (size_t b = toy.workload.head_begin; b < toy.workload.head_end; b++)
    toy.blocks[b].saved_bytes = 1 << 20;
  struct pen_fit_wish wish = plain_wish();
  struct pen_fit_limits limits = {.host_bytes = PEN_ALL_BYTES,
                                  .has_nvme = true};
  struct pen_placement p;
  test_ok(pen_fit(&toy.workload, &wish, &limits, &p));
  uint64_t all = bytes_of(&toy, &p, PEN_TIER_HOST);
  for (size_t missing = 0; missing <= n; missing++) {
    limits.host_bytes = all - ((uint64_t)missing << 20);
    test_ok(pen_fit(&toy.workload, &wish, &limits, &p));
    assert_int_equal(p.recompute_head_blocks, missing);
    assert_int_equal(p.recompute_blocks, 0);
    assert_int_equal(bytes_of(&toy, &p, PEN_TIER_NVME), 0);
  }
  /* Where the head's weights come from a drive, a group's micro-batches pass
   * it together. */
  limits.host_bytes = PEN_ALL_BYTES;
  wish.weights = PEN_FIT_NVME;
  wish.group_size = 3;
  test_ok(pen_fit(&toy.workload, &wish, &limits, &p));
  assert_true(p.recompute_head_blocks >= n);
  wish.group_size = 1;
  test_ok(pen_fit(&toy.workload, &wish, &limits, &p));
  assert_int_equal(p.recompute_head_blocks, 0);
}

static void test_without_drives_it_says_so(void **state)
{
  (void)state;
  struct toy toy;
  toy_init(&toy, true, 2);
  struct pen_fit_wish wish = plain_wish();
  struct pen_fit_limits limits = {.host_bytes = 100000};
  struct pen_placement p;
  test_fails(pen_fit(&toy.workload, &wish, &limits, &p), PEN_ENOFIT,
             "--nvme-path");
  /* The number it names is the number that is missing. */
  uint64_t need = bytes_of(&toy, &p, PEN_TIER_HOST);
  char expected[64];
  snprintf(expected, sizeof expected, "(%llu bytes) more than there is",
           (unsigned long long)(need - limits.host_bytes));
  test_fails(pen_fit(&toy.workload, &wish, &limits, &p), PEN_ENOFIT, expected);
  limits.host_bytes = need;
  test_ok(pen_fit(&toy.workload, &wish, &limits, &p));
  /* So it is where others take more than all there is. */
  limits.host_taken_bytes = 2 * need;
  snprintf(expected, sizeof expected, "(%llu bytes) more than there is",
           (unsigned long long)limits.host_taken_bytes);
  test_fails(pen_fit(&toy.workload, &wish, &limits, &p), PEN_ENOFIT, expected);
}

static void test_a_wish_is_not_moved(void **state)
{
  (void)state;
  struct toy toy;
  toy_init(&toy, true, 2);
  struct pen_fit_wish wish = plain_wish();
  struct pen_fit_limits limits = {.host_bytes = PEN_ALL_BYTES,
                                  .has_nvme = true};
  struct pen_placement p;
  wish.state = PEN_FIT_HOST;
  wish.gradients = PEN_FIT_HOST;
  wish.weights = PEN_FIT_HOST;
  wish.recompute_blocks = 0;
  test_ok(pen_fit(&toy.workload, &wish, &limits, &p));
  limits.host_bytes = bytes_of(&toy, &p, PEN_TIER_HOST) / 2;
  test_fails(pen_fit(&toy.workload, &wish, &limits, &p), PEN_ENOFIT,
             "does not fit");
  assert_true(p.state_host_bytes == PEN_ALL_BYTES);

  wish = plain_wish();
  wish.state = PEN_FIT_NVME;
  limits.host_bytes = PEN_ALL_BYTES;
  test_ok(pen_fit(&toy.workload, &wish, &limits, &p));
  assert_int_equal(p.state_host_bytes, 0);
  assert_true(p.weights_host_bytes == PEN_ALL_BYTES);
}

static void test_a_part_of_the_state_is_in_ram(void **state)
{
  (void)state;
  struct toy toy;
  toy_init(&toy, true, 2);
  struct pen_fit_wish wish = plain_wish();
  struct pen_fit_limits limits = {.host_bytes = PEN_ALL_BYTES,
                                  .has_nvme = true};
  struct pen_placement p;
  struct pen_layout l;
  test_ok(pen_fit(&toy.workload, &wish, &limits, &p));
  test_ok(pen_layout_init(&l, &toy.workload, &p));
  uint64_t home = l.slots[l.tiles[0].state_home].bytes;
  assert_true(l.n_tiles > 2 && l.n_store_tiles == 0);
  pen_layout_done(&l);

  wish.state_host_most = 2 * home; /* of the first tiles */
  test_ok(pen_fit(&toy.workload, &wish, &limits, &p));
  test_ok(pen_layout_init(&l, &toy.workload, &p));
  uint64_t in_ram = 0;
  for (size_t t = 0; t < l.n_tiles; t++)
    in_ram += l.tiles[t].state_home != PEN_NONE ? l.slots[l.tiles[t].state_home].bytes : 0;
  assert_true(l.tiles[0].state_home != PEN_NONE && l.n_store_tiles > 0);
  assert_true(in_ram > 0 && in_ram <= 2 * home);
  pen_layout_done(&l);

  limits.has_nvme = false; /* nowhere to go */
  test_ok(pen_fit(&toy.workload, &wish, &limits, &p));
  assert_true(p.state_host_bytes == PEN_ALL_BYTES);
}

static void test_a_small_device_holds_what_it_can(void **state)
{
  (void)state;
  struct toy toy;
  toy_init(&toy, false, 2);
  struct pen_fit_wish wish = plain_wish();
  wish.unified = false;
  wish.weight_slots = 1;
  struct pen_fit_limits limits = {.device_bytes = PEN_ALL_BYTES,
                                  .host_bytes = PEN_ALL_BYTES};
  struct pen_placement p;
  test_ok(pen_fit(&toy.workload, &wish, &limits, &p));
  uint64_t all = bytes_of(&toy, &p, PEN_TIER_DEVICE);
  limits.device_bytes = all - 100000;
  test_ok(pen_fit(&toy.workload, &wish, &limits, &p));
  uint64_t now = bytes_of(&toy, &p, PEN_TIER_DEVICE);
  assert_true(now <= limits.device_bytes);
  limits.device_bytes = 4096;
  test_fails(pen_fit(&toy.workload, &wish, &limits, &p), PEN_ENOFIT,
             "--device-memory");
}

/* Rings shrink, and only then, where all that can leave has left; never those
 * that were asked for. */
static void test_rings_shrink_last(void **state)
{
  (void)state;
  struct toy toy;
  toy_init(&toy, false, 2);
  struct pen_fit_wish wish = plain_wish();
  wish.unified = false;
  wish.weight_slots = wish.gradient_slots = wish.tile_slots = 0;
  wish.activation_slots = 0;
  struct pen_fit_limits limits = {.device_bytes = PEN_ALL_BYTES,
                                  .host_bytes = PEN_ALL_BYTES};
  struct pen_placement p;
  test_ok(pen_fit(&toy.workload, &wish, &limits, &p));
  assert_int_equal(p.weight_slots, 3);
  assert_int_equal(p.gradient_slots, 2);
  assert_int_equal(p.tile_slots, 4);
  assert_int_equal(p.activation_slots, 4);
  struct pen_fit_wish usual = wish;
  usual.weight_slots = 3;
  usual.gradient_slots = 2;
  usual.tile_slots = usual.activation_slots = 4;
  uint64_t all = bytes_of(&toy, &p, PEN_TIER_DEVICE);
  size_t slots = 3;
  for (limits.device_bytes = all;; limits.device_bytes -= 4096) {
    int rc = pen_fit(&toy.workload, &wish, &limits, &p);
    if (rc == -PEN_ENOFIT)
      break;
    test_ok(rc);
    assert_true(bytes_of(&toy, &p, PEN_TIER_DEVICE) <= limits.device_bytes);
    assert_true(p.weight_slots <= slots);
    slots = p.weight_slots;
    struct pen_placement q;
    int asked = pen_fit(&toy.workload, &usual, &limits, &q);
    assert_int_equal(asked, p.weight_slots == 3 ? 0 : -PEN_ENOFIT);
    pen_error_clear();
  }
  pen_error_clear();
  assert_int_equal(slots, 1);
}

/* State from a drive passes nine slots where memory is left for them, four where it
 * is not; nothing leaves RAM for them. */
static void test_more_tiles_fly_from_drives(void **state)
{
  (void)state;
  struct toy toy;
  toy_init(&toy, false, 2);
  struct pen_fit_wish wish = plain_wish();
  wish.state = PEN_FIT_NVME;
  wish.tile_slots = wish.recompute_blocks = wish.recompute_head_blocks = 0;
  struct pen_fit_limits limits = {.host_bytes = PEN_ALL_BYTES,
                                  .has_nvme = true};
  struct pen_placement p;
  test_ok(pen_fit(&toy.workload, &wish, &limits, &p));
  assert_int_equal(p.tile_slots, 9);
  struct pen_placement four = p;
  four.tile_slots = 4;
  limits.host_bytes = bytes_of(&toy, &p, PEN_TIER_HOST) - 1;
  assert_true(bytes_of(&toy, &four, PEN_TIER_HOST) <= limits.host_bytes);
  test_ok(pen_fit(&toy.workload, &wish, &limits, &p));
  assert_int_equal(p.tile_slots, 4);
  assert_true(p.gradients_host_bytes == PEN_ALL_BYTES);
  wish.tile_slots = 3;
  limits.host_bytes = PEN_ALL_BYTES;
  test_ok(pen_fit(&toy.workload, &wish, &limits, &p));
  assert_int_equal(p.tile_slots, 3);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_enough_memory_moves_nothing),
      cmocka_unit_test(test_every_limit_is_kept),
      cmocka_unit_test(test_logits_go_first),
      cmocka_unit_test(test_without_drives_it_says_so),
      cmocka_unit_test(test_a_wish_is_not_moved),
    cmocka_unit_test(test_a_part_of_the_state_is_in_ram),
      cmocka_unit_test(test_a_small_device_holds_what_it_can),
      cmocka_unit_test(test_rings_shrink_last),
      cmocka_unit_test(test_more_tiles_fly_from_drives),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
