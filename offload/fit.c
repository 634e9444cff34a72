/* fit.c: demotes kinds of bytes, one after the other, until the layout fits;
 * then, with smaller rings, once more.
 *
 * Every try has the bytes of a real layout, so what fits here is what a run will
 * take.  At start, on the main thread.  Disadvantage: it knows bytes, not time: a
 * cost model would sometimes choose a slower tier for one kind to spare a faster
 * one for another. */
#include "offload/fit.h"

#include "base/error.h"
#include "base/size.h"

/* Slots of rings that nobody asked for by number: as many as keep lanes busy,
 * and fewer where nothing else makes room. */
struct rings {
  size_t weight, gradient, tile, activation;
};

static const struct rings rings[] = {
    {3, 2, 4, 4}, {2, 2, 3, 3}, {2, 1, 2, 2}, {1, 1, 1, 2}};
#define STREAMED_TILE_SLOTS 9

struct fitter {
  const struct pen_workload *w;
  const struct pen_fit_wish *wish;
  const struct pen_fit_limits *limits;
  struct pen_placement p;
  uint64_t tier_bytes[PEN_TIERS];
  bool streams_state; /* some of it is on drives */
  bool head_is_near; /* its weights are at home where compute reads */
};

static int measure(struct fitter *f)
{
  struct pen_layout l;
  int rc = pen_layout_outline(&l, f->w, &f->p);
  if (rc < 0)
    return rc;
  for (int t = 0; t < PEN_TIERS; t++)
    f->tier_bytes[t] = l.tier_bytes[t];
  f->streams_state = l.n_store_tiles > 0;
  f->head_is_near = true;
  for (size_t b = f->w->head_begin; b < f->w->head_end; b++)
    f->head_is_near &= l.slots[l.weight_home[b]].tier == l.compute_tier;
  pen_layout_done(&l);
  return 0;
}

static uint64_t need(const struct fitter *f, enum pen_tier tier)
{
  return f->tier_bytes[tier] +
         (tier == PEN_TIER_HOST ? f->limits->host_taken_bytes : 0);
}

static uint64_t excess(const struct fitter *f, enum pen_tier tier)
{
  uint64_t limit = tier == PEN_TIER_DEVICE ? f->limits->device_bytes
                                           : f->limits->host_bytes;
  if (tier == PEN_TIER_DEVICE && f->wish->unified)
    return 0;
  return need(f, tier) > limit ? need(f, tier) - limit : 0;
}

static bool fits(const struct fitter *f)
{
  return !excess(f, PEN_TIER_DEVICE) && !excess(f, PEN_TIER_HOST);
}

static void wish_budgets(struct fitter *f)
{
  const struct pen_fit_wish *w = f->wish;
  struct pen_placement *p = &f->p;
  p->weights_device_bytes =
      w->weights == PEN_FIT_AUTO || w->weights == PEN_FIT_DEVICE
          ? PEN_ALL_BYTES : 0;
  p->weights_host_bytes = w->weights == PEN_FIT_NVME ? 0 : PEN_ALL_BYTES;
  p->gradients_host_bytes = w->gradients == PEN_FIT_NVME ? 0 : PEN_ALL_BYTES;
  p->state_host_bytes = w->state == PEN_FIT_NVME ? 0 : PEN_ALL_BYTES;
  if (w->state == PEN_FIT_AUTO && w->state_host_most && f->limits->has_nvme)
    p->state_host_bytes = w->state_host_most;
  p->state_device_bytes =
      w->state == PEN_FIT_DEVICE ||
              (w->state == PEN_FIT_AUTO && w->gradients == PEN_FIT_AUTO)
          ? PEN_ALL_BYTES : 0;
  p->activations_device_bytes =
      w->activations == PEN_FIT_AUTO || w->activations == PEN_FIT_DEVICE
          ? PEN_ALL_BYTES : 0;
  p->activations_host_bytes =
      w->activations == PEN_FIT_NVME ? 0 : PEN_ALL_BYTES;
}

/* Between one micro-batch at a time, which keeps fp32 sums of every block, and
 * all at once, which keeps all their activations: whichever needs less. */
static int choose_group(struct fitter *f)
{
  f->p.group_size = f->wish->group_size;
  if (f->wish->group_size || f->w->n_micros_max == 1)
    return measure(f);
  f->p.group_size = 1;
  int rc = measure(f);
  uint64_t one = f->tier_bytes[PEN_TIER_HOST] + f->tier_bytes[PEN_TIER_DEVICE];
  f->p.group_size = f->w->n_micros_max;
  if (rc == 0)
    rc = measure(f);
  uint64_t all = f->tier_bytes[PEN_TIER_HOST] + f->tier_bytes[PEN_TIER_DEVICE];
  if (rc == 0 && one < all) {
    f->p.group_size = 1;
    rc = measure(f);
  }
  return rc;
}

/* Lowers a budget by what is too much in `tier`; what it held before is `held`
 * at most.  Repeats, since rings appear when the first piece leaves; where they
 * are larger than what left, the budget stays as it was. */
