/* plan_ways.c: what would make a plan fit: the cheapest sets of changes, each no
 * larger than it has to be.
 *
 * A lever is a change that can only help.  Sets of levers are pulled to the end,
 * from the cheapest up; where one fits, each of its levers is let back as far as
 * it still does.  Only bytes are asked for, nothing is simulated.  Main thread.
 * Disadvantage: prices are an order among levers, not money. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/size.h"
#include "offload/gpus.h"
#include "src/cli/plan.h"
#include "src/train/drives.h"

enum lever { BATCH, LENGTH, DRIVE, RAM, DEVICE, LEVERS };

/* A smaller micro-batch costs time, shorter sequences what is learned, the
 * others money. */
static const unsigned prices[LEVERS] = {1, 3, 10, 30, 100};

#define RAM_MOST (UINT64_C(1) << 50)

struct finder {
  const struct pen_plan_case *question;
  struct pen_plan_change *changes;
  size_t n;
  uint32_t max_length;
  uint64_t ram, ram_step;
  struct {
    unsigned set;
    uint64_t ram, device;
  } found[PEN_PLAN_CHANGES_MAX];
};

/* How far each lever is pulled. */
struct pull {
  uint64_t halvings;  /* of the micro-batch, accumulation doubled */
  uint32_t length;
  bool drive;
  uint64_t ram_steps; /* more RAM */
  uint64_t device;    /* bytes, or the size of a GPU; 0: as it is */
};

static bool has_gpu(const struct finder *f)
{
  return f->question->has_machine &&
         pen_machine_has_device(&f->question->machine);
}

static bool is_discrete(const struct finder *f)
{
  return !f->question->settings.machine.wish.unified;
}

/* ---- asking ---- */

/* For a plan that asks only for bytes, any will do. */
static void add_drive(struct pen_machine_settings *m)
{
  m->nvme_dirs = pen_drives_names();
  m->n_nvme_dirs = 1;
  m->described_drives = true;
}

static uint64_t device_bytes(const struct finder *f, uint64_t bytes)
{
  struct pen_machine machine = {.device_bytes = (double)bytes};
  return has_gpu(f) ? pen_machine_free_device(&machine) : bytes;
}

static void apply(const struct finder *f, const struct pull *pull,
                  struct pen_plan_case *ret_case)
{
  struct pen_plan_case *c = ret_case;
  *c = *f->question;
  struct pen_train_settings *s = &c->settings;
  c->has_machine = false;
  s->what_if = s->whether = true;
  for (uint64_t i = 0; i < pull->halvings; i++) {
    s->batch_sequences = (s->batch_sequences + 1) / 2;
    s->accumulation *= 2;
  }
  s->max_length = pull->length;
  if (pull->drive)
    add_drive(&s->machine);
  if (pull->ram_steps)
    s->machine.host_bytes = f->ram + pull->ram_steps * f->ram_step;
  if (pull->device)
    s->machine.device_bytes = device_bytes(f, pull->device);
}

static int ask(const struct finder *f, const struct pull *pull, bool *ret_fits,
               uint64_t *ret_drive_bytes)
{
  struct pen_plan_case changed;
  struct pen_plan plan;
  apply(f, pull, &changed);
  int rc = pen_plan_case_open(&changed, NULL, &plan);
  *ret_fits = rc == 0;
  *ret_drive_bytes = plan.trainer.session.memory.total[PEN_TIER_NVME];
  pen_plan_close(&plan);
  if (rc == -PEN_ENOFIT || rc == -PEN_EUSAGE) { /* too small, or cannot be */
    pen_error_clear();
    rc = 0;
  }
  return rc;
}

/* ---- letting back ---- */

/* The least value in (least, most], which fits, that fits, where one that fits
 * means that all above do. */
static int bisect(const struct finder *f, struct pull *pull, uint64_t *value,
                  uint64_t least, uint64_t most)
{
  uint64_t begin = least, step = least ? least : 1;
  bool leaps = true; /* upward, until one fits: most is far away */
  int rc = 0;
  while (rc == 0 && most - least > 1) {
    bool fits;
    uint64_t bytes;
    leaps = leaps && step < most - begin;
    *value = leaps ? begin + step : least + (most - least) / 2;
    step *= 2;
    rc = ask(f, pull, &fits, &bytes);
    leaps = leaps && !fits;
    if (fits)
      most = *value;
    else
      least = *value;
  }
  *value = most;
  return rc;
}

