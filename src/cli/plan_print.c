/* plan_print.c: a plan as text, JSON or a file of options, from the same
 * numbers. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "base/size.h"
#include "io/json_write.h"
#include "kernels/gemm.h"
#include "src/cli/options.h"
#include "src/cli/plan.h"
#include "src/cli/verb.h"

/* A drive's rated life is given for one drive; stores are spread evenly. */
static double written_per_drive(const struct pen_plan *plan)
{
  size_t n = plan->trainer.set.machine.n_nvme_dirs;
  return n ? (double)plan->written_per_step / (double)n : 0;
}

static const char *size_text(double bytes, char text[PEN_SIZE_TEXT_BYTES])
{
  pen_size_format((uint64_t)bytes, text);
  return text;
}

/* ---- text ---- */

static void print_what(const struct pen_plan *plan)
{
  const struct pen_session *s = &plan->trainer.session;
  const struct pen_placement *p = &s->layout.placement;
  printf("model      %" PRIu64 " parameters in %zu blocks, %s by %s, %s "
         "kernels\n",
         s->params->n_elems, s->params->n_blocks, pen_elem_name(s->elem),
         pen_session_products(s), pen_isa_name(s->isa));
  printf("step       %.0f tokens in %zu micro-batches of %" PRIu64
         " sequences%s\n",
         plan->tokens_per_step, plan->micros_per_step,
         plan->trainer.train.order.batch_sequences,
         plan->trainer.train.set.sequences ? ""
                                           : ", every sequence full: no --data");
  printf("placement  %s memory, groups of %zu micro-batches, %zu of %zu blocks "
         "recompute, %zu of %zu blocks of the head; %zu of %zu tiles of state "
         "on drives\n",
         p->unified ? "one" : "discrete", p->group_size, p->recompute_blocks,
         s->params->body_end - s->params->body_begin, p->recompute_head_blocks,
         s->params->head_end - s->params->head_begin, s->layout.n_store_tiles,
         s->layout.n_tiles);
  if (p->speculative_blocks)
    printf("early      %zu of %zu blocks are updated during backward, of %zu that "
           "can be; again where a gradient is clipped\n",
           p->speculative_blocks, s->params->n_blocks,
           s->layout.n_could_speculate);
}

static void print_rings(const struct pen_session *s)
{
  const struct pen_placement *p = &s->layout.placement;
  char tile[PEN_SIZE_TEXT_BYTES];
  printf("rings      weights %zu, gradients %zu, tiles %zu of %s of state\n",
         p->weight_slots, p->gradient_slots, p->tile_slots,
         size_text((double)pen_state_bytes(s->state, p->tile_elems), tile));
  printf("threads    %zu for compute, %zu for updates\n",
         pen_pool_n_threads(s->pool), pen_pool_n_threads(s->update_pool));
}

/* A tier's bytes by parameters, all included. */
static double per_parameter(const struct pen_session *s, enum pen_tier tier)
{
  return (double)s->memory.total[tier] / (double)s->params->n_elems;
}

/* What an update reads, changes and writes of a parameter: state, and the weight. */
static double kept_per_parameter(const struct pen_session *s)
{
  double n = (double)PEN_NORM_CHUNK_ELEMS;
  return (double)pen_state_bytes(s->state, PEN_NORM_CHUNK_ELEMS) / n +
         (double)pen_elem_bytes(s->elem);
}

static void print_state(const struct pen_session *s)
{
  printf("state      %s, %.4g bytes a parameter with its weight; all in all "
         "%.4g of RAM, %.4g of drives\n",
         s->state->name, kept_per_parameter(s),
         per_parameter(s, PEN_TIER_HOST), per_parameter(s, PEN_TIER_NVME));
}

