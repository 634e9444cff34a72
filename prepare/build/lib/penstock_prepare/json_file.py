"""A model directory's files of JSON objects.

One disadvantage: a file is read whole, whatever its size.
"""

import json

from penstock_prepare import PrepareError


def load_json(path, default=None):
    """The object in a JSON file; `default`: what it is where there is no file."""
    try:
        found = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        if default is None:
            raise PrepareError(f"there is no {path}") from None
        return default
    except (OSError, ValueError, RecursionError) as error:
        raise PrepareError(f"cannot read {path}: {error}") from None
    if not isinstance(found, dict):
        raise PrepareError(f"{path} is {type(found).__name__}, not an object")
    return found
