"""Text and records to penstock token files (docs/FORMATS.md)."""


class PrepareError(Exception):
    """A refusal that one line explains; the tool exits with 1."""
