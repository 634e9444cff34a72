"""Samples as they will be trained, for people to read.

On a terminal masked tokens are dim, trained ones green and special tokens
reversed; elsewhere, and where NO_COLOR is set, masked parts stand in [[ ]].

One disadvantage: a character whose bytes are split between a masked and a
trained token is shown as a replacement character.
"""

import os
import sys

RESET = "\033[0m"
MASKED, TRAINED, REVERSED, BOLD = "\033[2m", "\033[32m", "\033[7m", "\033[1m"
FIRST_CHARS = 300  # of the one sample that is said aloud


def in_colour(stream):
    return stream.isatty() and "NO_COLOR" not in os.environ


def _runs(tokenizer, ids, flags):
    """(text, trained, special) of neighbours that are alike."""
    kinds = [(flag, number in tokenizer.special_ids) for number, flag in zip(ids, flags)]
    begin, before = 0, ""
    for i in range(1, len(ids) + 1):
        if i < len(ids) and kinds[i] == kinds[begin] and not kinds[i][1]:
            continue
        # from the whole beginning: some decoders drop a leading blank
        after = tokenizer.decode(ids[:i])
        text = after[len(before):] if after.startswith(before) else tokenizer.decode(ids[begin:i])
        if kinds[begin][1]:
            text = tokenizer.name(ids[begin])
        yield text, *kinds[begin]
        begin, before = i, after


def plain(tokenizer, ids, flags):
    pieces, inside = [], False
    for text, trained, _ in _runs(tokenizer, ids, flags):
        if inside == bool(trained):
            pieces.append("]]" if inside else "[[")
            inside = not inside
        pieces.append(text)
    return "".join(pieces) + ("]]" if inside else "")


def coloured(tokenizer, ids, flags):
    return "".join((TRAINED if trained else MASKED) + (REVERSED if special else "") + text + RESET
                   for text, trained, special in _runs(tokenizer, ids, flags))


def show(tokenizer, number, ids, flags, stream=None):
    """One document between two borders."""
    stream = stream or sys.stdout
    colour = in_colour(stream)
    head = f"--- sample {number}: {len(ids)} tokens, {sum(flags)} trained"
    print(f"{BOLD}{head}{RESET}" if colour else head, file=stream)
    print((coloured if colour else plain)(tokenizer, ids, flags), file=stream)


def first_line(tokenizer, ids, flags):
    """A sample on one line, cut short."""
    text = plain(tokenizer, ids, flags)
    if len(text) > FIRST_CHARS:
        text = text[:FIRST_CHARS] + " ..."
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
