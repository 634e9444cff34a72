/* soak_rows.c: what a soak found, as rows and as words. */
#include <math.h>
#include <stdio.h>

#include "base/size.h"
#include "src/bench/soak.h"

static void warmth(double celsius, char *ret_text, size_t bytes)
{
  ret_text[0] = '\0';
  if (!isnan(celsius))
    snprintf(ret_text, bytes, " at %.0f degrees C", celsius);
}

static void add_levels(const struct pen_bench_soak *soak, const char *dir,
                       struct pen_bench_table *table)
{
  static const char *const reasons[] = {
      [PEN_BENCH_WHY_FASTER] = "faster again",
      [PEN_BENCH_WHY_CACHE] = "its cache was full",
      [PEN_BENCH_WHY_HEAT] = "it was too hot",
      [PEN_BENCH_WHY_UNKNOWN] = "its cache was full or it was too hot: no sensor "
                                "is shown here"};
  for (size_t i = 0; i < soak->n_levels; i++) {
    const struct pen_bench_soak_level *l = &soak->levels[i];
    char from[PEN_SIZE_TEXT_BYTES], bytes[PEN_SIZE_TEXT_BYTES], heat[40];
    double seconds = 1 / l->rate;
    pen_size_format(l->from_bytes, from);
    pen_size_format(l->bytes, bytes);
    warmth(l->celsius, heat, sizeof heat);
    pen_bench_add(table, "bytes/s", 1, &seconds, 1,
                  (struct pen_bench_ceiling){i ? soak->levels[0].rate : 0,
                                             "the first level"},
                  "%s soak, level %zu, from %s on", dir, i + 1, from);
    pen_bench_note(table, "%s: level %zu lasted %s or %.1f s%s%s%s", dir, i + 1,
                   bytes, l->seconds, heat, i ? "; before it began, " : "",
                   i ? reasons[l->why] : "");
  }
}

void pen_bench_soak_rows(const struct pen_bench_soak *soak,
                         const struct pen_bench_soak_options *options,
                         const char *dir, struct pen_bench_table *table)
{
  char written[PEN_SIZE_TEXT_BYTES], cache[PEN_SIZE_TEXT_BYTES];
  char back[PEN_SIZE_TEXT_BYTES];
  pen_size_format(soak->written_bytes, written);
  pen_size_format(soak->cache_bytes, cache);
  add_levels(soak, dir, table);
  if (soak->stopped)
    pen_bench_note(table, "%s: the soak was stopped after %s", dir, written);
  if (!soak->dropped) {
    pen_bench_note(table, "%s: no drop within %s; what it sustains beyond that is "
                   "not known (--bench-size and --max-write larger would see)",
                   dir, written);
    return;
  }
  double burst = 1 / soak->burst, sustained = 1 / soak->sustained;
  pen_bench_add(table, "bytes/s", 1, &burst, 1, PEN_BENCH_NO_CEILING,
                "%s written in a burst of %s", dir, cache);
  pen_bench_add(table, "bytes/s", 1, &sustained, 1,
                (struct pen_bench_ceiling){soak->burst, "the burst"},
                "%s written, sustained", dir);
  if (!soak->idled)
    return;
  pen_size_format(soak->recovered_bytes, back);
  pen_bench_note(table, "%s: after %.3g s of idling %s%s went as fast as at first",
                 dir, options->idle_s,
                 soak->recovered_bytes >= soak->cache_bytes ? "all of it again, "
                                                            : "",
                 back);
}
