/* doctor.c: the list of facts that the parts of the examination fill. */
#include "src/cli/doctor.h"

#include <stdarg.h>
#include <stdio.h>

void pen_doctor_add(struct pen_doctor *doctor, const char *name,
                    enum pen_doctor_level level, const char *advice,
                    const char *format, ...)
{
  if (doctor->n_facts == PEN_DOCTOR_FACTS_MAX)
    return;
  struct pen_doctor_fact *fact = &doctor->facts[doctor->n_facts++];
  va_list args;
  fact->level = level;
  snprintf(fact->name, sizeof fact->name, "%s", name);
  snprintf(fact->advice, sizeof fact->advice, "%s",
           level == PEN_DOCTOR_OK || !advice ? "" : advice);
  va_start(args, format);
  vsnprintf(fact->text, sizeof fact->text, format, args);
  va_end(args);
}

const char *pen_doctor_level_name(enum pen_doctor_level level)
{
  static const char *const names[] = {"OK", "degraded", "missing"};
  return names[level];
}