/* The smallest of the catalogue's sizes that fits. */
static int smaller_gpu(const struct finder *f, struct pull *pull)
{
  int rc = 0;
  uint64_t best = pull->device;
  const struct pen_gpu *gpu;
  for (size_t i = 0; rc == 0 && (gpu = pen_gpu_at(i)); i++) {
    bool fits;
    uint64_t bytes;
    pull->device = (uint64_t)gpu->bytes;
    if (pull->device >= best)
      continue;
    rc = ask(f, pull, &fits, &bytes);
    if (fits)
      best = pull->device;
  }
  pull->device = best;
  return rc;
}

static int longer_sequences(const struct finder *f, struct pull *pull)
{
  bool fits = false;
  uint64_t bytes;
  int rc = 0;
  pull->length = f->max_length;
  while (rc == 0 && !fits && pull->length > 1) {
    pull->length = (pull->length + 1) / 2;
    rc = ask(f, pull, &fits, &bytes);
  }
  return rc;
}

/* In the order in which it is best to have much: what is learned, time, money. */
static int let_back(const struct finder *f, unsigned set, struct pull *pull)
{
  int rc = 0;
  if (set & 1u << LENGTH)
    rc = longer_sequences(f, pull);
  if (rc == 0 && set & 1u << BATCH)
    rc = bisect(f, pull, &pull->halvings, 0, pull->halvings);
  if (rc == 0 && set & 1u << DEVICE)
    rc = has_gpu(f)
             ? smaller_gpu(f, pull)
             : bisect(f, pull, &pull->device,
                      f->question->settings.machine.device_bytes, pull->device);
  if (rc == 0 && set & 1u << RAM)
    rc = bisect(f, pull, &pull->ram_steps, 0, pull->ram_steps);
  return rc;
}

/* ---- telling ---- */

/* The slowest of a size is the cheapest. */
static const char *gpu_of(uint64_t bytes)
{
  const struct pen_gpu *best = NULL, *gpu;
  for (size_t i = 0; (gpu = pen_gpu_at(i)); i++)
    if ((uint64_t)gpu->bytes == bytes && (!best || gpu->bf16 < best->bf16))
      best = gpu;
  return best ? best->name : "none";
}

static void join(char *text, size_t bytes, const char *part)
{
  size_t n = strlen(text);
  snprintf(text + n, bytes - n, "%s%s", n ? " and " : "", part);
}

static void tell(const struct finder *f, unsigned set, const struct pull *pull,
                 uint64_t drive_bytes, struct pen_plan_change *ret_change)
{
  struct pen_plan_case changed;
  char part[128], size[PEN_SIZE_TEXT_BYTES + 8];
  *ret_change = (struct pen_plan_change){.speedup = 0};
  apply(f, pull, &changed);
  for (int lever = LEVERS - 1; lever >= 0; lever--) {
    if (!(set & 1u << lever))
      continue;
    if (lever == DEVICE && has_gpu(f)) {
      pen_size_format(pull->device, size);
      snprintf(part, sizeof part, "a GPU with %s (--gpu %s)", size,
               gpu_of(pull->device));
    } else if (lever == DEVICE) {
      pen_size_format_exact(pull->device, size);
      snprintf(part, sizeof part, "--device-memory %s", size);
    } else if (lever == RAM) {
      pen_size_format(pull->ram_steps * f->ram_step, size);
      snprintf(part, sizeof part, "%s more RAM", size);
    } else if (lever == DRIVE) {
      pen_size_format(drive_bytes, size);
      snprintf(part, sizeof part, "a drive with %s for state (--nvme-path DIR)",
               size);
    } else if (lever == LENGTH) {
      snprintf(part, sizeof part, "--max-length %" PRIu32, pull->length);
    } else {
      snprintf(part, sizeof part,
               "--per-device-train-batch-size %" PRIu64
               " --gradient-accumulation-steps %" PRIu64,
               changed.settings.batch_sequences,
               changed.settings.accumulation);
    }
    join(ret_change->what, sizeof ret_change->what, part);
  }
}

/* ---- the sets ---- */

