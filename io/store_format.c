/* store_format.c: the bytes of a store's files.
 *
 * Little-endian, written field by field at fixed offsets.  Invariant: decode
 * of any bytes reads within them and yields only structs whose numbers fit
 * together.  Any thread.  Disadvantage: a slot is encoded whole at every
 * commit, also when few tiles changed. */
#include "io/store_format.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "io/crc32c.h"

#define MANIFEST_MAGIC "PENMANI\1"
#define HEADER_MAGIC "PENDATA\1"
#define VERSION 1

/* Offsets within a manifest slot. */
enum {
  AT_MAGIC = 0,
  AT_VERSION = 8,
  AT_N_DIRS = 12,
  AT_RUN_ID = 16,
  AT_GENERATION = 32,
  AT_STEP = 40,
  AT_FLAGS = 48, /* 1 committed, 2 in place */
  AT_META_BYTES = 52,
  AT_TILE_BYTES = 56,
  AT_N_TILES = 64,
  AT_SCRATCH_BYTES = 72,
  AT_N_EXTENTS = 80,
  AT_SHARES = 208,
  AT_CRC = 508, /* of all other bytes of the slot */
  AT_META = 512,
  AT_PLACES = AT_META + PEN_STORE_META_BYTES_MAX,
  PLACE_BYTES = 24, /* dir, crc, extent, CRC of the head: 4 each;
                        bytes: 8 */
};

/* Offsets within a data file's header. */
enum {
  AT_H_DIR = 12,
  AT_H_N_DIRS = 16,
  AT_H_RUN_ID = 24,
  AT_H_TILE_BYTES = 40,
  AT_H_N_EXTENTS = 48,
  AT_H_SCRATCH_BYTES = 56,
  AT_H_CRC = 64, /* of the bytes before it */
};

static void put32(uint8_t *p, uint32_t x)
{
  for (int i = 0; i < 4; i++)
    p[i] = (uint8_t)(x >> 8 * i);
}

static void put64(uint8_t *p, uint64_t x)
{
  for (int i = 0; i < 8; i++)
    p[i] = (uint8_t)(x >> 8 * i);
}

static uint32_t get32(const uint8_t *p)
{
  return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 |
         (uint32_t)p[3] << 24;
}

static uint64_t get64(const uint8_t *p)
{
  return get32(p) | (uint64_t)get32(p + 4) << 32;
}

size_t pen_store_manifest_bytes(uint64_t n_tiles)
{
  if (n_tiles > (SIZE_MAX / 4 - AT_PLACES) / PLACE_BYTES)
    return 0;
  size_t bytes = AT_PLACES + (size_t)n_tiles * PLACE_BYTES;
  return (bytes + PEN_STORE_ALIGN - 1) & ~(size_t)(PEN_STORE_ALIGN - 1);
}

static uint32_t slot_crc(const uint8_t *slot, size_t bytes)
{
  uint32_t crc = pen_crc32c(0, slot, AT_CRC);
  return pen_crc32c(crc, slot + AT_CRC + 4, bytes - AT_CRC - 4);
}

void pen_store_manifest_seal(void *slot, size_t bytes)
{
  put32((uint8_t *)slot + AT_CRC, slot_crc(slot, bytes));
}

