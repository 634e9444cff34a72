"""The command line of penstock-prepare.

Exit codes: 0 done, 1 refused or failed, 2 wrong usage.  A failure is one line
on standard error; so is the summary of a success.
"""

import argparse
import os
import sys
from itertools import islice

from penstock_prepare import PrepareError
from penstock_prepare.samples import Sample, is_records, read_samples
from penstock_prepare.token_file import TokenFile
from penstock_prepare.tokenizer import Tokenizer

BATCH = 256  # samples that go to the library at once


def parser():
    p = argparse.ArgumentParser(
        prog="penstock-prepare",
        description="Turn text, directories of text or JSON/JSONL records into a token file.")
    p.add_argument("data", nargs="*", help="text file, directory, .json or .jsonl")
    p.add_argument("--tokenizer", required=True, metavar="DIR",
                   help="model directory, or a tokenizer.json")
    p.add_argument("-o", "--output", metavar="FILE", help="token file to write (.pent)")
    p.add_argument("--completion-only", action="store_true",
                   help="train only the completion of records, not their prompt")
    p.add_argument("--bos", metavar="TOKEN", help="begin every document with this token")
    p.add_argument("--eos", metavar="TOKEN", help="end every document with this token")
    p.add_argument("--show", type=int, default=0, metavar="N",
                   help="print the first N samples; parts that are not trained in [[ ]]")
    p.add_argument("--encode", action="store_true",
                   help="text on standard input to ids on standard output, no end token")
    p.add_argument("--decode", action="store_true",
                   help="ids on standard input to text on standard output")
    return p


def check_usage(p, a):
    if a.encode and a.decode:
        p.error("--encode and --decode exclude each other")
    if a.encode or a.decode:
        if a.data or a.output:
            p.error("--encode and --decode take standard input and no files")
        return
    if not a.data:
        p.error("no data named")
    if not a.output and not a.show:
        p.error("nothing to do: name the file to write with --output, or --show samples")
    kinds = {is_records(path) for path in a.data}
    if len(kinds) > 1:
        p.error("records (.json, .jsonl) and text cannot go into one file")
    if a.completion_only and kinds != {True}:
        p.error("--completion-only is for records; text has no completion")


def encoded(arguments, tokenizer, notes):
    """(ids, first trained token) of every document, in order."""
    for path in arguments.data:
        samples = read_samples(path, notes)
        while batch := list(islice(samples, BATCH)):
            for ids, first in tokenizer.encode(batch):
                yield ids, first if arguments.completion_only else 0


def show(tokenizer, number, ids, first):
    text = tokenizer.decode(ids[first:])
    if first:
        text = f"[[{tokenizer.decode(ids[:first])}]]{text}"
    print(f"--- sample {number}: {len(ids)} tokens, {len(ids) - first} trained\n{text}")


def prepare(arguments):
    tokenizer = Tokenizer(arguments.tokenizer, arguments.bos, arguments.eos)
    notes = []
    if tokenizer.eos_id is None:
        notes.append("the tokenizer names no end token, none added (--eos)")
    documents = encoded(arguments, tokenizer, notes)
    if not arguments.output:
        for i, (ids, first) in enumerate(islice(documents, arguments.show)):
            show(tokenizer, i, ids, first)
        return
    with TokenFile(arguments.output, tokenizer, is_records(arguments.data[0]),
                   arguments.completion_only) as file:
        for i, (ids, first) in enumerate(documents):
            if i < arguments.show:
                show(tokenizer, i, ids, first)
            file.add(ids, first)
        if not file.n_tokens:
            raise PrepareError(f"{', '.join(arguments.data)}: nothing to train on")
        file.finish()
        summary = (f"{file.n_docs} documents, {file.n_tokens} tokens, {file.n_trained} of "
                   f"them targets, in {arguments.output}")
    print("; ".join([summary] + notes), file=sys.stderr)


def encode(arguments):
    tokenizer = Tokenizer(arguments.tokenizer, arguments.bos, arguments.eos)
    try:
        text = sys.stdin.buffer.read().decode("utf-8")
    except UnicodeDecodeError as error:
        raise PrepareError(f"the text is not UTF-8 at byte {error.start}") from None
    (ids, _), = tokenizer.encode([Sample(text, 0, "the text")], end=False)
    print(*ids)


def decode(arguments):
    tokenizer = Tokenizer(arguments.tokenizer, arguments.bos, arguments.eos)
    try:
        ids = [int(word) for word in sys.stdin.read().split()]
    except ValueError as error:
        raise PrepareError(f"ids are decimal numbers: {error}") from None
    if ids and not 0 <= min(ids) <= max(ids) < 1 << 32:
        raise PrepareError("ids are numbers from 0 to 4294967295")
    sys.stdout.buffer.write(tokenizer.decode(ids, skip_special_tokens=True).encode())


def main(argv=None):
    p = parser()
    arguments = p.parse_args(argv)
    check_usage(p, arguments)
    job = encode if arguments.encode else decode if arguments.decode else prepare
    try:
        job(arguments)
        sys.stdout.flush()
    except PrepareError as error:
        message = str(error)
    except ImportError as error:
        message = f"{error}: install it with tools/setup, or pip install ./prepare"
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # nobody reads --show any more
        return 1
    except OSError as error:
        message = str(error)
    except KeyboardInterrupt:
        message = "stopped"
    else:
        return 0
    print("penstock-prepare: " + " ".join(message.split()), file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
