/* fuzz_manifest.c: the store's manifest slots and data file headers of any
 * bytes.
 *
 * The first byte chooses the form, and whether the checksum is put right
 * first, so that what lies behind it is reached.  Beyond not crashing: a
 * failure has a text, a success none; what is accepted keeps its promises to
 * the store, and is the same after encoding and decoding again. */
#include <string.h>

#include "base/error.h"
#include "io/store_format.h"
#include "io/stripe.h"
#include "tests/fuzz/fuzz.h"

static void check_told(int code)
{
  if ((code != 0) != (*pen_error_text() != '\0'))
    fuzz_fail("code %d with the text \"%s\"", code, pen_error_text());
  pen_error_clear();
}

/* What the store relies on without asking again. */
static void check_promises(const struct pen_store_manifest *m)
{
  struct pen_stripe stripe;
  if (m->n_dirs < 1 || m->n_dirs > PEN_STORE_DIRS_MAX ||
      m->meta_bytes > PEN_STORE_META_BYTES_MAX ||
      m->tile_bytes % PEN_STORE_ALIGN)
    fuzz_fail("geometry out of range");
  for (size_t i = 0; i < m->n_tiles; i++) {
    const struct pen_store_place *p = &m->places[i];
    if (p->dir != UINT32_MAX &&
        (p->dir >= m->n_dirs || p->extent >= m->n_extents[p->dir] ||
         p->bytes > m->tile_bytes))
      fuzz_fail("tile %zu out of range", i);
  }
  if (pen_stripe_init(&stripe, m->stripe_shares, m->n_dirs))
    fuzz_fail("stripes: %s", pen_error_text());
  uint64_t sum = 0;
  for (size_t d = 0; d < m->n_dirs; d++)
    sum += pen_stripe_bytes(&stripe, m->scratch_bytes, d);
  if (sum != m->scratch_bytes)
    fuzz_fail("stripes hold other than all bytes");
}

static void check_again(const struct pen_store_manifest *m, size_t n_bytes)
{
  struct pen_store_manifest again;
  uint8_t *slot = malloc(n_bytes);
  if (!slot)
    abort();
  pen_store_manifest_encode(m, slot);
  if (pen_store_manifest_decode(slot, n_bytes, &again))
    fuzz_fail("encoded again: %s", pen_error_text());
  if (memcmp(again.places, m->places, m->n_tiles * sizeof *m->places) != 0 ||
      memcmp(again.meta, m->meta, m->meta_bytes) != 0 ||
      memcmp(again.n_extents, m->n_extents, sizeof m->n_extents) != 0 ||
      again.generation != m->generation || again.step != m->step ||
      again.committed != m->committed || again.in_place != m->in_place)
    fuzz_fail("encoded again it is another");
  free(again.places);
  free(slot);
}

static void try_manifest(uint8_t *slot, size_t n_bytes, int seal)
{
  struct pen_store_manifest m;
  if (seal && n_bytes >= 512)
    pen_store_manifest_seal(slot, n_bytes);
  int code = pen_store_manifest_decode(slot, n_bytes, &m);
  check_told(code);
  if (code)
    return;
  check_promises(&m);
  check_again(&m, n_bytes);
  free(m.places);
}

static void try_header(const uint8_t *data, size_t n_bytes)
{
  struct pen_store_header header;
  uint8_t *block = calloc(1, PEN_STORE_HEADER_BYTES);
  if (!block)
    abort();
  if (n_bytes)
    memcpy(block, data,
           n_bytes < PEN_STORE_HEADER_BYTES ? n_bytes : PEN_STORE_HEADER_BYTES);
  check_told(pen_store_header_decode(block, &header));
  free(block);
}

/* Forms: 0 a header; 1 a slot as it is; 2 a sealed slot; 3 a sealed slot that
 * is filled up with zeros to a whole number of pages, so that short seeds are
 * enough. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
  if (n_bytes < 1)
    return 0;
  int form = data[0] & 3;
  size_t n = n_bytes - 1;
  if (form == 0) {
    try_header(data + 1, n);
    return 0;
  }
  size_t whole = form == 3 ? 8192 + n / 4096 * 4096 : n;
  uint8_t *slot = calloc(1, whole ? whole : 1);
  if (!slot)
    abort();
  memcpy(slot, data + 1, n);
  try_manifest(slot, whole, form >= 2);
  free(slot);
  return 0;
}