void pen_store_manifest_encode(const struct pen_store_manifest *m,
                               void *ret_slot)
{
  uint8_t *slot = ret_slot;
  size_t bytes = pen_store_manifest_bytes(m->n_tiles);
  memset(slot, 0, bytes);
  memcpy(slot + AT_MAGIC, MANIFEST_MAGIC, 8);
  put32(slot + AT_VERSION, VERSION);
  put32(slot + AT_N_DIRS, m->n_dirs);
  memcpy(slot + AT_RUN_ID, m->run_id, sizeof m->run_id);
  put64(slot + AT_GENERATION, m->generation);
  put64(slot + AT_STEP, m->step);
  put32(slot + AT_FLAGS, (uint32_t)m->committed | (uint32_t)m->in_place << 1);
  put32(slot + AT_META_BYTES, m->meta_bytes);
  put64(slot + AT_TILE_BYTES, m->tile_bytes);
  put64(slot + AT_N_TILES, m->n_tiles);
  put64(slot + AT_SCRATCH_BYTES, m->scratch_bytes);
  for (size_t d = 0; d < PEN_STORE_DIRS_MAX; d++) {
    put64(slot + AT_N_EXTENTS + 8 * d, m->n_extents[d]);
    put32(slot + AT_SHARES + 4 * d, m->stripe_shares[d]);
  }
  memcpy(slot + AT_META, m->meta, m->meta_bytes);
  for (size_t i = 0; i < m->n_tiles; i++) {
    uint8_t *p = slot + AT_PLACES + i * PLACE_BYTES;
    put32(p, m->places[i].dir);
    put32(p + 4, m->places[i].crc);
    put32(p + 8, m->places[i].extent);
    put32(p + 12, m->places[i].head_crc);
    put64(p + 16, m->places[i].bytes);
  }
  pen_store_manifest_seal(slot, bytes);
}

/* Everything before the places. */
static int decode_head(const uint8_t *slot, size_t bytes,
                       struct pen_store_manifest *m)
{
  if (bytes < AT_PLACES || memcmp(slot, MANIFEST_MAGIC, 8) != 0)
    return pen_error_set(-PEN_EFORMAT, "not a store manifest");
  if (get32(slot + AT_VERSION) != VERSION)
    return pen_error_set(-PEN_EUNSUPPORTED,
                         "store manifest of version %u, this program knows %d",
                         get32(slot + AT_VERSION), VERSION);
  if (get32(slot + AT_CRC) != slot_crc(slot, bytes))
    return pen_error_set(-PEN_ECORRUPT, "store manifest: wrong checksum");
  uint32_t flags = get32(slot + AT_FLAGS);
  memcpy(m->run_id, slot + AT_RUN_ID, sizeof m->run_id);
  m->generation = get64(slot + AT_GENERATION);
  m->step = get64(slot + AT_STEP);
  m->committed = flags & 1;
  m->in_place = flags >> 1 & 1;
  m->n_dirs = get32(slot + AT_N_DIRS);
  m->meta_bytes = get32(slot + AT_META_BYTES);
  m->tile_bytes = get64(slot + AT_TILE_BYTES);
  m->n_tiles = get64(slot + AT_N_TILES);
  m->scratch_bytes = get64(slot + AT_SCRATCH_BYTES);
  if (flags > 3 || m->n_dirs < 1 || m->n_dirs > PEN_STORE_DIRS_MAX ||
      m->meta_bytes > PEN_STORE_META_BYTES_MAX ||
      m->tile_bytes % PEN_STORE_ALIGN || m->tile_bytes > INT64_MAX ||
      (m->n_tiles && !m->tile_bytes) || m->scratch_bytes > INT64_MAX ||
      pen_store_manifest_bytes(m->n_tiles) != bytes)
    return pen_error_set(-PEN_EFORMAT,
                         "store manifest: %" PRIu64 " tiles of %" PRIu64
                         " bytes in %u directories do not fit a slot of %zu "
                         "bytes", m->n_tiles, m->tile_bytes, m->n_dirs, bytes);
  memcpy(m->meta, slot + AT_META, m->meta_bytes);
  return 0;
}

static int decode_dirs(const uint8_t *slot, struct pen_store_manifest *m)
{
  uint64_t share = 0;
  for (size_t d = 0; d < PEN_STORE_DIRS_MAX; d++) {
    m->n_extents[d] = get64(slot + AT_N_EXTENTS + 8 * d);
    m->stripe_shares[d] = get32(slot + AT_SHARES + 4 * d);
    bool fits = m->n_extents[d] <= UINT32_MAX &&
                (!m->tile_bytes ||
                 m->n_extents[d] <= INT64_MAX / 2 / m->tile_bytes) &&
                (d < m->n_dirs || (!m->n_extents[d] && !m->stripe_shares[d]));
    if (!fits)
      return pen_error_set(-PEN_EFORMAT, "store manifest: %" PRIu64
                           " extents in directory %zu", m->n_extents[d], d);
    share += m->stripe_shares[d];
  }
  return share >= 1 && share <= 64
             ? 0
             : pen_error_set(-PEN_EFORMAT, "store manifest: stripe of %" PRIu64
                             " pieces", share);
}