static int squeeze(struct fitter *f, uint64_t *budget, uint64_t held,
                   enum pen_tier tier)
{
  uint64_t budget_before = *budget, bytes_before = f->tier_bytes[tier];
  int rc = 0;
  if (*budget > held)
    *budget = held;
  while (rc == 0 && excess(f, tier) && *budget > 0) {
    uint64_t over = excess(f, tier);
    *budget = *budget > over ? *budget - over : 0;
    rc = measure(f);
  }
  if (rc == 0 && f->tier_bytes[tier] > bytes_before) {
    *budget = budget_before;
    rc = measure(f);
  }
  return rc;
}

static uint64_t held_bytes(const struct fitter *f, size_t elem_bytes)
{
  uint64_t sum = 0;
  for (size_t b = 0; b < f->w->n_blocks; b++)
    sum += f->w->blocks[b].elems * elem_bytes + PEN_SLOT_ALIGN;
  return sum;
}

static uint64_t held_state(const struct fitter *f)
{
  uint64_t sum = 0;
  for (size_t b = 0; b < f->w->n_blocks; b++)
    sum += pen_state_bytes(f->w->state, f->w->blocks[b].elems) +
           pen_state_half_bytes(f->w->state, f->w->blocks[b].elems) +
           2 * PEN_SLOT_ALIGN;
  return sum;
}

static uint64_t held_activations(const struct fitter *f)
{
  size_t n_body = f->w->body_end - f->w->body_begin;
  return (f->w->act_bytes + PEN_SLOT_ALIGN) * n_body * f->w->n_micros_max;
}

/* Where state streams from drives and memory is left, more tiles are in flight:
 * lanes that wait for each other by the tile have more to go on with. */
static int widen_tiles(struct fitter *f)
{
  size_t usual = f->p.tile_slots;
  if (f->wish->tile_slots || f->wish->inference || !f->streams_state ||
      usual < rings[0].tile)
    return 0;
  f->p.tile_slots = STREAMED_TILE_SLOTS;
  int rc = measure(f);
  if (rc == 0 && !fits(f)) {
    f->p.tile_slots = usual;
    rc = measure(f);
  }
  return rc;
}

/* What is left is for logits.  Not where several micro-batches of a group would
 * then move the head's weights, or on a device of its own its sums, once each. */
static int keep_logits(struct fitter *f)
{
  size_t n = f->w->head_end - f->w->head_begin;
  bool moves_more =
      f->p.group_size > 1 && !(f->wish->unified && f->head_is_near);
  int rc = 0;
  if (f->wish->inference || moves_more ||
      f->wish->recompute_head_blocks != PEN_FIT_RECOMPUTE_AUTO)
    return 0;
  for (size_t again = 0; rc == 0 && again <= n; again++) {
    f->p.recompute_head_blocks = again;
    rc = measure(f);
    if (fits(f))
      break;
  }
  return rc;
}

/* State, with the gradients and sums that stay with it. */
static int move_state_away(struct fitter *f)
{
  size_t per_elem = f->w->weight_elem_bytes + sizeof(float);
  uint64_t held = held_state(f) + held_bytes(f, per_elem);
  return squeeze(f, &f->p.state_device_bytes, held, PEN_TIER_DEVICE);
}

static int relieve_device(struct fitter *f)
{
  struct pen_placement *p = &f->p;
  int rc = 0;
  if (f->wish->activations == PEN_FIT_AUTO)
    rc = squeeze(f, &p->activations_device_bytes, held_activations(f),
                 PEN_TIER_DEVICE);
  if (rc == 0 && f->wish->weights == PEN_FIT_AUTO &&
      f->wish->state != PEN_FIT_DEVICE) /* which is beside them */
    rc = squeeze(f, &p->weights_device_bytes,
                 held_bytes(f, f->w->weight_elem_bytes), PEN_TIER_DEVICE);
  return rc;
}

static int relieve_host(struct fitter *f)
{
  struct pen_placement *p = &f->p;
  size_t elem = f->w->weight_elem_bytes;
  int rc = 0;
  if (f->wish->state == PEN_FIT_AUTO)
    rc = squeeze(f, &p->state_host_bytes, held_state(f), PEN_TIER_HOST);
  if (rc == 0 && f->wish->gradients == PEN_FIT_AUTO)
    rc = squeeze(f, &p->gradients_host_bytes, held_bytes(f, elem),
                 PEN_TIER_HOST);
  if (rc == 0 && f->wish->weights == PEN_FIT_AUTO)
    rc = squeeze(f, &p->weights_host_bytes, held_bytes(f, elem),
                 PEN_TIER_HOST);
  if (rc < 0 || f->wish->activations != PEN_FIT_AUTO || !excess(f, PEN_TIER_HOST))
    return rc;
  if (f->wish->unified) /* there both budgets are RAM */
    p->activations_device_bytes = 0;
  return squeeze(f, &p->activations_host_bytes, held_activations(f),
                 PEN_TIER_HOST);
}

