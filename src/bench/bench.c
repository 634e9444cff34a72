/* bench.c: rows of results, and memory to measure on.  Main thread. */
#include "src/bench/bench.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/error.h"

#define SPARE (17 * 4096) /* keeps arrays off the same banks of memory */

static int by_value(const void *a, const void *b)
{
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

double pen_bench_median(double *values, size_t n)
{
  qsort(values, n, sizeof *values, by_value);
  return values[n / 2];
}

double pen_bench_add(struct pen_bench_table *table, const char *unit,
                     double amount, double *seconds, size_t n_runs,
                     struct pen_bench_ceiling ceiling, const char *format, ...)
{
  va_list args;
  double median = amount / pen_bench_median(seconds, n_runs);
  if (table->n_rows == PEN_BENCH_ROWS_MAX)
    return median;
  struct pen_bench_row *row = &table->rows[table->n_rows++];
  *row = (struct pen_bench_row){.unit = unit,
                                .median = median,
                                .least = amount / seconds[n_runs - 1],
                                .most = amount / seconds[0],
                                .of_ceiling = ceiling.rate > 0 ? median / ceiling.rate
                                                               : 0,
                                .n_runs = n_runs};
  va_start(args, format);
  vsnprintf(row->name, sizeof row->name, format, args);
  va_end(args);
  snprintf(row->ceiling, sizeof row->ceiling, "%s", ceiling.name);
  return median;
}

void pen_bench_note(struct pen_bench_table *table, const char *format, ...)
{
  va_list args;
  if (table->n_notes == PEN_BENCH_NOTES_MAX)
    return;
  va_start(args, format);
  vsnprintf(table->notes[table->n_notes++], sizeof *table->notes, format, args);
  va_end(args);
}

int pen_bench_map_bare(size_t bytes, void **ret_memory)
{
  void *map = mmap(NULL, bytes + SPARE, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (map == MAP_FAILED)
    return pen_error_set(PEN_ENOFIT, "cannot map %zu bytes to measure on; lower "
                         "--bench-size", bytes);
  madvise(map, bytes, MADV_HUGEPAGE);
  *ret_memory = map;
  return 0;
}

int pen_bench_map(size_t bytes, void **ret_memory)
{
  int rc = pen_bench_map_bare(bytes, ret_memory);
  if (rc == 0)
    memset(*ret_memory, 0x3c, bytes); /* 0.0115 as fp32 or bf16 */
  return rc;
}

void pen_bench_unmap(void **memory, size_t bytes)
{
  if (*memory)
    munmap(*memory, bytes + SPARE);
  *memory = NULL;
}
