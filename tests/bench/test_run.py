#!/usr/bin/env python3
"""bench/run with tiny jobs: every bench runs, in scripts and in C, and their lines
stand in one file that bench/compare reads."""
import argparse
import contextlib
import importlib.machinery
import importlib.util
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile

ROOT = os.environ["PEN_ROOT"]
sys.path.insert(0, os.path.join(ROOT, "bench"))
import report  # noqa: E402
import training  # noqa: E402

ALL = {"roof_memory", "roof_gemm", "roof_disk", "bench_adamw", "bench_gemm", "bench_disk",
       "bench_overhead"}


def run(name, *arguments, cwd=None):
    return subprocess.run([sys.executable, os.path.join(ROOT, "bench", name), *arguments],
                          capture_output=True, text=True, cwd=cwd,
                          timeout=280 * float(os.environ.get("PEN_PATIENCE", 1)),
                          env={**os.environ, "OMP_WAIT_POLICY": "passive"})


def everything_runs(folder):
    file = os.path.join(folder, "all.jsonl")
    done = run("run", "--tiny", "--directory", folder, "--output", file)
    assert done.returncode == 0, done.stderr[-300:]
    lines = report.read(file)
    assert {line["name"].split(".")[0] for line in lines} == ALL, lines
    steps = {line["parameters"]["state"]: line for line in lines
             if line["name"] == "bench_disk.step"}
    assert steps["drive"]["ceiling"]["value"] == steps["ram"]["value"], steps
    assert os.listdir(folder) == ["all.jsonl"], os.listdir(folder)
    done = run("compare", file, file)
    assert done.returncode == 0 and done.stdout.count("1.000 (") == len(lines), done.stdout


def slips_are_told(folder):
    file = os.path.join(folder, "no.jsonl")
    done = run("run", "--tiny", "--directory", folder, "--output", file, "--only", "roof_tiles")
    assert done.returncode == 2 and "roof_tiles" in done.stderr and not os.path.exists(file), done
    done = run("bench_disk", "--directory", folder, "--tokens", "1000")
    assert done.returncode == 2 and "1000 tokens" in done.stderr, done.stderr


def failures_are_told(folder):
    file = os.path.join(folder, "no.jsonl")
    done = run("run", "--tiny", "--directory", os.path.join(folder, "missing"), "--output", file,
               "--only", "roof_disk")
    assert done.returncode == 1 and "run: failed: roof_disk" in done.stderr, done.stderr


def cap_that_holds_the_state(folder):
    config = os.path.join(folder, "config.json")
    with open(config, "w", encoding="utf-8") as f:
        json.dump({**training.CONFIG, "num_hidden_layers": 1, "vocab_size": 512}, f)
    done = run("capped", "--config", config, "--directory", os.path.join(folder, "capped"),
               "--cap", "2GiB", "--length", "32", "--bench-size", "64MiB", "--repeats", "1")
    assert done.returncode == 1 and "holds the state" in done.stderr, done.stderr


def fio_is_held_against_us(folder):
    drive = os.path.join(folder, "drive")
    os.mkdir(drive)
    words = ("--directory", drive, "--size", str(512 << 20), "--turns", "1", "--seconds", "1")
    done = subprocess.run([sys.executable, os.path.join(ROOT, "bench", "bench_fio"), *words], capture_output=True,
                          text=True, timeout=280, env={**os.environ, "PATH": folder})
    assert done.returncode == 77 and "apt-get install fio" in done.stdout, done
    for bad in (("--size", "1000"), ("--turns", "0"), ("--seconds", "0")):
        done = run("bench_fio", "--directory", drive, *bad)
        assert done.returncode == 2 and bad[0] in done.stderr, done
    if not shutil.which("fio"):
        print("# fio is not installed: nothing was held against it")
        return
    done = run("bench_fio", *words, cwd=folder)  # how near it comes in so short a time says nothing
    assert os.listdir(drive) == [] and os.listdir(folder) == ["drive"] and "Traceback" not in done.stderr, done
    if "no drive can be measured" in done.stderr:
        print(f"# {done.stderr.splitlines()[-1]}")
        return
    lines = [json.loads(text) for text in done.stdout.splitlines()]
    assert [line["parameters"]["way"] for line in lines] == ["read", "written", "read and written"], done
    assert all(line["value"] > 0 and line["ceiling"]["value"] > 0 for line in lines), lines


def what_turns_of_fio_say(_):
    """On made-up turns: the median of the ratios decides, not the ratio of the medians."""
    loader = importlib.machinery.SourceFileLoader("bench_fio", os.path.join(ROOT, "bench", "bench_fio"))
    fio = importlib.util.module_from_spec(importlib.util.spec_from_loader("bench_fio", loader))
    loader.exec_module(fio)
    options = argparse.Namespace(size=1 << 30, seconds=2)

    def missed(ours, theirs):
        turns = [{"ours": dict.fromkeys(fio.WAYS, 1.0) | {"read": o}, "fio": dict.fromkeys(fio.WAYS, 1.0) | {"read": t}}
                 for o, t in zip(ours, theirs)]
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            return fio.tell(options, turns, {})
    assert missed([1.04, 2.08, 0.5], [1, 2, 1]) == []
    assert missed([1.06, 2.12, 0.5], [1, 2, 1]) == ["read"] and missed([0.94] * 3, [1] * 3) == ["read"]
    assert missed([1, 3, 2], [2, 1, 2]) == []  # medians 2 and 2; ratios 0.5, 3, 1
    assert missed([1, 2, 3], [2, 3, 1]) == ["read"]  # medians 2 and 2; ratios 0.5, 0.67, 3


def main():
    tests = [everything_runs, slips_are_told, failures_are_told, cap_that_holds_the_state,
             fio_is_held_against_us, what_turns_of_fio_say]
    print(f"1..{len(tests)}")
    bad = 0
    for number, function in enumerate(tests, 1):
        try:
            with tempfile.TemporaryDirectory(dir=os.environ["PEN_BUILD"]) as folder:
                function(folder)
            print(f"ok {number} - {function.__name__}")
        except Exception as error:  # each is one test's failure
            bad += 1
            print(f"not ok {number} - {function.__name__}")
            print("# " + repr(error).replace("\\n", "\n# "))
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