static void print_drives(const struct pen_plan *plan, uint64_t tbw)
{
  char a[PEN_SIZE_TEXT_BYTES], b[PEN_SIZE_TEXT_BYTES], c[PEN_SIZE_TEXT_BYTES];
  double one = written_per_drive(plan);
  uint64_t steps = plan->trainer.n_steps;
  printf("output     %s of model at the end, %s for each checkpoint\n",
         size_text((double)plan->model_bytes, a),
         size_text((double)plan->checkpoint_bytes, b));
  if (!plan->trainer.set.machine.n_nvme_dirs)
    return;
  printf("drives     %s written per step, %s per 1000 steps, to %zu drive%s\n",
         size_text((double)plan->written_per_step, a),
         size_text((double)plan->written_per_step * 1000, b),
         plan->trainer.set.machine.n_nvme_dirs,
         plan->trainer.set.machine.n_nvme_dirs > 1 ? "s" : "");
  if (plan->trainer.session.plan.nvme_redone_bytes)
    printf("           and %s more by a step whose early updates are done again\n",
           size_text((double)plan->trainer.session.plan.nvme_redone_bytes, a));
  if (!tbw || one == 0)
    return;
  printf("wear       1000 steps are %.3g %% of each drive's %s; they last "
         "%.0f steps\n",
         100 * 1000 * one / (double)tbw, size_text((double)tbw, c),
         (double)tbw / one);
  if (plan->simulated)
    printf("           or %.3g days of training without a pause\n",
           (double)tbw / one * plan->step.seconds / 86400);
  if (steps)
    printf("           this run of %" PRIu64 " steps: %.3g %%\n", steps,
           100 * one * (double)steps / (double)tbw);
}

static void print_time(const struct pen_plan *plan)
{
  const struct pen_simulate_result *r = &plan->step;
  char name[PEN_RESOURCE_TEXT_BYTES];
  printf("time       %.3g s a step, %.4g tokens/s, by profile%s%s\n",
         r->seconds, plan->tokens_per_step / r->seconds,
         plan->machine.name[0] ? " " : "", plan->machine.name);
  pen_resource_name(r->binds, name);
  printf("binds      %s, %.0f %% of the step; without any sharing a step takes "
         "%.3g s\n",
         name, 100 * r->load[r->binds], r->critical_seconds);
  printf("lanes     ");
  for (int lane = 0; lane < PEN_LANES; lane++)
    if (r->busy_seconds[lane] > 0)
      printf(" %s %.0f %%", pen_lane_name((enum pen_lane)lane),
             100 * r->busy_seconds[lane] / r->seconds);
  printf("\nresources ");
  for (size_t i = 0; i < r->n_resources; i++)
    if (r->load[i] > 0) {
      pen_resource_name(i, name);
      printf(" %s %.0f %%", name, 100 * r->load[i]);
    }
  printf("\ntwice as  ");
  for (size_t i = 0; i < plan->n_better; i++)
    printf("%s %s: %.2fx", i ? "," : "", plan->better[i].what,
           plan->better[i].speedup);
  putchar('\n');
}

static void print_changes(const struct pen_plan_change *changes, size_t n)
{
  for (size_t i = 0; i < n; i++)
    if (changes[i].speedup > 0)
      printf("%-10s %.2fx: %s\n", i ? "" : "faster", changes[i].speedup,
             changes[i].what);
    else
      printf("%-10s %s\n", i ? "" : "fits with", changes[i].what);
}

void pen_plan_print_unfit(const struct pen_plan *plan,
                          const struct pen_plan_change *changes,
                          size_t n_changes)
{
  pen_memory_print(&plan->trainer.session.memory, stdout);
  print_changes(changes, n_changes);
  if (!n_changes)
    puts("fits with  nothing that was tried: a smaller micro-batch, shorter "
         "sequences, a drive, more RAM, a larger GPU; leave out options that "
         "say where bytes lie (--offload-...)");
}

void pen_plan_print(const struct pen_plan *plan, uint64_t tbw,
                    const struct pen_plan_change *changes, size_t n_changes)
{
  print_what(plan);
  print_rings(&plan->trainer.session);
  print_state(&plan->trainer.session);
  pen_memory_print(&plan->trainer.session.memory, stdout);
  print_drives(plan, tbw);
  if (plan->simulated)
    print_time(plan);
  else if (*plan->why_no_time)
    printf("time       not known: %s\n", plan->why_no_time);
  else
    puts("time       not known: there is no profile of this machine; make one "
         "with penstock bench all, or give one with --profile FILE");
  print_changes(changes, n_changes);
}

/* ---- JSON ---- */

