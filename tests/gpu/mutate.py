#!/usr/bin/env python3
"""Takes each synchronisation out of the CUDA kernels in turn and asks whether
the tests notice.

    mutate.py BUILD [--only TEXT] [--quick] [--minutes N]

For each one the kernels that contain it are compiled anew for the CPU, twice:
as they are, for the tests of values (threads in order, reversed, at random),
and with their accesses instrumented, for the test of races.  Prints a line for
each: which of the two noticed.  What was found is kept in BUILD/mutate.json and
not done again while kernels and tests are the same, so that a run which was
stopped goes on.  Exits 1 if neither noticed any one; 75 if its minutes were over
before all were done; 77 where the build has no C++ compiler.
"""
import argparse
import hashlib
import json
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
FOLDER = "kernels/cuda"
SECONDS = 90  # of a CPU, for a test that takes fifteen

# What is taken out: a statement, a vote whose barrier alone is, what makes an addition atomic.
PATTERNS = [(r"__syncthreads\(\);", ";"), (r"__syncwarp\(\);", ";"), (r"ptx_copy_wait\(\);", ";"),
            (r"__syncthreads_or\(", "(int)("), (r"atomicAdd\((\w+), ", r"*\1 += (")]

# The test program that runs a source's kernels.
TESTS = {"attention": "attention", "attention_backward": "attention", "gradient": "flat", "state": "flat"}


def read(name):
    with open(os.path.join(ROOT, FOLDER, name), encoding="utf-8") as f:
        return f.read()


def users_of(name, names):
    """Sources that include a file, themselves included."""
    found = {name}
    while True:
        more = {n for n in names
                if any(f'"{FOLDER}/{f}"' in read(n) for f in found)} - found
        if not more:
            return sorted(n[:-3] for n in found if n.endswith(".cu"))
        found |= more


def mutations(names):
    """(file, line number, text of the file without it, the line)"""
    for name in names:
        if name == "ptx.cuh":
            continue
        text = read(name)
        for pattern, instead in PATTERNS:
            for match in re.finditer(pattern, text):
                line = text.count("\n", 0, match.start()) + 1
                yield name, line, text[:match.start()] + match.expand(instead) + text[match.end():], \
                    text.split("\n")[line - 1].strip()


def compile_kernels(folder, sources, race):
    objects = []
    for source in sources:
        out = os.path.join(folder, f"{source}{'-race' if race else ''}.o")
        subprocess.run(
            os.environ.get("CXX", "c++").split() +
            ["-x", "c++", "-std=gnu++17", "-O1", "-w", "-D_GNU_SOURCE", "-ffp-contract=off",
             "-fno-strict-aliasing", *(["-fsanitize=thread"] if race else []),
             "-I", os.path.join(ROOT, "tests/gpu/simt/include"), "-I", folder, "-I", ROOT,
             "-c", os.path.join(folder, FOLDER, source + ".cu"), "-o", out], check=True)
        objects.append(out)
    return objects


def link(build, folder, objects, test, race):
    """The build's own link command of the test, with these objects first: the
    library's members of the same names are then not taken."""
    name = f"tests/gpu/test_gpu_{test}{'-race' if race else ''}"
    command = subprocess.run(["ninja", "-C", build, "-t", "commands", "-s", name],
                             capture_output=True, text=True, check=True).stdout.strip()
    out = os.path.join(folder, "test")
    command = command.replace(f"-o {name} ", f"-o {out} {' '.join(objects)} ", 1)
    subprocess.run(command, shell=True, cwd=build, check=True, stdout=subprocess.DEVNULL)
    return out


def notices(build, folder, sources, test, race, environment):
    """How the test ends: None if it passes, else its word on why."""
    program = link(build, folder, compile_kernels(folder, sources, race), test, race)
    try:
        done = subprocess.run([program], capture_output=True, text=True, env=environment, check=False, timeout=600,
                              preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS)))
    except subprocess.TimeoutExpired:
        return "it hangs"
    if done.returncode == 0:
        return None
    if done.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
        return "it hangs"
    text = done.stdout + done.stderr
    if re.search(r"^simt: race in", text, re.M):
        return "race"
    if re.search(r"^simt:", text, re.M):
        return "engine"
    return "value"


