#!/usr/bin/env python3
"""Token ids of the project's own documents, as uint16: what both sides train on.

    make_tokens.py MODEL_DIR FILE.u16 COUNT
"""
import glob
import os
import sys

import numpy
from tokenizers import Tokenizer

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def main():
    model, path, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    tokenizer = Tokenizer.from_file(os.path.join(model, "tokenizer.json"))
    ids = []
    for name in sorted(glob.glob(os.path.join(ROOT, "docs", "*.md"))):
        with open(name, encoding="utf-8") as f:
            ids += tokenizer.encode(f.read()).ids
    if len(ids) < count:
        sys.exit(f"make_tokens: the documents have {len(ids)} tokens: {count} are needed")
    numpy.array(ids[:count], numpy.uint16).tofile(path)


if __name__ == "__main__":
    main()