static void put_time(struct pen_json_writer *w, const struct pen_plan *plan)
{
  const struct pen_simulate_result *r = &plan->step;
  char name[PEN_RESOURCE_TEXT_BYTES];
  pen_json_begin_object(w, "time");
  pen_json_put_double(w, "seconds_per_step", r->seconds);
  pen_json_put_double(w, "tokens_per_second",
                      plan->tokens_per_step / r->seconds);
  pen_json_put_double(w, "critical_seconds", r->critical_seconds);
  pen_json_put_double(w, "exposed_update_seconds", plan->exposed_seconds);
  pen_json_put_u64(w, "placements_simulated",
                   plan->trainer.session.found.n_simulated);
  pen_resource_name(r->binds, name);
  pen_json_put_string(w, "binds", name);
  pen_json_begin_object(w, "lane_busy_seconds");
  for (int lane = 0; lane < PEN_LANES; lane++)
    pen_json_put_double(w, pen_lane_name((enum pen_lane)lane),
                        r->busy_seconds[lane]);
  pen_json_end_object(w);
  pen_json_begin_array(w, "resources");
  for (size_t i = 0; i < r->n_resources; i++) {
    pen_resource_name(i, name);
    pen_json_begin_object(w, NULL);
    pen_json_put_string(w, "name", name);
    pen_json_put_double(w, "load", r->load[i]);
    pen_json_put_double(w, "least_seconds", r->least_seconds[i]);
    pen_json_end_object(w);
  }
  pen_json_end_array(w);
  pen_json_begin_object(w, "speedup_if_twice");
  for (size_t i = 0; i < plan->n_better; i++)
    pen_json_put_double(w, plan->better[i].what, plan->better[i].speedup);
  pen_json_end_object(w);
  pen_json_end_object(w);
}

static void put_rings(struct pen_json_writer *w, const struct pen_session *s)
{
  const struct pen_placement *p = &s->layout.placement;
  pen_json_put_u64(w, "weight_slots", p->weight_slots);
  pen_json_put_u64(w, "gradient_slots", p->gradient_slots);
  pen_json_put_u64(w, "tile_slots", p->tile_slots);
  pen_json_put_u64(w, "tile_bytes", pen_state_bytes(s->state, p->tile_elems));
  pen_json_put_u64(w, "threads", pen_pool_n_threads(s->pool));
  pen_json_put_u64(w, "update_threads", pen_pool_n_threads(s->update_pool));
}

static void put_drives(struct pen_json_writer *w, const struct pen_plan *plan,
                       uint64_t tbw)
{
  double one = written_per_drive(plan);
  pen_json_begin_object(w, "drives");
  pen_json_put_u64(w, "count", plan->trainer.set.machine.n_nvme_dirs);
  pen_json_put_u64(w, "written_bytes_per_step", plan->written_per_step);
  pen_json_put_u64(w, "written_bytes_per_1000_steps",
                   plan->written_per_step * 1000);
  pen_json_put_u64(w, "redone_bytes",
                   plan->trainer.session.plan.nvme_redone_bytes);
  if (tbw) {
    pen_json_put_u64(w, "tbw_bytes", tbw);
    pen_json_put_double(w, "tbw_share_per_1000_steps",
                        1000 * one / (double)tbw);
    pen_json_put_double(w, "steps_to_tbw",
                        one > 0 ? (double)tbw / one : (double)INFINITY);
  }
  pen_json_end_object(w);
}

static void put_changes(struct pen_json_writer *w,
                        const struct pen_plan_change *changes, size_t n)
{
  pen_json_begin_array(w, "changes");
  for (size_t i = 0; i < n; i++) {
    pen_json_begin_object(w, NULL);
    pen_json_put_string(w, "what", changes[i].what);
    if (changes[i].speedup > 0)
      pen_json_put_double(w, "speedup", changes[i].speedup);
    pen_json_end_object(w);
  }
  pen_json_end_array(w);
}