static int decode_places(const uint8_t *slot, struct pen_store_manifest *m)
{
  for (size_t i = 0; i < m->n_tiles; i++) {
    const uint8_t *p = slot + AT_PLACES + i * PLACE_BYTES;
    struct pen_store_place place = {.dir = get32(p), .crc = get32(p + 4),
                                    .extent = get32(p + 8),
                                    .head_crc = get32(p + 12),
                                    .bytes = get64(p + 16)};
    m->places[i] = place;
    if (place.dir == UINT32_MAX)
      continue;
    if (place.dir >= m->n_dirs || place.extent >= m->n_extents[place.dir] ||
        place.bytes > m->tile_bytes || place.bytes % PEN_STORE_ALIGN ||
        !place.bytes)
      return pen_error_set(-PEN_EFORMAT, "store manifest: tile %zu has %" PRIu64
                           " bytes in extent %" PRIu32 " of directory %u", i,
                           place.bytes, place.extent, place.dir);
  }
  return 0;
}

int pen_store_manifest_decode(const void *slot, size_t bytes,
                              struct pen_store_manifest *ret_manifest)
{
  struct pen_store_manifest m = {.places = NULL};
  int code = decode_head(slot, bytes, &m);
  if (!code)
    code = decode_dirs(slot, &m);
  if (code)
    return code;
  m.places = calloc(m.n_tiles ? m.n_tiles : 1, sizeof *m.places);
  if (!m.places)
    return pen_error_set(-ENOMEM, "cannot hold %" PRIu64 " tiles", m.n_tiles);
  code = decode_places(slot, &m);
  if (code)
    free(m.places);
  else
    *ret_manifest = m;
  return code;
}

void pen_store_header_encode(const struct pen_store_header *header,
                             void *ret_block)
{
  uint8_t *block = ret_block;
  memset(block, 0, PEN_STORE_HEADER_BYTES);
  memcpy(block + AT_MAGIC, HEADER_MAGIC, 8);
  put32(block + AT_VERSION, VERSION);
  put32(block + AT_H_DIR, header->dir);
  put32(block + AT_H_N_DIRS, header->n_dirs);
  memcpy(block + AT_H_RUN_ID, header->run_id, sizeof header->run_id);
  put64(block + AT_H_TILE_BYTES, header->tile_bytes);
  put64(block + AT_H_N_EXTENTS, header->n_extents);
  put64(block + AT_H_SCRATCH_BYTES, header->scratch_bytes);
  put32(block + AT_H_CRC, pen_crc32c(0, block, AT_H_CRC));
}

int pen_store_header_decode(const void *data,
                            struct pen_store_header *ret_header)
{
  const uint8_t *block = data;
  if (memcmp(block, HEADER_MAGIC, 8) != 0)
    return pen_error_set(-PEN_EFORMAT, "not a store data file");
  if (get32(block + AT_VERSION) != VERSION)
    return pen_error_set(-PEN_EUNSUPPORTED,
                         "store data file of version %u, this program knows %d",
                         get32(block + AT_VERSION), VERSION);
  if (get32(block + AT_H_CRC) != pen_crc32c(0, block, AT_H_CRC))
    return pen_error_set(-PEN_ECORRUPT, "store data file: wrong checksum");
  ret_header->dir = get32(block + AT_H_DIR);
  ret_header->n_dirs = get32(block + AT_H_N_DIRS);
  memcpy(ret_header->run_id, block + AT_H_RUN_ID, sizeof ret_header->run_id);
  ret_header->tile_bytes = get64(block + AT_H_TILE_BYTES);
  ret_header->n_extents = get64(block + AT_H_N_EXTENTS);
  ret_header->scratch_bytes = get64(block + AT_H_SCRATCH_BYTES);
  return 0;
}
