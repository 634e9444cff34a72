"""A file that gets its name when it is whole.

It is written beside its place under a name that begins with a dot, synced, and
renamed.  What is there already is replaced only if it begins as such files do, so
that a slip of the hand costs nobody's data.

One disadvantage: killed by signal 9 it leaves the file with the dot behind.
"""

import os
import stat
from contextlib import suppress

from penstock_prepare import PrepareError


class Target:
    """`magic`: the bytes such files begin with; `kind`: what they are called."""

    def __init__(self, path, magic, kind):
        self.path = os.fspath(path)
        self._folder, name = os.path.split(os.path.abspath(self.path))
        self.temporary = os.path.join(self._folder, f".{name}.{os.getpid()}.tmp")
        self._check_what_is_there(magic, kind)

    def _check_what_is_there(self, magic, kind):
        try:
            found = os.stat(self.path)
        except OSError:
            return  # writing will tell
        if not stat.S_ISREG(found.st_mode):
            raise PrepareError(f"{self.path} is there and is no file: name another one with --output")
        with open(self.path, "rb") as file:
            if found.st_size and file.read(len(magic)) != magic:
                raise PrepareError(f"{self.path} is there and is no {kind}: it is not replaced; name another "
                                   "file with --output, or remove it")

    def commit(self):
        with open(self.temporary, "rb") as file:
            os.fsync(file.fileno())
        os.replace(self.temporary, self.path)
        folder = os.open(self._folder, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        with suppress(FileNotFoundError):  # it has its name already where all went well
            os.unlink(self.temporary)