int pen_plan_print_json(const struct pen_plan *plan, uint64_t tbw, bool fits,
                        const struct pen_plan_change *changes,
                        size_t n_changes)
{
  const struct pen_session *s = &plan->trainer.session;
  struct pen_json_writer w;
  const char *text;
  size_t bytes;
  pen_json_writer_init(&w, NULL, 0, true);
  pen_json_begin_object(&w, NULL);
  pen_json_put_bool(&w, "fits", fits);
  pen_json_begin_object(&w, "bytes");
  for (int tier = 0; tier < PEN_TIERS; tier++)
    pen_json_put_u64(&w, pen_tier_name((enum pen_tier)tier),
                     s->memory.total[tier]);
  pen_json_end_object(&w);
  pen_memory_write(&s->memory, &w, "allocations");
  if (fits) {
    pen_json_put_u64(&w, "parameters", s->params->n_elems);
    pen_json_put_string(&w, "state_format", s->state->name);
    pen_json_put_double(&w, "state_bytes_per_parameter",
                        kept_per_parameter(s));
    pen_json_put_double(&w, "host_bytes_per_parameter",
                        per_parameter(s, PEN_TIER_HOST));
    pen_json_put_double(&w, "tokens_per_step", plan->tokens_per_step);
    pen_json_put_u64(&w, "micro_batches", plan->micros_per_step);
    pen_json_put_u64(&w, "micro_batch_sequences",
                     plan->trainer.train.order.batch_sequences);
    pen_json_put_u64(&w, "group_size", s->layout.placement.group_size);
    pen_json_put_u64(&w, "recompute_blocks",
                     s->layout.placement.recompute_blocks);
    pen_json_put_u64(&w, "recompute_head_blocks",
                     s->layout.placement.recompute_head_blocks);
    pen_json_put_u64(&w, "speculative_blocks",
                     s->layout.placement.speculative_blocks);
    put_rings(&w, s);
    pen_json_put_u64(&w, "tiles", s->layout.n_tiles);
    pen_json_put_u64(&w, "tiles_on_drives", s->layout.n_store_tiles);
    pen_json_put_u64(&w, "model_bytes", plan->model_bytes);
    pen_json_put_u64(&w, "checkpoint_bytes", plan->checkpoint_bytes);
    put_drives(&w, plan, tbw);
  }
  if (plan->simulated)
    put_time(&w, plan);
  put_changes(&w, changes, n_changes);
  pen_json_end_object(&w);
  int rc = pen_json_finish(&w, &text, &bytes);
  if (rc == 0)
    puts(text);
  pen_json_writer_done(&w);
  return rc;
}

/* ---- YAML ---- */

static int set_number(struct pen_options *options, const char *name,
                      uint64_t value)
{
  char text[32];
  snprintf(text, sizeof text, "%" PRIu64, value);
  return pen_option_set(options, pen_option_find(options, name), name, text,
                        PEN_OPTION_COMMAND_LINE);
}

static int set_recompute(struct pen_options *options, const char *name,
                         size_t blocks)
{
  if (blocks)
    return set_number(options, name, blocks);
  return pen_option_set(options, pen_option_find(options, name), name, "none",
                        PEN_OPTION_COMMAND_LINE);
}

/* Threads where they were chosen: else they are as many as there are CPUs. */
static int set_threads(struct pen_options *options,
                       const struct pen_search_result *found)
{
  int rc = found->threads
               ? set_number(options, "threads", found->threads) : 0;
  if (rc == 0 && found->update_threads)
    rc = set_number(options, "update-threads", found->update_threads);
  return rc;
}

/* Where the search left a part of the state to drives, or all of it. */
static int set_state(struct pen_options *options,
                     const struct pen_search_result *found)
{
  if (found->wish.state_host_most && found->wish.state == PEN_FIT_AUTO)
    return set_number(options, "optimizer-host-memory", found->wish.state_host_most);
  if (found->wish.state != PEN_FIT_NVME)
    return 0;
  return pen_option_set(options, pen_option_find(options, "offload-optimizer"),
                        "offload-optimizer", "nvme", PEN_OPTION_COMMAND_LINE);
}

int pen_plan_print_yaml(const struct pen_config *config,
                        const struct pen_plan *plan)
{
  const struct pen_session *s = &plan->trainer.session;
  const struct pen_placement *p = &s->layout.placement;
  const struct {
    const char *name;
    uint64_t value;
  } numbers[] = {
      {"per-device-train-batch-size", plan->trainer.set.batch_sequences},
      {"gradient-accumulation-steps", plan->trainer.set.accumulation},
      {"group-size", p->group_size},
      {"weight-slots", p->weight_slots},
      {"gradient-slots", p->gradient_slots},
      {"tile-slots", p->tile_slots},
      {"tile-size", pen_state_bytes(s->state, p->tile_elems)}};
  struct pen_config chosen;
  struct pen_options options;
  int rc = pen_option_copy(&options, config->options, &chosen, sizeof chosen);
  if (rc < 0)
    return rc;
  for (size_t i = 0; rc == 0 && i < sizeof numbers / sizeof *numbers; i++)
    rc = set_number(&options, numbers[i].name, numbers[i].value);
  if (rc == 0)
    rc = set_recompute(&options, "recompute", p->recompute_blocks);
  if (rc == 0)
    rc = set_recompute(&options, "recompute-logits", p->recompute_head_blocks);
  if (rc == 0)
    rc = set_recompute(&options, "speculative-updates", p->speculative_blocks);
  if (rc == 0)
    rc = set_threads(&options, &s->found);
  if (rc == 0)
    rc = set_state(&options, &s->found);
  if (rc == 0)
    pen_options_dump(&chosen, PEN_VERB_TRAIN, stdout);
  pen_option_done(&options);
  return rc;
}
