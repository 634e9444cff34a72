/* engine.c: the table of engines: adding one is a file and a row.
 *
 * Any thread.  Disadvantage: names are looked up by comparing with each. */
#include "io/engine.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "io/engine_fault.h"

static const struct pen_engine *const engines[] = {
    &pen_engine_auto, &pen_engine_uring, &pen_engine_threads,
    &pen_engine_ram,  &pen_engine_null,
};

const struct pen_engine *pen_engine_find(const char *name)
{
  for (size_t i = 0; i < sizeof engines / sizeof *engines; i++)
    if (strcmp(engines[i]->name, name) == 0)
      return engines[i];
  return NULL;
}

/* "ENGINE,setting,setting": the engine to wrap, then how. */
static int parse_fault(const char *text, const struct pen_engine **ret_engine)
{
  char name[32];
  size_t n = strcspn(text, ",");
  snprintf(name, sizeof name, "%.*s", (int)n, text);
  const struct pen_engine *inner = pen_engine_find(name);
  if (!inner)
    return pen_error_set(-PEN_EUSAGE, "fault engine: no engine '%s' to wrap",
                         name);
  return pen_engine_fault_parse(inner, text[n] ? text + n + 1 : NULL,
                                ret_engine);
}

int pen_engine_parse(const char *spec, const struct pen_engine **ret_engine)
{
  if (strncmp(spec, "fault:", 6) == 0)
    return parse_fault(spec + 6, ret_engine);
  const struct pen_engine *engine = pen_engine_find(spec);
  if (!engine)
    return pen_error_set(-PEN_EUSAGE,
                         "no I/O engine '%s'; there are auto, uring, threads, "
                         "ram, null and fault:ENGINE,...",
                         spec);
  *ret_engine = engine;
  return 0;
}

void pen_engine_release(const struct pen_engine **engine)
{
  if (*engine && strcmp((*engine)->name, "fault") == 0)
    pen_engine_fault_free(*engine);
  *engine = NULL;
}
