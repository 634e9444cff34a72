"""The command line of penstock-prepare.

Exit codes: 0 done, 1 refused or failed, 2 wrong usage.  A failure is one line
on standard error; a success is said there in a few: what was found, how its
first sample looks, what was dropped, and last the counts.
"""

import argparse
import os
import signal
import sys
from itertools import islice

from penstock_prepare import PrepareError
from penstock_prepare.aside import leave
from penstock_prepare.companions import Companions
from penstock_prepare.endings import warning_of
from penstock_prepare.files import is_records, resolve
from penstock_prepare.gguf_file import TYPES as GGUF_TYPES
from penstock_prepare.gguf_file import write_gguf
from penstock_prepare.samples import Sample, Samples
from penstock_prepare.serve import serve
from penstock_prepare.show import escaped, first_line, show
from penstock_prepare.token_file import TokenFile
from penstock_prepare.tokenizer import Tokenizer

BATCH = 256  # samples that go to the library at once
SHOWN_DIGITS = 40


class Parser(argparse.ArgumentParser):
    def error(self, message):
        """One line, not the whole usage before it."""
        self.exit(2, f"{self.prog}: {escaped(message)}; see --help\n")


def parser():
    p = Parser(
        prog="penstock-prepare",
        description="Turn text, directories of text or records (JSON, JSONL, Parquet) into a "
                    "token file.")
    p.add_argument("data", nargs="*", help="text file, directory, .json, .jsonl or .parquet")
    p.add_argument("--tokenizer", required=True, metavar="DIR",
                   help="model directory, or a tokenizer.json")
    p.add_argument("-o", "--output", metavar="FILE", help="token file to write (.pent)")
    p.add_argument("--chat-template", metavar="FILE|NAME",
                   help="a Jinja file, one of the model's templates by name, or chatml; "
                        "else the model's own")
    p.add_argument("--save-template", metavar="FILE",
                   help="write the chat template that was used to a file")
    p.add_argument("--assistant-only-loss", action="store_true",
                   help="train only what the assistant says in conversations")
    p.add_argument("--completion-only-loss", "--completion-only", action="store_true",
                   help="train only the completion of records, not their prompt; of "
                        "conversations the assistant's last turn")
    p.add_argument("--choices", metavar="FILE",
                   help="of questions with choices: write what penstock eval needs to score them")
    p.add_argument("--overwrite", action="store_true",
                   help="replace whatever file is at --output, --save-template or --choices; else "
                        "only what such an option wrote")
    p.add_argument("--split", choices=["train", "valid"], default="train",
                   help="which files of a directory that has train and valid files")
    p.add_argument("--bos", metavar="TOKEN", help="begin every document with this token")
    p.add_argument("--eos", metavar="TOKEN", help="end every document with this token")
    p.add_argument("--show", type=_count, default=0, metavar="N",
                   help="print the first N samples; what is not trained is dim, or in [[ ]]")
    p.add_argument("--encode", action="store_true",
                   help="text on standard input to ids on standard output, no end token")
    p.add_argument("--decode", action="store_true",
                   help="ids on standard input to text on standard output")
    p.add_argument("--gguf", choices=GGUF_TYPES, metavar="TYPE",
                   help="the model of --tokenizer as a GGUF file for llama.cpp: F32, F16, BF16, Q8_0")
    p.add_argument("--serve", action="store_true",
                   help="answer requests on standard input, one a line (see serve.py)")
    return p


def _count(text):
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text} is no number of 0 or more")
    if len(text) > len(str(sys.maxsize)) or int(text) > sys.maxsize:
        raise argparse.ArgumentTypeError(f"{text[:SHOWN_DIGITS]}{'...' * (len(text) > SHOWN_DIGITS)} is more than "
                                         f"{sys.maxsize}")
    return int(text)


def check_usage(p, a):
    if a.encode + a.decode + a.serve > 1:
        p.error("--encode, --decode and --serve exclude each other")
    if a.encode or a.decode or a.serve:
        if a.data or a.output:
            p.error("--encode, --decode and --serve take standard input and no files")
        if (a.chat_template and not a.serve) or a.assistant_only_loss or a.completion_only_loss:
            p.error("--encode and --decode take text and no conversations")
        return
    if a.gguf:
        if a.data or not a.output:
            p.error("--gguf writes a model to --output FILE and takes no data")
        return
    if not a.data:
        p.error("no data named")
    for option in ("save_template", "choices", "overwrite"):
        if getattr(a, option) and not a.output:
            p.error(f"--{option.replace('_', '-')} needs --output")
    if not a.output and not a.show:
        p.error("nothing to do: name the file to write with --output, or --show samples")


def check_kind(p, a, paths):
    """True: records, False: text."""
    kinds = {is_records(path) for path in paths}
    if len(kinds) > 1:
        p.error("records (.json, .jsonl, .parquet) and text cannot go into one file")
    if kinds == {False}:
        for option in ("chat_template", "save_template", "assistant_only_loss", "completion_only_loss"):
            if getattr(a, option):
                p.error(f"--{option.replace('_', '-')} is for records; text has no turns")
    return kinds == {True}


def encoded(samples, tokenizer):
    """(ids, flags) of every document with something to train, in order."""
    stream = iter(samples)
    while batch := list(islice(stream, BATCH)):
        for sample, (ids, flags) in zip(batch, tokenizer.encode(batch)):
            if any(flags[1:]):
                yield ids, flags
            else:
                samples.drop("no token to train", sample.origin)


def say(line):
    print(escaped(line), file=sys.stderr)


def say_of_template(samples, tokenizer, template):
    """Once it is known that there are conversations."""
    if not samples.n_chats:
        return
    for line in (template.note, warning_of(template, tokenizer, samples.n_long_chats)):
        if line:
            say(line)


