"""Samples out of files: plain text, directories of text, JSON and JSONL records.

A record's kind is told by its keys:

    text                          the text itself
    prompt, completion            the one followed by the other
    instruction, [input], output  Alpaca's, under its usual headings

One disadvantage: a .json file is read whole before its first record is used.
"""

import json
import os
from dataclasses import dataclass
from pathlib import Path

from penstock_prepare import PrepareError

PROBE_BYTES = 4096
RECORD_SUFFIXES = {".json", ".jsonl", ".ndjson"}
CHAT_KEYS = {"messages", "conversations", "conversation"}


@dataclass
class Sample:
    text: str
    prompt_chars: int  # how many characters at its start are not the completion
    origin: str  # for messages


def is_records(path):
    return Path(path).suffix.lower() in RECORD_SUFFIXES and not os.path.isdir(path)


def read_samples(path, notes):
    """Yields the samples of `path`; what is left out is said in `notes`."""
    try:
        if os.path.isdir(path):
            yield from _directory(Path(path), notes)
        elif is_records(path):
            for origin, record in _records(Path(path)):
                yield _from_record(record, origin)
        else:
            yield Sample(_decode(Path(path).read_bytes(), path), 0, str(path))
    except OSError as error:
        raise PrepareError(f"cannot read {error.filename or path}: {error.strerror}") from None


def _decode(data, path):
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise PrepareError(f"{path} is not UTF-8 at byte {error.start}: convert it first "
                           "(iconv -f latin1 -t utf-8)") from None


def _directory(root, notes):
    """As the byte reader of penstock takes a directory: hidden names, links,
    empty and binary files are left out, the order is that of the paths' bytes."""
    paths = []
    for folder, folders, files in os.walk(root):
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
        found += 1
        yield Sample(text, 0, path)
    if not_utf8:
        notes.append(f"{not_utf8} files that are not UTF-8 left out")
    if not found:
        raise PrepareError(f"there is no text file in {root}")


def _records(path):
    if path.suffix.lower() == ".json":
        text = _decode(path.read_bytes(), path)
        try:
            records = json.loads(text)
        except json.JSONDecodeError as error:
            raise PrepareError(f"{path} is not JSON at line {error.lineno}, column "
                               f"{error.colno}: {error.msg}") from None
        if not isinstance(records, list):
            raise PrepareError(f"{path} holds no list of records (one record a line is "
                               "a .jsonl file)")
        for i, record in enumerate(records):
            yield f"{path} record {i}", record
        return
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            origin = f"{path} line {number}"
            if not line.strip():
                continue
            text = _decode(line, origin)
            try:
                yield origin, json.loads(text)
            except json.JSONDecodeError as error:
                raise PrepareError(f"{origin} is not JSON: {error.msg} at column "
                                   f"{error.colno}") from None


def _field(record, key, origin):
    value = record[key]
    if value is None:
        return ""
    if not isinstance(value, str):
        raise PrepareError(f"{origin}: \"{key}\" is {type(value).__name__}, not text")
    return value


def _from_record(record, origin):
    if not isinstance(record, dict):
        raise PrepareError(f"{origin} is {type(record).__name__}, not an object with fields")
    keys = record.keys()
    if "text" in keys:
        return Sample(_field(record, "text", origin), 0, origin)
    if {"prompt", "completion"} <= keys:
        prompt, completion = _field(record, "prompt", origin), _field(record, "completion", origin)
    elif {"instruction", "output"} <= keys:
        prompt = "### Instruction:\n" + _field(record, "instruction", origin)
        if record.get("input"):
            prompt += "\n\n### Input:\n" + _field(record, "input", origin)
        prompt += "\n\n### Response:\n"
        completion = _field(record, "output", origin)
    elif CHAT_KEYS & keys:
        raise PrepareError(f"{origin} is a conversation; these need a chat template, which "
                           "this version does not apply")
    else:
        raise PrepareError(f"{origin} has the fields {', '.join(sorted(keys)) or '(none)'}; "
                           "known are text, prompt + completion, instruction (+ input) + output")
    return Sample(prompt + completion, len(prompt), origin)
