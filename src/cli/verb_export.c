/* verb_export.c: `penstock export`. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "io/files.h"
#include "src/cli/stop.h"
#include "src/cli/verb.h"
#include "src/data/prepare.h"
#include "src/train/export.h"

static const enum pen_file_dtype dtypes[] = {
    [PEN_CONFIG_DTYPE_AUTO] = PEN_FILE_NONE,
    [PEN_CONFIG_DTYPE_BF16] = PEN_FILE_BF16,
    [PEN_CONFIG_DTYPE_FP32] = PEN_FILE_F32,
    [PEN_CONFIG_DTYPE_FP16] = PEN_FILE_F16};

/* DIR/model-TYPE.gguf beside the weights it is made of. */
static int write_gguf(const char *dir, const char *type, uint64_t n_parameters,
                      const volatile sig_atomic_t *stop)
{
  char path[4096 + 64], note[1024];
  snprintf(path, sizeof path, "%.4000s/model-%s.gguf", dir, type);
  const char *const arguments[] = {"--tokenizer", dir,  "--gguf", type,
                                   "--output",    path, NULL};
  uint64_t bytes = n_parameters * (strcmp(type, "F32") == 0    ? 4
                                   : strcmp(type, "Q8_0") == 0 ? 1
                                                               : 2);
  int rc = pen_files_check_room(path, bytes, "the GGUF file", /* its weights alone */
                                "free them, or name another folder");
  if (rc == 0)
    rc = pen_prepare_run(arguments, stop, note, sizeof note);
  if (rc < 0)
    return pen_error_context(rc, "%s is written and whole, but no GGUF file in it",
                             dir);
  pen_log_info("%s", note);
  return 0;
}

int pen_verb_export(const struct pen_config *config)
{
  struct pen_export_settings s = {.from = config->path,
                                  .to = config->output_dir,
                                  .dtype = dtypes[config->dtype],
                                  .with_optimizer = config->with_optimizer,
                                  .overwrite = config->overwrite,
                                  .lenient = config->lenient,
                                  .untie = config->untie,
                                  .stop = pen_stop_on_signals()};
  struct pen_export_result r;
  int rc = pen_export(&s, &r);
  if (rc < 0)
    return rc;
  pen_log_info("%s: %llu parameters of %s", s.to,
               (unsigned long long)r.n_parameters, r.from);
  if (s.with_optimizer)
    pen_log_info("with the optimizer's state after step %llu",
                 (unsigned long long)r.step);
  return config->gguf ? write_gguf(s.to, config->gguf, r.n_parameters, s.stop) : 0;
}
