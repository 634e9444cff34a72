"""What tests of penstock-prepare have in common: a folder with a small tokenizer,
the tool as a program, and its files read back by the C reader.

Ends the test with 77, saying so, where a package is missing.
"""

import contextlib
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from types import SimpleNamespace

ROOT = Path(os.environ.get("PEN_ROOT", Path(__file__).resolve().parents[2]))
SHARED = ROOT.parent / "shared" / "data"
sys.path.insert(0, str(ROOT / "prepare"))

try:
    import jinja2  # noqa: F401
    from tokenizers import Tokenizer as Library
    from tokenizers import decoders, models, pre_tokenizers, processors, trainers
except ImportError as error:
    print(f"skipped: {error} (tools/setup)")
    sys.exit(77)

from penstock_prepare import cli  # noqa: E402 (found where it lies)

TEXT = "the quick brown fox jumps over the lazy dog\n" * 3 + "äöü €\n"


def needs(path):
    return unittest.skipUnless((SHARED / path).exists(), f"no {path} in ../shared/data")


class Case(unittest.TestCase):
    dump_program = None  # set by main

    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="penstock-test-"))
        self.addCleanup(shutil.rmtree, self.folder)

    def model(self, name="model", config=None, post_bos=False):
        """A directory with a small byte-level tokenizer: <s> 0, </s> 1."""
        folder = self.folder / name
        folder.mkdir()
        library = Library(models.BPE())
        library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        library.decoder = decoders.ByteLevel()
        library.train_from_iterator([TEXT], trainers.BpeTrainer(
            vocab_size=300, special_tokens=["<s>", "</s>"], show_progress=False,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
        if post_bos:
            library.post_processor = processors.TemplateProcessing(
                single="<s> $A", special_tokens=[("<s>", 0)])
        library.save(str(folder / "tokenizer.json"))
        config = {"bos_token": "<s>", "eos_token": "</s>"} if config is None else config
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
        return folder

    def write(self, name, content):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    def tool(self, *arguments, code=0, stdin=None):
        """In this process, which is quicker, but for what reads standard input."""
        if stdin is None:
            return self.here(arguments, code)
        done = subprocess.run([sys.executable, "-m", "penstock_prepare", *map(str, arguments)],
                              input=stdin, capture_output=True, text=True,
                              env=dict(os.environ, PYTHONPATH=str(ROOT / "prepare")))
        self.assertEqual(done.returncode, code, done.stderr)
        return done

    def here(self, arguments, code):
        out, said = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(said):
            try:
                got = cli.main(list(map(str, arguments)))
            except SystemExit as usage:
                got = usage.code
        out.seek(0)
        self.assertEqual(got, code, said.getvalue())
        return SimpleNamespace(returncode=got, stdout=out.read(), stderr=said.getvalue())

    def refused(self, part, *arguments, code=1):
        error = self.tool(*arguments, code=code).stderr.strip()
        self.assertIn(part, error)
        if code == 1:
            self.assertEqual(len(error.splitlines()), 1, error)
        left = [p for p in self.folder.rglob("*") if p.suffix in (".tmp", ".pent")]
        self.assertEqual(left, [])

    def dump(self, path):
        done = subprocess.run([self.dump_program, str(path)], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        head, *rest = done.stdout.splitlines()
        return head.split(), *([int(w) for w in line.split()] for line in rest)

    def documents(self, path):
        """[(ids, flags)] of every document, by the C reader."""
        _, borders, ids, flags = self.dump(path)
        return [(ids[a:b], flags[a:b]) for a, b in zip(borders, borders[1:])]

    def records(self, records, name="r.jsonl"):
        return self.write(name, json.dumps(records) if name.endswith(".json")
                          else "".join(json.dumps(r) + "\n\n" for r in records))


def main():
    """Argument 1: the program that prints a token file."""
    Case.dump_program = sys.argv.pop(1)
    unittest.main(verbosity=2)
