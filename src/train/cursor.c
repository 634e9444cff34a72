/* cursor.c: takes a cursor out of a manifest's bytes. */
#include "src/train/cursor.h"

#include <string.h>

#include "base/error.h"
#include "kernels/state.h"

int pen_cursor_read(const void *bytes, size_t n_bytes,
                    struct pen_cursor *ret_cursor)
{
  struct pen_cursor cursor;
  if (n_bytes != sizeof cursor)
    return pen_error_set(PEN_EFORMAT, "a run's position has %zu bytes, not %zu",
                         n_bytes, sizeof cursor);
  memcpy(&cursor, bytes, sizeof cursor);
  if (cursor.magic != PEN_CURSOR_MAGIC || cursor.version != PEN_CURSOR_VERSION)
    return pen_error_set(PEN_EFORMAT, "a run's position has version %llu, this "
                         "penstock reads %d",
                         (unsigned long long)cursor.version,
                         PEN_CURSOR_VERSION);
  if (!pen_state_numbered(cursor.state))
    return pen_error_set(PEN_EFORMAT, "its state has format %u, which this "
                         "penstock does not know", cursor.state);
  *ret_cursor = cursor;
  return 0;
}