static bool can_pull(const struct finder *f, int lever)
{
  const struct pen_train_settings *s = &f->question->settings;
  switch (lever) {
  case BATCH: /* what nobody asked for is cut anyway */
    return s->gave_batch && s->batch_sequences > 1;
  case LENGTH:
    return f->max_length > 1;
  case DRIVE:
    return !s->machine.n_nvme_dirs;
  case RAM:
    return true;
  default:
    return is_discrete(f) && s->machine.device_bytes;
  }
}

static struct pull pull_all(const struct finder *f, unsigned set)
{
  const struct pen_gpu *gpu;
  struct pull pull = {.length = f->max_length};
  uint64_t batch = f->question->settings.batch_sequences;
  if (set & 1u << LENGTH)
    pull.length = 1;
  for (; set & 1u << BATCH && batch > 1; batch = (batch + 1) / 2)
    pull.halvings++;
  pull.drive = set & 1u << DRIVE;
  if (set & 1u << RAM)
    pull.ram_steps = RAM_MOST / f->ram_step;
  if (set & 1u << DEVICE && !has_gpu(f))
    pull.device = RAM_MOST;
  for (size_t i = 0; set & 1u << DEVICE && (gpu = pen_gpu_at(i)); i++)
    if (has_gpu(f) && (uint64_t)gpu->bytes > pull.device)
      pull.device = (uint64_t)gpu->bytes;
  return pull;
}

/* A set that holds one that fits is no use, but where it asks for less of what is
 * bought by the byte. */
static bool is_no_use(const struct finder *f, unsigned set,
                      const struct pull *pull)
{
  const unsigned by_the_byte = 1u << RAM | 1u << DEVICE;
  for (size_t i = 0; i < f->n; i++) {
    unsigned smaller = f->found[i].set;
    if ((smaller & set) != smaller)
      continue;
    if (!(smaller & by_the_byte))
      return true;
    if (pull && pull->ram_steps >= f->found[i].ram / 2 &&
        pull->device >= f->found[i].device)
      return true;
  }
  return false;
}

static int try_set(struct finder *f, unsigned set)
{
  struct pull pull = pull_all(f, set);
  bool fits;
  uint64_t drive_bytes;
  for (int lever = 0; lever < LEVERS; lever++)
    if (set & 1u << lever && !can_pull(f, lever))
      return 0;
  if (is_no_use(f, set, NULL))
    return 0;
  int rc = ask(f, &pull, &fits, &drive_bytes);
  if (rc < 0 || !fits)
    return rc;
  rc = let_back(f, set, &pull);
  if (rc == 0)
    rc = ask(f, &pull, &fits, &drive_bytes);
  if (rc < 0 || is_no_use(f, set, &pull))
    return rc;
  f->found[f->n].set = set;
  f->found[f->n].ram = pull.ram_steps;
  f->found[f->n].device = pull.device;
  tell(f, set, &pull, drive_bytes, &f->changes[f->n++]);
  return 0;
}

static unsigned price_of(unsigned set)
{
  unsigned price = 0;
  for (int lever = 0; lever < LEVERS; lever++)
    if (set & 1u << lever)
      price += prices[lever];
  return price;
}

/* The cheapest set that is dearer than `price`; 0: none. */
static unsigned next_set(unsigned price)
{
  unsigned best = 0;
  for (unsigned set = 1; set < 1u << LEVERS; set++)
    if (price_of(set) > price && (!best || price_of(set) < price_of(best)))
      best = set;
  return best;
}

int pen_plan_find_ways(const struct pen_plan_case *question,
                       const struct pen_plan *plan,
                       struct pen_plan_change changes[PEN_PLAN_CHANGES_MAX],
                       size_t *ret_n)
{
  struct finder f = {.question = question,
                     .changes = changes,
                     .max_length = plan->trainer.set.max_length,
                     .ram = pen_plan_host_limit(question),
                     .ram_step = 1};
  while (f.ram_step < f.ram / 64)
    f.ram_step *= 2;
  int rc = 0;
  for (unsigned set = next_set(0);
       rc == 0 && set && f.n < PEN_PLAN_CHANGES_MAX;
       set = next_set(price_of(set)))
    rc = try_set(&f, set);
  *ret_n = f.n;
  return rc;
}