static int no_fit(const struct fitter *f)
{
  enum pen_tier tier =
      excess(f, PEN_TIER_DEVICE) ? PEN_TIER_DEVICE : PEN_TIER_HOST;
  uint64_t over = excess(f, tier);
  char over_text[PEN_SIZE_TEXT_BYTES], need_text[PEN_SIZE_TEXT_BYTES];
  pen_size_format(over, over_text);
  pen_size_format(need(f, tier), need_text);
  const char *help =
      tier == PEN_TIER_DEVICE
          ? "raise --device-memory, or lower --per-device-train-batch-size or "
            "--max-length"
      : f->limits->has_nvme
          ? "lower --per-device-train-batch-size or --max-length, or raise "
            "--host-memory"
          : "give a drive with --nvme-path DIR, lower "
            "--per-device-train-batch-size or --max-length, or raise "
            "--host-memory";
  return pen_error_set(PEN_ENOFIT,
                       "does not fit: this needs %s (%llu bytes) of %s "
                       "memory, %s (%llu bytes) more than there is; %s",
                       need_text, (unsigned long long)need(f, tier),
                       pen_tier_name(tier), over_text,
                       (unsigned long long)over, help);
}

static bool is_away(enum pen_fit_place place)
{
  return place == PEN_FIT_HOST || place == PEN_FIT_NVME;
}

/* State asked for on a device that cannot have it there. */
static int check_state(const struct fitter *f)
{
  if (f->wish->state != PEN_FIT_DEVICE || f->wish->unified)
    return 0;
  if (is_away(f->wish->weights) || is_away(f->wish->gradients))
    return pen_error_set(PEN_EUSAGE,
                         "--offload-optimizer none: a device keeps state only "
                         "beside its weights and gradients; leave out %s",
                         is_away(f->wish->weights) ? "--offload-params"
                                                   : "--offload-gradients");
  return 0;
}

static size_t slots(size_t asked, size_t usual) { return asked ? asked : usual; }

static struct pen_placement begin_with(const struct pen_fit_wish *wish,
                                       const struct rings *r)
{
  size_t tile_slots = wish->inference ? 1 : r->tile;
  return (struct pen_placement){
      .unified = wish->unified,
      .inference = wish->inference,
      .recompute_blocks = wish->recompute_blocks == PEN_FIT_RECOMPUTE_AUTO
                              ? 0 : wish->recompute_blocks,
      .recompute_head_blocks = wish->recompute_head_blocks, /* AUTO: all */
      .speculative_blocks = wish->speculative_blocks,
      .updates_in_place = wish->updates_in_place,
      .tile_elems = wish->tile_elems,
      .weight_slots = slots(wish->weight_slots, r->weight),
      .gradient_slots = slots(wish->gradient_slots, r->gradient),
      .tile_slots = slots(wish->tile_slots, tile_slots),
      .activation_slots = slots(wish->activation_slots, r->activation)};
}

static bool may_recompute(const struct fitter *f)
{
  return !f->wish->inference &&
         f->wish->recompute_blocks == PEN_FIT_RECOMPUTE_AUTO;
}

/* One kind of bytes after the other, with rings as they are.  recompute_first:
 * before state leaves the device, where the host lacks room for all of it. */
static int demote(struct fitter *f, bool recompute_first)
{
  const struct pen_fit_wish *wish = f->wish;
  wish_budgets(f);
  if (recompute_first)
    f->p.recompute_blocks = f->w->body_end - f->w->body_begin;
  int rc = choose_group(f);
  if (rc == 0 && excess(f, PEN_TIER_DEVICE) && wish->state == PEN_FIT_AUTO)
    rc = move_state_away(f);
  if (rc == 0 && !fits(f) && may_recompute(f)) {
    f->p.recompute_blocks = f->w->body_end - f->w->body_begin;
    rc = choose_group(f);
  }
  if (rc == 0 && excess(f, PEN_TIER_DEVICE))
    rc = relieve_device(f);
  if (rc == 0 && excess(f, PEN_TIER_HOST) && f->limits->has_nvme)
    rc = relieve_host(f);
  return rc;
}

int pen_fit(const struct pen_workload *workload,
            const struct pen_fit_wish *wish,
            const struct pen_fit_limits *limits,
            struct pen_placement *ret_placement)
{
  struct fitter f = {.w = workload, .wish = wish, .limits = limits};
  int rc = check_state(&f);
  bool done = false;
  for (size_t i = 0; rc == 0 && !done && i < sizeof rings / sizeof *rings; i++) {
    f.p = begin_with(wish, &rings[i]);
    rc = demote(&f, false);
    done = fits(&f);
    if (rc < 0 || done || wish->unified || !may_recompute(&f))
      continue;
    f.p = begin_with(wish, &rings[i]);
    rc = demote(&f, true);
    done = fits(&f);
  }
  if (rc == 0 && done)
    rc = widen_tiles(&f);
  if (rc == 0 && done)
    rc = keep_logits(&f);
  if (rc < 0)
    return rc;
  *ret_placement = f.p;
  return done ? 0 : no_fit(&f);
}
