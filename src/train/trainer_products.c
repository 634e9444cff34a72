/* trainer_products.c: the algorithms of a device's products, kept with the run in
 * OUTPUT_DIR/products.txt.
 *
 * A choice is made when a step first meets a shape, and written after that step,
 * before anything the step computed can be committed or saved: so what a resumed
 * run goes on from was computed with what the file says.  A run that was killed
 * before makes the choice again, with the step.  Main thread.  Disadvantage: the
 * file is written whole each time. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "io/crc32c.h"
#include "io/files.h"
#include "src/train/trainer.h"

#define FILE_BYTES_MAX ((size_t)4 << 20)
#define HEADER_BYTES ((size_t)80)

static const struct pen_backend_choices *choices_of(const struct pen_trainer *t)
{
  return t->session.backend ? t->session.backend->choices : NULL;
}

static int write_file(const struct pen_trainer *t, size_t n)
{
  const struct pen_backend *backend = t->session.backend;
  char path[4096], line[PEN_BACKEND_CHOICE_BYTES], header[HEADER_BYTES];
  char *text = calloc(1, HEADER_BYTES + n * PEN_BACKEND_CHOICE_BYTES + 1);
  if (!text)
    return pen_error_set(PEN_ENOFIT, "no memory to keep %zu choices", n);
  size_t used = 0;
  for (size_t i = 0; i < n; i++) {
    backend->choices->write(backend, i, line);
    used += (size_t)sprintf(text + HEADER_BYTES + used, "%s\n", line);
  }
  int head = snprintf(header, sizeof header,
                      "penstock products 1, %zu lines, crc32c %08" PRIx32 "\n",
                      n, pen_crc32c(0, text + HEADER_BYTES, used));
  char *begin = text + HEADER_BYTES - head;
  memcpy(begin, header, (size_t)head);
  pen_rundir_file(&t->rundir, PEN_RUNDIR_PRODUCTS, path);
  int rc = pen_files_write_whole(path, begin, (size_t)head + used);
  free(text);
  return rc;
}

int pen_trainer_keep_products(struct pen_trainer *t)
{
  const struct pen_backend_choices *choices = choices_of(t);
  size_t n = choices ? choices->count(t->session.backend) : 0;
  if (n == t->n_products_kept)
    return 0;
  int rc = write_file(t, n);
  if (rc == 0)
    t->n_products_kept = n;
  return rc;
}

int pen_trainer_begin_products(struct pen_trainer *t)
{
  return choices_of(t) ? write_file(t, 0) : 0;
}

/* Line by line; `text` is cut up. */
static int read_lines(struct pen_trainer *t, char *text, size_t n)
{
  char *rest = text;
  for (size_t i = 0; i < n; i++) {
    char *line = strsep(&rest, "\n");
    int rc = line ? choices_of(t)->read(t->session.backend, line)
                  : pen_error_set(PEN_EFORMAT, "it ends before");
    if (rc < 0)
      return pen_error_context(rc, "line %zu", i + 2);
  }
  return 0;
}

int pen_trainer_load_products(struct pen_trainer *t)
{
  char path[4096], *text;
  size_t bytes, n;
  uint32_t crc;
  int head = 0;
  if (!choices_of(t))
    return 0;
  pen_rundir_file(&t->rundir, PEN_RUNDIR_PRODUCTS, path);
  t->lacks_products = !pen_files_exists(path); /* killed as it was made? */
  if (t->lacks_products)
    return 0;
  int rc = pen_files_read_whole(path, FILE_BYTES_MAX, &text, &bytes);
  if (rc < 0)
    return rc;
  if (sscanf(text, "penstock products 1, %zu lines, crc32c %8" SCNx32 "%n", &n,
             &crc, &head) != 2 || text[head] != '\n')
    rc = pen_error_set(PEN_EFORMAT, "line 1 is not \"penstock products 1, ...\"");
  else if (pen_crc32c(0, text + head + 1, bytes - (size_t)head - 1) != crc)
    rc = pen_error_set(PEN_EFORMAT, "its checksum is wrong: it was changed or is "
                       "damaged; restore it, or start another run");
  else
    rc = read_lines(t, text + head + 1, n);
  free(text);
  if (rc < 0)
    return pen_error_context(rc, "%s", path);
  t->n_products_kept = choices_of(t)->count(t->session.backend);
  return 0;
}

int pen_trainer_check_products(const struct pen_trainer *t)
{
  char path[4096];
  if (!t->lacks_products || !t->cursor.step)
    return 0;
  pen_rundir_file(&t->rundir, PEN_RUNDIR_PRODUCTS, path);
  return pen_error_set(PEN_EMISMATCH, "%s is missing, which says by which "
                       "algorithms this run's products were computed; restore "
                       "it, or start another run", path);
}
