/* store_format.h: the bytes of a store's files (docs/FORMATS.md).
 *
 * Pure functions between bytes and structs; no byte is believed before its
 * CRC, range and relation to the others have been checked.  Any thread. */
#ifndef PEN_IO_STORE_FORMAT_H
#define PEN_IO_STORE_FORMAT_H

#include "io/store.h"

#define PEN_STORE_HEADER_BYTES 4096 /* at the start of each data file */

/* One manifest slot. */
struct pen_store_manifest {
  uint8_t run_id[16];
  uint64_t generation; /* of the commit; picks the slot by its parity */
  uint64_t step;
  bool committed, in_place;
  uint32_t n_dirs;
  uint64_t tile_bytes, n_tiles, scratch_bytes;
  uint64_t n_extents[PEN_STORE_DIRS_MAX];    /* of each directory */
  uint32_t stripe_shares[PEN_STORE_DIRS_MAX];
  uint32_t meta_bytes;
  uint8_t meta[PEN_STORE_META_BYTES_MAX];
  struct pen_store_place *places; /* [n_tiles] */
};

/* Bytes of a slot for so many tiles, a multiple of PEN_STORE_ALIGN; 0 when
 * that overflows. */
size_t pen_store_manifest_bytes(uint64_t n_tiles);
/* Fills a slot of pen_store_manifest_bytes(n_tiles) bytes. */
void pen_store_manifest_encode(const struct pen_store_manifest *manifest,
                               void *ret_slot);
/* Reads a slot of `bytes` bytes.  -PEN_ECORRUPT: CRC; -PEN_EFORMAT: anything
 * else.  The caller frees ret_manifest->places. */
int pen_store_manifest_decode(const void *slot, size_t bytes,
                              struct pen_store_manifest *ret_manifest);
/* Puts the right CRC into a slot (fuzzers get past the check with it). */
void pen_store_manifest_seal(void *slot, size_t bytes);

/* What a data file says of itself. */
struct pen_store_header {
  uint8_t run_id[16];
  uint32_t dir, n_dirs;
  uint64_t tile_bytes, n_extents, scratch_bytes; /* of this file */
};
void pen_store_header_encode(const struct pen_store_header *header,
                             void *ret_block /* [PEN_STORE_HEADER_BYTES] */);
int pen_store_header_decode(const void *block,
                            struct pen_store_header *ret_header);

#endif
