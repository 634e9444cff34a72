"""Writes penstock's token file, version 1 (docs/FORMATS.md).

Tokens go to the file as they come; the header is written last, and then it gets
its name.  The same samples give the same bytes.

One disadvantage: borders wait in memory, eight bytes per document, and from the
first token that is not trained on also loss flags, one byte per token.
"""

import struct
import sys
import zlib
from array import array
from contextlib import contextmanager, suppress

from penstock_prepare import PrepareError
from penstock_prepare.target import Target

MAGIC = b"PENTOKEN"
HEADER_BYTES = 256
VERSION = 1
ALIGN = 64
FLAG_RECORDS = 1
FLAG_LOSS = 2


def _little(numbers):
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tobytes()


def pack_bits(flags):
    """One bit per flag (bytes of 0 or 1), the first in the lowest bit."""
    n_bytes = (len(flags) + 7) // 8
    bits = 0
    for k in range(8):
        # each byte is 0 or 1, so that shifting by k stays inside the byte
        bits |= int.from_bytes(flags[k::8], "little") << k
    return bits.to_bytes(n_bytes, "little")


class TokenFile:
    def __init__(self, path, tokenizer, records, overwrite=False):
        self._target = Target(path, MAGIC, "token file", overwrite=overwrite)
        self._tokenizer = tokenizer
        self._records = records
        self._flags = None  # no section as long as all tokens are trained
        self._borders = array("Q", [0])
        self._crc = 0
        self._token_bytes = 2 if tokenizer.vocab_size <= 1 << 16 else 4
        self._file = None

    def __enter__(self):
        with self._failures():
            self._file = open(self._target.temporary, "wb")
            self._file.write(bytes(HEADER_BYTES))
        return self

    @contextmanager
    def _failures(self):
        try:
            yield
        except OSError as error:
            raise PrepareError(f"cannot write {self._target.path} after {self.n_tokens} tokens: "
                               f"{error.strerror}") from None

    def add(self, ids, flags):
        """One document; tokens whose flag is 1 are targets."""
        data = _little(array("H" if self._token_bytes == 2 else "I", ids))
        self._crc = zlib.crc32(data, self._crc)
        with self._failures():
            self._file.write(data)
        if self._flags is None and 0 in flags:
            self._flags = bytearray(b"\1" * self.n_tokens)
        if self._flags is not None:
            self._flags += flags
        self._borders.append(self._borders[-1] + len(ids))

    @property
    def n_docs(self):
        return len(self._borders) - 1

    @property
    def n_tokens(self):
        return self._borders[-1]

    @property
    def n_trained(self):
        return self.n_tokens if self._flags is None else sum(self._flags)

    def _align(self):
        self._file.write(bytes(-self._file.tell() % ALIGN))

    def finish(self):
        """Completes the file and gives it its name."""
        loss = b"" if self._flags is None else pack_bits(self._flags)
        borders = _little(array("Q", self._borders))
        with self._failures():
            self._align()
            self._file.write(loss)
            self._align()
            self._file.write(borders)
            n_bytes = self._file.tell()
            self._file.seek(0)
            self._file.write(self._header(loss, borders, n_bytes))
            self._file.close()
            self._target.commit()

    def _header(self, loss, borders, n_bytes):
        def optional(number):
            return -1 if number is None else number

        t = self._tokenizer
        flags = FLAG_RECORDS * self._records | FLAG_LOSS * (self._flags is not None)
        head = struct.pack("<8s4I3Q2I3q32s4IQ", MAGIC, VERSION, HEADER_BYTES,
                           self._token_bytes, flags, self.n_tokens, self.n_docs,
                           self.n_trained, t.vocab_size, 0, optional(t.bos_id),
                           optional(t.eos_id), optional(t.pad_id), t.sha256, self._crc,
                           zlib.crc32(loss), zlib.crc32(borders), 0, n_bytes)
        head += bytes(HEADER_BYTES - 4 - len(head))
        return head + struct.pack("<I", zlib.crc32(head))

    def __exit__(self, kind, value, trace):
        with self._target, suppress(OSError):  # what it still holds may not fit; the first failure is told
            self._file.close()
