"""A file that gets its name when it is whole.

It is written beside its place under a name that begins with a dot, synced, and
renamed.  What is there already is replaced only if it begins as such files do, or
where --overwrite says so: a slip of the hand costs nobody's data.

One disadvantage: killed by signal 9 it leaves the file with the dot behind.
"""

import os
import stat
from contextlib import suppress

from penstock_prepare import PrepareError


class Target:
    """`option` names it; `magic`: the bytes such files begin with, None: only an empty
    file is replaced; `kind`: what they are called."""

    def __init__(self, path, magic, kind, option="--output", overwrite=False):
        self.path = os.fspath(path)
        self._folder, name = os.path.split(os.path.abspath(self.path))
        self.temporary = os.path.join(self._folder, f".{name}.{os.getpid()}.tmp")
        self._check_what_is_there(magic, kind, option, overwrite)

    def _check_what_is_there(self, magic, kind, option, overwrite):
        try:
            found = os.stat(self.path)
        except OSError:
            return  # writing will tell
        if not stat.S_ISREG(found.st_mode):
            raise PrepareError(f"{option}: {self.path} is there and is no file: name another one")
        if not found.st_size or overwrite:
            return
        if magic:
            with open(self.path, "rb") as file:
                if file.read(len(magic)) == magic:
                    return
        what = f"is no {kind}" if magic else "is not empty"
        raise PrepareError(f"{option}: {self.path} is there and {what}: it is not replaced; name another file, or "
                           "give --overwrite")

    def write(self, text):
        """All of it at once."""
        with self:
            try:
                with open(self.temporary, "w", encoding="utf-8", newline="") as file:
                    file.write(text)
                self.commit()
            except OSError as error:
                raise PrepareError(f"cannot write {self.path}: {error.strerror}") from None

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
