/* inspect.c: tells what a path is, by what it is, how its name ends and how it
 * begins.
 *
 * Disadvantage: what a file that begins as nothing known does is called tokens. */
#include "src/cli/inspect.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"

#define MAGIC_BYTES 4

static bool ends_in(const char *path, const char *suffix)
{
  size_t n = strlen(path), m = strlen(suffix);
  return n > m && !strcmp(path + n - m, suffix);
}

/* bytes [n] = how the file begins; -PEN_ESHORT where it has less. */
static int read_head(const char *path, void *bytes, size_t n)
{
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    return pen_error_set(-errno, "cannot open %s", path);
  ssize_t got = pread(fd, bytes, n, 0);
  int rc = got < 0 ? pen_error_set(-errno, "cannot read %s", path)
           : (size_t)got < n
               ? pen_error_set(-PEN_ESHORT, "%s ends after %zd bytes of its "
                               "header of %zu", path, got, n)
               : 0;
  close(fd);
  return rc;
}

/* A file whose name does not say what it is. */
static int kind_by_content(const char *path, enum pen_inspect_kind *ret_kind)
{
  char magic[MAGIC_BYTES];
  int rc = read_head(path, magic, sizeof magic);
  *ret_kind = PEN_INSPECT_TOKENS;
  if (rc == -PEN_ESHORT) { /* too short to begin as anything does */
    pen_error_clear();
    return 0;
  }
  if (rc)
    return rc;
  if (!memcmp(magic, "GGUF", MAGIC_BYTES))
    *ret_kind = PEN_INSPECT_GGUF;
  if (!memcmp(magic, "PK\3\4", MAGIC_BYTES) ||
      !memcmp(magic, "\x80\x02\x8a\x0a", MAGIC_BYTES))
    return pen_error_set(-PEN_EUNSUPPORTED, "%s is a zip archive or a pickle, such "
                         "as PyTorch saves; only safetensors are read: save the "
                         "model again with safe_serialization=True", path);
  return 0;
}

int pen_inspect_kind(const char *path, enum pen_inspect_kind *ret_kind)
{
  struct stat st;
  bool is_safetensors = ends_in(path, ".safetensors");
  bool is_json = ends_in(path, ".json");
  if (stat(path, &st)) {
    if (errno != ENOENT || is_safetensors || is_json || !strchr(path, '/'))
      return pen_error_set(-errno, "cannot look into %s", path);
    *ret_kind = PEN_INSPECT_MODEL; /* its open says what hub ids need */
    return 0;
  }
  if (!S_ISDIR(st.st_mode) && !S_ISREG(st.st_mode))
    return pen_error_set(-PEN_EUSAGE, "%s is neither a file nor a folder", path);
  if (!S_ISDIR(st.st_mode) && !is_safetensors && !is_json)
    return kind_by_content(path, ret_kind);
  *ret_kind = S_ISDIR(st.st_mode) ? PEN_INSPECT_MODEL
              : is_safetensors    ? PEN_INSPECT_SAFETENSORS
                                  : PEN_INSPECT_CONFIG;
  return 0;
}
