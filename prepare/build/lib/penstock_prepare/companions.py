"""What is written beside a token file: the chat template that was used, and what
scores questions with choices.

They get their names before the token file does, so that one that is there has them.

One disadvantage: where the token file then fails, a file that they replaced stays replaced.
"""

import json
import os
from contextlib import suppress
from pathlib import Path

from penstock_prepare import PrepareError
from penstock_prepare.target import Target

CHOICES_MAGIC = '{"questions": '


class Companions:
    """Places are made sure of before there is any work.  `source`: the template's text."""

    def __init__(self, arguments, source):
        self._check_places(arguments)
        self._template = self._choices = None
        self._source = source
        self._written = []
        if arguments.save_template:
            again = _holds(arguments.save_template, source)
            self._template = Target(arguments.save_template, None, None, "--save-template",
                                    arguments.overwrite or again)
        if arguments.choices:
            self._choices = Target(arguments.choices, CHOICES_MAGIC.encode(), "such file", "--choices",
                                   arguments.overwrite)

    def _check_places(self, arguments):
        options = ("output", "save_template", "choices")
        named = {f"--{option.replace('_', '-')}": os.path.realpath(getattr(arguments, option))
                 for option in options if getattr(arguments, option)}
        if len(set(named.values())) < len(named):
            raise PrepareError(f"{' and '.join(named)} name the same file")
        for path in arguments.data:
            for option, place in named.items():
                if os.path.realpath(path) == place:
                    raise PrepareError(f"{option}: {path} is the data, which is not written over")

    def __enter__(self):
        return self

    def write(self, questions):
        if self._choices and questions:
            self._write(self._choices, json.dumps({"questions": [
                {"answer": q.answer, "lengths": [len(c) for c in q.choices]} for q in questions]}))
        if self._template:
            self._write(self._template, self._source)

    def _write(self, target, text):
        if not os.path.exists(target.path):
            self._written.append(target.path)
        target.write(text)

    def __exit__(self, kind, value, trace):
        for path in self._written if kind else ():
            with suppress(OSError):
                os.unlink(path)


def _holds(path, text):
    try:
        return Path(path).read_bytes().decode() == text
    except (OSError, UnicodeDecodeError):
        return False