def write_tree(folder, name, text):
    """A copy of the kernels in which `name` reads `text`; stand-ins stay first."""
    os.makedirs(os.path.join(folder, FOLDER), exist_ok=True)
    for other in os.listdir(os.path.join(ROOT, FOLDER)):
        if other.endswith((".cu", ".cuh")) and other != "ptx.cuh":
            with open(os.path.join(folder, FOLDER, other), "w", encoding="utf-8") as f:
                f.write(text if other == name else read(other))


def included(names):
    """These files and the headers of the kernels' folder that they include."""
    found = set(names)
    while more := {name for f in found for name in re.findall(rf'"{FOLDER}/(\w+\.cuh)"', read(f))} - found:
        found |= more
    return sorted(found)


def digest_of(name, text, sources):
    """Of all that a verdict depends on: kernels, their tests, and what runs them."""
    digest = hashlib.sha256(f"{name}\n{text}".encode())
    paths = [f"{FOLDER}/{n}" for n in included([s + ".cu" for s in sources]) if n != name]
    paths += sorted({f"tests/gpu/test_{TESTS.get(s, 'kernels')}.c" for s in sources})
    paths += [f"tests/gpu/{n}" for n in ("table.c", "attention_oracle.c")]
    for folder, ends in (("tests/gpu/simt", (".cc", ".h")), ("tests/gpu/simt/include", (".h",)),
                         ("tests/gpu/simt/include/kernels/cuda", (".cuh",))):
        paths += [f"{folder}/{n}" for n in sorted(os.listdir(os.path.join(ROOT, folder))) if n.endswith(ends)]
    for path in paths:
        with open(os.path.join(ROOT, path), "rb") as f:
            digest.update(path.encode() + b"\n" + f.read())
    return digest.hexdigest()


class Kept:
    """Verdicts by digest, in a file that is replaced whole."""

    def __init__(self, path):
        self.path = path
        try:
            with open(path, encoding="utf-8") as f:
                self.verdicts = json.load(f)
        except (OSError, ValueError):
            self.verdicts = {}

    def put(self, key, verdict):
        self.verdicts[key] = verdict
        with open(self.path + ".new", "w", encoding="utf-8") as f:
            json.dump(self.verdicts, f, indent=1)
        os.replace(self.path + ".new", self.path)


def verdict_of(build, folder, sources, quick):
    """The words of the tests of values, then of races."""
    environment = dict(os.environ, PEN_TEST_QUICK="1")
    verdicts = []
    for race in ([True] if quick else [False, True]):
        words = set()
        for test in sorted({TESTS.get(s, "kernels") for s in sources}):
            mine = [s for s in sources if TESTS.get(s, "kernels") == test]
            words.add(notices(build, folder, mine, test, race, environment))
        verdicts.append("; ".join(sorted(w for w in words if w)) or "-")
    return verdicts


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("build")
    parser.add_argument("--only", default="", help="only lines of files whose names contain this")
    parser.add_argument("--quick", action="store_true", help="races alone, few shapes")
    parser.add_argument("--minutes", type=float, default=1e9, help="begin with no more after so many")
    options = parser.parse_args()
    build = os.path.abspath(options.build)
    if not os.path.exists(os.path.join(build, "tests/gpu/test_gpu_flat-race")):
        print("skipped: this build has no tests that look for races")
        sys.exit(77)
    kept = Kept(os.path.join(build, "mutate.json"))
    end = time.monotonic() + 60 * options.minutes
    names = sorted(n for n in os.listdir(os.path.join(ROOT, FOLDER)) if n.endswith((".cu", ".cuh")))
    todo = [m for m in mutations(names) if options.only in m[0]]
    missed = left = 0
    with tempfile.TemporaryDirectory(prefix="penstock-mutate-") as folder:
        for name, number, text, line in todo:
            sources = users_of(name, names)
            key = digest_of(name, text, sources) + "-quick" * options.quick
            if key not in kept.verdicts:
                if time.monotonic() > end:
                    left += 1
                    continue
                write_tree(folder, name, text)
                kept.put(key, verdict_of(build, folder, sources, options.quick))
            verdicts = kept.verdicts[key]
            is_missed = all(v == "-" for v in verdicts)
            missed += is_missed
            print(f"{name}:{number}: {line[:40]:40} | {' | '.join(verdicts)}"
                  f"{'   NOT NOTICED' if is_missed else ''}", flush=True)
    print(f"{len(todo)} taken out, {missed} not noticed" + (f", {left} not yet tried" if left else ""))
    sys.exit(1 if missed or not todo else 75 if left else 0)


if __name__ == "__main__":
    main()
