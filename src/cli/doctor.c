/* doctor.c: the list of facts that the parts of the examination fill. */
#include "src/cli/doctor.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

bool pen_doctor_line(const char *root, const char *path, char *ret_line,
                     size_t bytes)
{
  char whole[PATH_MAX];
  snprintf(whole, sizeof whole, "%s/%s", root, path);
  FILE *f = fopen(whole, "re");
  bool good = f && fgets(ret_line, (int)bytes, f);
  if (good)
    ret_line[strcspn(ret_line, "\n")] = '\0';
  if (f)
    fclose(f);
  return good;
}

unsigned long long pen_doctor_status(const struct pen_doctor *doctor,
                                     const char *key, int base,
                                     unsigned long long fallback)
{
  char line[256];
  snprintf(line, sizeof line, "%s/self/status", doctor->proc);
  FILE *f = fopen(line, "re");
  unsigned long long value = fallback;
  while (f && fgets(line, sizeof line, f))
    if (strncmp(line, key, strlen(key)) == 0)
      value = strtoull(line + strlen(key), NULL, base);
  if (f)
    fclose(f);
  return value;
}
