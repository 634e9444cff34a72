/* verb_doctor.c: `penstock doctor`: one line per fact, and what to do about it. */
#include <stdio.h>

#include "base/error.h"
#include "io/json_write.h"
#include "src/cli/doctor.h"
#include "src/cli/verb.h"

static void print_text(const struct pen_doctor *doctor)
{
  for (size_t i = 0; i < doctor->n_facts; i++) {
    const struct pen_doctor_fact *f = &doctor->facts[i];
    printf("%-8s  %-14s  %s%s%s\n", pen_doctor_level_name(f->level), f->name,
           f->text, f->advice[0] ? "; " : "", f->advice);
  }
}

static int print_json(const struct pen_doctor *doctor, size_t n_bad)
{
  struct pen_json_writer w;
  const char *text;
  size_t bytes;
  pen_json_writer_init(&w, NULL, 0, true);
  pen_json_begin_object(&w, NULL);
  pen_json_put_bool(&w, "full_function", n_bad == 0);
  pen_json_begin_array(&w, "facts");
  for (size_t i = 0; i < doctor->n_facts; i++) {
    const struct pen_doctor_fact *f = &doctor->facts[i];
    pen_json_begin_object(&w, NULL);
    pen_json_put_string(&w, "name", f->name);
    pen_json_put_string(&w, "level", pen_doctor_level_name(f->level));
    pen_json_put_string(&w, "text", f->text);
    pen_json_put_string(&w, "advice", f->advice);
    pen_json_end_object(&w);
  }
  pen_json_end_array(&w);
  pen_json_end_object(&w);
  int rc = pen_json_finish(&w, &text, &bytes);
  if (rc == 0)
    puts(text);
  pen_json_writer_done(&w);
  return rc;
}

int pen_verb_doctor(const struct pen_config *config)
{
  struct pen_doctor doctor = {.sys = "/sys", .proc = "/proc"};
  size_t n_bad = 0;
  int rc = 0;
  pen_doctor_system(&doctor, config->host_memory);
  pen_doctor_gpu(&doctor);
  pen_doctor_compute(&doctor);
  for (size_t i = 0; i < config->nvme_path.n_items; i++)
    pen_doctor_drive(&doctor, config->nvme_path.items[i]);
  for (size_t i = 0; i < doctor.n_facts; i++)
    n_bad += doctor.facts[i].level != PEN_DOCTOR_OK;
  if (config->output_format == PEN_CONFIG_OUTPUT_JSON)
    rc = print_json(&doctor, n_bad);
  else
    print_text(&doctor);
  if (rc == 0 && n_bad)
    rc = pen_error_set(PEN_EUNSUPPORTED,
                       "training would not run at full function here: %zu of "
                       "%zu facts are not OK",
                       n_bad, doctor.n_facts);
  return rc;
}
