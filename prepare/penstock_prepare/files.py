"""Data out of files: the text of documents, and records with fields.

Text files are one document each.  Records are a .json list, the lines of a
.jsonl, or the rows of a .parquet file if pyarrow is there.  A directory that
holds train and valid files stands for the one that is asked for; any other is
a directory of text, read as penstock's own reader of bytes reads it.  A pipe is
read as a file of its name is, or where that says nothing, by how it begins.

One disadvantage: a .json file is read whole before its first record is used.
"""

import os
import re
import stat
from pathlib import Path

from penstock_prepare import PrepareError
from penstock_prepare.json_file import is_object, parse_json
from penstock_prepare.pipe import open_pipes

PROBE_BYTES = 4096
LINE_BYTES = 1 << 30  # of a record; a line is in memory whole
RECORD_SUFFIXES = {".json", ".jsonl", ".ndjson", ".parquet"}
TABLE_SUFFIXES = {".csv", ".tsv"}
TEXT_SUFFIXES = TABLE_SUFFIXES | {".txt", ".md"}
COMPRESSED = (b"\x1f\x8b", b"PK\3\4", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd")
SPLIT_SUFFIXES = RECORD_SUFFIXES | {".txt"}
SPLIT_NAME = re.compile(r"(train|training|valid|validation|val|dev|eval)([-_.].*)?$")


def split_files(folder, split):
    """The train or valid files of a directory that has train files, else none."""
    found = {"train": [], "valid": []}
    for path in sorted(Path(folder).iterdir(), key=os.fsencode):
        name = SPLIT_NAME.match(path.stem)
        if name and path.suffix.lower() in SPLIT_SUFFIXES and path.is_file():
            found["train" if name[1].startswith("train") else "valid"].append(path)
    if not found["train"]:
        return []
    if not found[split]:
        raise PrepareError(f"{folder} has a train file but none for validation "
                           "(valid.jsonl)")
    return found[split]


def resolve(paths, split):
    """`paths` with directories of train and valid files in the split's place, and
    pipes opened."""
    resolved = []
    for path in map(Path, paths):
        try:
            _check_kind(path)
            files = split_files(path, split) if path.is_dir() else []
        except OSError as error:
            raise _unreadable(error, path) from None
        resolved += files or [path]
    return open_pipes(resolved, RECORD_SUFFIXES | TEXT_SUFFIXES)


def _check_kind(path):
    """Only what has an end is read."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return  # reading will tell
    if stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISFIFO(mode):
        return
    kinds = {stat.S_IFCHR: "a device", stat.S_IFBLK: "a drive", stat.S_IFSOCK: "a socket"}
    raise PrepareError(f"{path} is {kinds.get(stat.S_IFMT(mode), 'something else')}: data are read from files, "
                       "directories and pipes only; write it to a file first")


def is_records(path):
    return path.suffix.lower() in RECORD_SUFFIXES and not path.is_dir()


def read_texts(path, notes):
    """(origin, text) of each document; what is left out is said in `notes`."""
    try:
        if path.is_dir():
            yield from _directory(path, notes)
        else:
            text = _decode(path.read_bytes(), path)
            if "\0" in text[:PROBE_BYTES]:
                raise PrepareError(f"{path} is no text: it has bytes that are 0")
            if not text.strip():
                raise PrepareError(f"{path} has no text: nothing to train on")
            if path.suffix.lower() in TABLE_SUFFIXES:
                notes.append(f"{path} is taken as plain text, not as a table of records (.jsonl)")
            yield str(path), text
    except OSError as error:
        raise _unreadable(error, path) from None


def read_records(path):
    """(origin, record) of each record, whatever it holds."""
    kind = path.suffix.lower()
    reader = _json if kind == ".json" else _parquet if kind == ".parquet" else _json_lines
    try:
        yield from reader(path)
    except OSError as error:
        raise _unreadable(error, path) from None


def _unreadable(error, path):
    return PrepareError(f"cannot read {error.filename or path}: {error.strerror or error}")


def _decode(data, path):
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if data.startswith(COMPRESSED):
            raise PrepareError(f"{path} is compressed: unpack it first") from None
        wide = data.startswith((b"\xff\xfe", b"\xfe\xff"))
        if b"\0" in data[:PROBE_BYTES] and not wide:
            raise PrepareError(f"{path} is no text: it has bytes that are 0") from None
        raise PrepareError(f"{path} is not UTF-8 at byte {error.start}: convert it first "
                           f"(iconv -f {'utf-16' if wide else 'latin1'} -t utf-8)") from None


def _fail(error):
    raise error


def _directory(root, notes):
    """As the byte reader of penstock takes a directory: hidden names, links,
    empty and binary files are left out, the order is that of the paths' bytes."""
    paths = []
    for folder, folders, files in os.walk(root, onerror=_fail):
        folders[:] = [f for f in folders
                      if not f.startswith(".") and not os.path.islink(os.path.join(folder, f))]
        paths += [os.path.join(folder, f) for f in files if not f.startswith(".")]
    not_utf8 = found = 0
    for path in sorted(paths, key=os.fsencode):
        if os.path.islink(path) or not os.path.isfile(path):
            continue
        data = Path(path).read_bytes()
        if not data or b"\0" in data[:PROBE_BYTES]:
            continue
        try:
            text = _decode(data, path)
        except PrepareError:
            not_utf8 += 1
            continue
        if not text:
            continue  # a byte order mark and no more
        found += 1
        yield path, text
    if not_utf8:
        notes.append(f"{not_utf8} files that are not UTF-8 left out")
    if not found:
        raise PrepareError(f"there is no text file in {root}")


def _json(path):
    text = _decode(path.read_bytes(), path)
    try:
        records = parse_json(text, path)
    except PrepareError as error:
        lines = text.split("\n", 1)
        if len(lines) == 2 and is_object(lines[0]):
            raise PrepareError(f"{error}; with one record a line it is a .jsonl file: rename it") from None
        raise
    if not isinstance(records, list):
        raise PrepareError(f"{path} holds no list of records (one record a line is "
                           "a .jsonl file)")
    for i, record in enumerate(records):
        yield f"{path} record {i}", record


def _json_lines(path):
    with path.open("rb") as file:
        for number, line in enumerate(iter(lambda: file.readline(LINE_BYTES + 1), b""), 1):
            origin = f"{path} line {number}"
            if len(line) > LINE_BYTES:
                raise PrepareError(f"{origin} is longer than {LINE_BYTES} bytes: one record is one line")
            if not line.strip():
                continue
            yield origin, parse_json(_decode(line.rstrip(b"\r\n"), origin), origin, one_line=True)


def _parquet(path):
    try:
        from pyarrow import ArrowException, parquet
    except ImportError:
        raise PrepareError(f"{path}: reading Parquet needs pyarrow (pip install pyarrow); "
                           "or convert it to .jsonl") from None
    number = 0
    try:
        for batch in parquet.ParquetFile(path).iter_batches(batch_size=256):
            for record in batch.to_pylist():
                yield f"{path} row {number}", record
                number += 1
    except ArrowException as error:
        raise PrepareError(f"{path} is not Parquet: {error}") from None
