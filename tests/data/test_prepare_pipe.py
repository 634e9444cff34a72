"""Data from pipes: read once, and the same token file as from a file."""

import contextlib
import gzip
import json
import os
import subprocess
import sys
import threading
import unittest
from unittest import mock

from prepare_case import ROOT, TEXT, Case, main

from penstock_prepare import pipe

RECORDS = [{"text": f"the quick brown fox {i}\n" * 40} for i in range(50)]
LINES = "".join(json.dumps(record) + "\n" for record in RECORDS)


class Pipes(Case):
    def setUp(self):
        super().setUp()
        self.folder_of_model = self.model()
        self.out, self.want = self.folder / "out.pent", self.folder / "want.pent"

    def prepare(self, data, out, code=0):
        return self.tool("--tokenizer", self.folder_of_model, "-o", out, *data, code=code)

    @contextlib.contextmanager
    def fifo(self, name, content):
        """A named pipe that somebody writes to, piece by piece."""
        path = self.folder / name
        os.mkfifo(path)

        def feed():
            with contextlib.suppress(BrokenPipeError), open(path, "wb", buffering=0) as file:
                for at in range(0, len(content), 100):
                    file.write(content[at:at + 100])

        writer = threading.Thread(target=feed)
        writer.start()
        try:
            yield path
        finally:
            reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # where nobody came
            writer.join()
            os.close(reader)
            path.unlink()

    def same(self, name, content, file_name, said=""):
        """As from a file of that name."""
        file = self.write(file_name, content)
        self.prepare([file], self.want)
        with self.fifo(name, content.encode()) as fifo:
            told = self.prepare([fifo], self.out).stderr
        self.assertEqual(self.out.read_bytes(), self.want.read_bytes())
        self.assertIn(said, told)
        self.assertEqual("by how it begins" in told, bool(said))
        file.unlink()

    def test_by_name(self):
        self.same("p.jsonl", LINES, "f.jsonl")
        self.same("p.json", json.dumps(RECORDS), "f.json")
        self.same("p.txt", TEXT, "f.txt")
        self.same("p.md", LINES, "f.md")  # text, whatever it holds

    def test_by_how_it_begins(self):
        self.same("63", LINES, "f.jsonl", "63 is taken as records, one a line, by how it begins")
        self.same("63", json.dumps(RECORDS, indent=1), "f.json", "63 is taken as a list of records, by how it begins")
        self.same("63", json.dumps(RECORDS), "f.json", "a list of records")
        for text in (TEXT, "[1] a reference\n", "{\n  a program\n}\n", "1\n", '"a"\n', "\n" + TEXT):
            self.same("63", text, "f.txt")

    def test_of_a_shell(self):
        """Process substitution, which gives /dev/fd/N, and standard input."""
        packed = self.folder / "a.gz"
        packed.write_bytes(gzip.compress(LINES.encode()))
        self.prepare([self.write("f.jsonl", LINES)], self.want)
        tool = f"{sys.executable} -m penstock_prepare --tokenizer {self.folder_of_model} -o {self.out}"
        for command in (f"{tool} <(zcat {packed})", f"zcat {packed} | {tool} /dev/stdin"):
            done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False,
                                  env=dict(os.environ, PYTHONPATH=str(ROOT / "prepare")))
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(self.out.read_bytes(), self.want.read_bytes())

    def refuse(self, said, data):
        told = self.prepare(data, self.out, code=1).stderr
        self.assertEqual(len(told.splitlines()), 1, told)
        self.assertIn(said, told)
        self.assertFalse(self.out.exists())

    def test_what_cannot_be(self):
        os.mkfifo(self.folder / "p.parquet")
        self.refuse("p.parquet is a pipe, and of Parquet the end is read first", [self.folder / "p.parquet"])
        with self.fifo("63", LINES.encode()) as fifo:
            self.refuse("63 is a pipe that was named before: it can be read only once", [fifo, fifo])
        with self.fifo("63", b"") as fifo:
            self.refuse("63 has no text", [fifo])
        with self.fifo("63", gzip.compress(TEXT.encode())) as fifo:
            self.refuse("63 is compressed", [fifo])
        with self.fifo("63", LINES.encode() + b"{") as fifo:
            self.refuse("63 line 51 is not JSON", [fifo])
        with self.fifo("63", TEXT.encode()) as fifo, mock.patch.object(pipe, "LIMIT_BYTES", 100):
            self.refuse("63 is a pipe with more than 100 bytes that are held whole", [fifo])


if __name__ == "__main__":
    main()
