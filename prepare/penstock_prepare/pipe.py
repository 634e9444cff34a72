"""Data from a pipe: `penstock-prepare ... <(zcat a.jsonl.gz)`.

What has passed is gone, so a pipe is opened once, and its first line kept for whoever
reads it: that line says what comes, where the name does not.

One disadvantage: nothing tells how much will come; text, which is held whole, ends
with an error beyond LIMIT_BYTES.
"""

import os
import re
from pathlib import Path

from penstock_prepare import PrepareError
from penstock_prepare.json_file import is_object

LIMIT_BYTES = 1 << 30  # of what has to be in memory whole
LIST_BEGINS = re.compile(rb"\s*\[\s*(\{|$)")


def open_pipes(paths, suffixes):
    """`paths` with those that are pipes opened, after a look at all of them."""
    names = {}
    for path in filter(Path.is_fifo, paths):
        found = os.stat(path)
        if names.setdefault((found.st_dev, found.st_ino), path) is not path:
            raise PrepareError(f"{path} is a pipe that was named before: it can be read only once")
        if path.suffix.lower() == ".parquet":
            raise PrepareError(f"{path} is a pipe, and of Parquet the end is read first: write it to a file")
    return [Pipe(path, suffixes) if path in names.values() else path for path in paths]


class Pipe:
    """As much of a Path as reading takes.  `suffixes`: those that say what a file holds."""

    def __init__(self, path, suffixes):
        self._path = path
        self.name, self.parent, self.suffix = path.name, path.parent, path.suffix
        self._file = open(path, "rb")  # as long as we live
        self._first = self._file.readline(LIMIT_BYTES + 1)
        self.note = None
        if self.suffix.lower() not in suffixes:
            self._guess()

    def _guess(self):
        if is_object(self._first):
            self.suffix, kind = ".jsonl", "records, one a line"
        elif LIST_BEGINS.match(self._first):
            self.suffix, kind = ".json", "a list of records"
        else:
            return
        self.note = f"{self} is taken as {kind}, by how it begins"

    def __str__(self):
        return str(self._path)

    def is_dir(self):
        return False

    def open(self, _mode):
        return self

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        self._file.close()

    def readline(self, limit):
        first, self._first = self._first, b""
        return first or self._file.readline(limit)

    def read_bytes(self):
        with self._file:
            data = self._first + self._file.read(LIMIT_BYTES + 1 - len(self._first))
        if len(data) > LIMIT_BYTES:
            raise PrepareError(f"{self} is a pipe with more than {LIMIT_BYTES} bytes that are held whole: records in "
                               ".jsonl are not; or write it to a file")
        return data
