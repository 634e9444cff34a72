/* saved_format.h: the bytes of a checkpoint's state file (docs/FORMATS.md). */
#ifndef PEN_SRC_TRAIN_SAVED_FORMAT_H
#define PEN_SRC_TRAIN_SAVED_FORMAT_H

#include "src/train/saved.h"

#define PEN_SAVED_PAGE 4096
#define PEN_SAVED_MAGIC UINT64_C(0x4554415453534e50) /* "PNSSTATE" */
#define PEN_SAVED_VERSION 1

/* At offset 0, written last; tiles follow from offset PEN_SAVED_PAGE on, each
 * on a page; the table is at the end. */
struct pen_saved_header {
  uint64_t magic;
  uint32_t version;
  uint32_t crc; /* of the header with this field 0 */
  uint64_t n_tiles, table_offset, file_bytes;
  uint32_t table_crc;
  uint32_t generation;
  struct pen_cursor cursor;
};

static inline uint64_t pen_saved_page_up(uint64_t bytes)
{
  return (bytes + PEN_SAVED_PAGE - 1) / PEN_SAVED_PAGE * PEN_SAVED_PAGE;
}

#endif
