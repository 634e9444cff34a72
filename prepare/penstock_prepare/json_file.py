"""JSON as it is read everywhere here: what is wrong with it is one plain line, and a
key that stands twice in an object is an error, never a choice between the two.

One disadvantage: a file is read whole, whatever its size.
"""

import json
import sys

from penstock_prepare import PrepareError

KINDS = {str: "text", bool: "true or false", int: "a number", float: "a number", list: "a list", dict: "an object",
         type(None): "null"}


def kind_of(value):
    """What a value is called in JSON."""
    return KINDS.get(type(value), type(value).__name__)


class _Twice(Exception):
    """A key of this name stands twice in one object."""


def _object(pairs):
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise _Twice(next(key for i, key in enumerate(keys) if key in keys[:i]))
    return found


def parse_json(text, origin, one_line=False):
    """The value of a text; one_line: `origin` says which line it is."""
    try:
        return json.loads(text, object_pairs_hook=_object)
    except json.JSONDecodeError as error:
        if not text.strip():
            raise PrepareError(f"{origin} is not JSON at line 1: it is empty") from None
        where = "" if one_line else f"line {error.lineno}, "
        raise PrepareError(f"{origin} is not JSON at {where}column {error.colno}: {error.msg}") from None
    except _Twice as twice:
        raise PrepareError(f"{origin} has the key \"{twice}\" twice in one object") from None
    except RecursionError:
        raise PrepareError(f"{origin} is JSON nested too deep") from None
    except ValueError:  # the only other one
        raise PrepareError(f"{origin} cannot be read: it has a number of more than {sys.get_int_max_str_digits()} "
                           "digits") from None


def is_object(text):
    """Is it one object, and nothing else?"""
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def load_json(path, default=None):
    """The object in a JSON file; `default`: what it is where there is no file."""
    try:
        text = path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        if default is None:
            raise PrepareError(f"there is no {path}") from None
        return default
    except OSError as error:
        raise PrepareError(f"cannot read {path}: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise PrepareError(f"{path} is not UTF-8 at byte {error.start}") from None
    found = parse_json(text, path)
    if not isinstance(found, dict):
        raise PrepareError(f"{path} is {kind_of(found)}, not an object")
    return found
