"""A file that gets its name when it is whole.

It is written beside its place under a name that begins with a dot, synced, and
renamed.  What is there already is replaced only if it begins as such files do, or
where --overwrite says so: a slip of the hand costs nobody's data.

Killed by signal 9 it leaves the file with the dot behind, which the next one of the
same name removes: its process is no more, and nobody holds it locked (from another
machine or container, where the process is not seen).

One disadvantage: where no next one comes it stays.
"""

import fcntl
import os
import re
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
        self._held = None
        self._check_what_is_there(magic, kind, option, overwrite)
        with suppress(OSError):  # writing will tell
            self._remove_leftovers(name)

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

    def _remove_leftovers(self, name):
        of_a_process = re.compile(re.escape(f".{name}.") + r"([0-9]+)\.tmp")
        for found in os.listdir(self._folder):
            left = of_a_process.fullmatch(found)
            if not left or os.path.exists(f"/proc/{left[1]}"):
                continue
            path = os.path.join(self._folder, found)
            with suppress(OSError), open(path, "rb", opener=_no_link) as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.unlink(path)

    def hold(self):
        """The temporary file, empty, and ours as long as we live."""
        self._held = open(self.temporary, "wb")  # closed when we leave
        with suppress(OSError):  # some file systems have no locks
            fcntl.flock(self._held, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def write(self, text):
        """All of it at once."""
        with self:
            try:
                self.hold()
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
        if self._held:
            self._held.close()
        with suppress(FileNotFoundError):  # it has its name already where all went well
            os.unlink(self.temporary)


def _no_link(path, flags):
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)
