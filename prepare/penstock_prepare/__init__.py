"""Text and records to penstock token files (docs/FORMATS.md)."""

import signal
import threading

# Ctrl-C while libraries are still loaded ends the tool without a traceback; there
# is nothing to clean up until the command line has handlers of its own.
if threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class PrepareError(Exception):
    """A refusal that one line explains; the tool exits with 1."""
