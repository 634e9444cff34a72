"""A long call into a library, which a signal ends.

Python sees a signal between its own instructions, and such a call has none.  So it is
made by a thread of its own while the main thread waits, which is where signals are
seen: what is half-written is cleaned away as after any failure.

One disadvantage: the call itself goes on until the process ends, which therefore must
not wait for it (`leave`).
"""

import os
import sys
import threading
from contextlib import suppress


def aside(call, *arguments, **options):
    """What `call` returns or raises."""
    ended = []

    def body():
        try:
            ended.append((call(*arguments, **options), None))
        except BaseException as failure:  # whoever waits deals with it
            ended.append((None, failure))

    thread = threading.Thread(target=body, daemon=True)
    thread.start()
    thread.join()
    result, failure = ended[0]
    if failure is not None:
        raise failure
    return result


def leave(code):
    """Ends the process, whatever a thread is still at."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()
    os._exit(code)