def say_of_samples(samples):
    for line in (samples.roles_note(), samples.dropped_note()):
        if line:
            say(line)


def report(samples, tokenizer, first, summary):
    for kind, n in samples.kinds.items():
        say(f"{n} records by their keys: {kind}")
    if first:
        say(f"the first, what is not trained in [[ ]]: {first_line(tokenizer, *first)}")
    say_of_samples(samples)
    notes = list(samples.notes)
    if tokenizer.eos_id is None:
        notes.append("the tokenizer names no end token, none added (--eos)")
    say("; ".join([summary] + notes))


def check_something(samples, arguments):
    if not samples.n_samples:
        raise PrepareError(f"{', '.join(arguments.data)}: nothing to train on")
    raise PrepareError(f"{', '.join(arguments.data)}: nothing to train on; "
                       f"{samples.dropped_note().removeprefix('warning: ')}")


def check_template(samples, arguments):
    for option in ("chat_template", "save_template"):
        if getattr(arguments, option) and not samples.n_chats:
            raise PrepareError(f"--{option.replace('_', '-')} without effect: there is no "
                               f"conversation in {', '.join(arguments.data)}")


def check_questions(samples, arguments, n_docs):
    questions = samples.questions
    if not questions:
        return
    if not arguments.choices:
        raise PrepareError(f"{questions[0].origin} is a question with choices, which penstock "
                           "eval scores and nothing is trained on")
    if n_docs != sum(len(q.choices) for q in questions):
        raise PrepareError(f"{questions[0].origin} is a question with choices; other records "
                           "cannot be among them")


def prepare(arguments, records, paths):
    tokenizer = Tokenizer(arguments.tokenizer, arguments.bos, arguments.eos)
    template = tokenizer.template(arguments.chat_template) if records else None
    samples = Samples(paths, template, tokenizer.end_texts, arguments.assistant_only_loss,
                      arguments.completion_only_loss)
    documents = encoded(samples, tokenizer)
    first = None
    if not arguments.output:
        for i, (ids, flags) in enumerate(islice(documents, arguments.show)):
            show(tokenizer, i, ids, flags)
            first = first or (ids, flags)
        if not first:
            check_something(samples, arguments)
        say_of_template(samples, tokenizer, template)
        say_of_samples(samples)
        return
    with Companions(arguments, template and template.source) as companions, \
            TokenFile(arguments.output, tokenizer, records, arguments.overwrite) as file:
        for i, (ids, flags) in enumerate(documents):
            if i < arguments.show:
                show(tokenizer, i, ids, flags)
            if records:
                first = first or (ids, flags)
            file.add(ids, flags)
        if not file.n_docs:
            check_something(samples, arguments)
        check_template(samples, arguments)
        check_questions(samples, arguments, file.n_docs)
        companions.write(samples.questions)
        file.finish()
    say_of_template(samples, tokenizer, template)
    report(samples, tokenizer, first,
           f"{file.n_docs} documents, {file.n_tokens} tokens, {file.n_trained} of them "
           f"targets, in {arguments.output}")


def encode(arguments):
    tokenizer = Tokenizer(arguments.tokenizer, arguments.bos, arguments.eos)
    try:
        text = sys.stdin.buffer.read().decode("utf-8")
    except UnicodeDecodeError as error:
        raise PrepareError(f"the text is not UTF-8 at byte {error.start}") from None
    (ids, _), = tokenizer.encode([Sample(text, "the text")], end=False)
    print(*ids)


def decode(arguments):
    tokenizer = Tokenizer(arguments.tokenizer, arguments.bos, arguments.eos)
    try:
        ids = [int(word) for word in sys.stdin.read().split()]
    except ValueError:
        raise PrepareError("ids are decimal numbers with blanks between, from 0 to 4294967295") from None
    if ids and not 0 <= min(ids) <= max(ids) < 1 << 32:
        raise PrepareError("ids are numbers from 0 to 4294967295")
    sys.stdout.buffer.write(tokenizer.decode(ids, skip_special_tokens=True).encode())


def run(p, arguments):
    check_usage(p, arguments)
    if arguments.encode:
        encode(arguments)
    elif arguments.decode:
        decode(arguments)
    elif arguments.gguf:
        say(write_gguf(arguments.tokenizer, Tokenizer(arguments.tokenizer, arguments.bos, arguments.eos),
                       arguments.gguf, arguments.output, arguments.overwrite))
    elif arguments.serve:
        serve(lambda: Tokenizer(arguments.tokenizer, arguments.bos, arguments.eos),
              arguments.chat_template)
    else:
        paths = resolve(arguments.data, arguments.split)
        prepare(arguments, check_kind(p, arguments, paths), paths)
    sys.stdout.flush()


def stop(number, frame):
    """Nothing half-written stays; a second signal does not disturb the cleaning up."""
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.SIG_IGN)
    raise KeyboardInterrupt


def main(argv=None):
    p = parser()
    arguments = p.parse_args(argv)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    sys.stdout.reconfigure(errors="backslashreplace")  # samples may hold what this terminal has no letters for
    try:
        run(p, arguments)
    except PrepareError as error:
        message = str(error)
    except ImportError as error:
        message = f"{error}: install it with tools/setup, or pip install ./prepare"
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # nobody reads --show any more
        return 1
    except OSError as error:
        message = f"cannot use {error.filename}: {error.strerror}" if error.filename else str(error)
    except MemoryError:
        message = "there is not enough memory: a text or a .json file is held whole; records in .jsonl are not"
    except KeyboardInterrupt:
        say("penstock-prepare: stopped")
        leave(1)
    else:
        return 0
    say("penstock-prepare: " + message.strip())
    return 1


if __name__ == "__main__":
    sys.exit(main())
