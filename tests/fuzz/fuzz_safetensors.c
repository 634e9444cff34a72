/* fuzz_safetensors.c: a safetensors file of any bytes.
 *
 * With an even first byte the rest is the file; with an odd one it is a header,
 * in front of which its length is put and behind which as many data bytes as
 * the second byte says, so that mutations get past the length.  Beyond not
 * crashing: what opens accounts for every byte of the file and reads to its
 * end, what is strict is lenient too, and a failure has a text. */
#include "io/safetensors.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/error.h"
#include "tests/fuzz/fuzz.h"

static void put(int fd, const void *bytes, size_t n)
{
  if (write(fd, bytes, n) != (ssize_t)n)
    abort();
}

static int make_file(const uint8_t *data, size_t n_bytes, char *path)
{
  int fd = memfd_create("fuzz", MFD_CLOEXEC);
  if (fd < 0)
    abort();
  if (data[0] % 2 == 0) {
    put(fd, data + 1, n_bytes - 1);
  } else {
    static const uint8_t zeros[256];
    uint64_t length = n_bytes - 2; /* little-endian machines only fuzz */
    put(fd, &length, sizeof length);
    put(fd, data + 2, n_bytes - 2);
    put(fd, zeros, data[1]);
  }
  sprintf(path, "/proc/self/fd/%d", fd);
  return fd;
}

static void check_tensors(const struct pen_safetensors *file, bool strict)
{
  uint64_t total = 0;
  static uint8_t bytes[1 << 16];
  for (size_t i = 0; i < pen_safetensors_n_tensors(file); i++) {
    const struct pen_safetensors_tensor *t = pen_safetensors_tensor(file, i);
    if (pen_safetensors_find(file, t->name) != i)
      fuzz_fail("tensor %s is not found by its name", t->name);
    if (t->bytes != t->elems * pen_file_dtype_bytes(t->dtype))
      fuzz_fail("tensor %s: %llu bytes", t->name, (unsigned long long)t->bytes);
    for (uint64_t at = 0; at < t->bytes; at += sizeof bytes) {
      size_t n = t->bytes - at < sizeof bytes ? t->bytes - at : sizeof bytes;
      if (pen_safetensors_read(file, i, at, n, bytes))
        fuzz_fail("%s", pen_error_text());
    }
    total += t->bytes;
  }
  if (strict && total > pen_safetensors_file_bytes(file))
    fuzz_fail("more tensor bytes than the file has");
  if (strict && *pen_safetensors_warning(file))
    fuzz_fail("strict, yet warned: %s", pen_safetensors_warning(file));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
  if (n_bytes < 2)
    return 0;
  char path[64];
  int fd = make_file(data, n_bytes, path);
  int codes[2];
  for (int lenient = 0; lenient <= 1; lenient++) {
    struct pen_safetensors *file = NULL;
    codes[lenient] = pen_safetensors_open(path, lenient, &file);
    if ((codes[lenient] != 0) != (*pen_error_text() != '\0') ||
        (codes[lenient] != 0) != !file)
      fuzz_fail("code %d with the text \"%s\"", codes[lenient],
                pen_error_text());
    if (file)
      check_tensors(file, !lenient);
    pen_error_clear();
    pen_safetensors_close(&file);
  }
  if (!codes[0] && codes[1])
    fuzz_fail("accepted when strict, refused when lenient");
  close(fd);
  return 0;
}
