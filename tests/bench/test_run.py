#!/usr/bin/env python3
"""bench/run with tiny jobs: every bench runs, in scripts and in C, and their lines
stand in one file that bench/compare reads."""
import importlib.machinery
import importlib.util
import json
import math
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


def run(name, *arguments):
    return subprocess.run([sys.executable, os.path.join(ROOT, "bench", name), *arguments],
                          capture_output=True, text=True, timeout=110,
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
    file = os.path.join(folder, "blocks.jsonl")
    drive = os.path.join(folder, "drive")
    os.mkdir(drive)
    words = ("--directory", drive, "--size", str(64 << 20), "--request", str(1 << 20), "--seconds", "1", "--turn", "0.02",
             "--output", file)
    done = subprocess.run([sys.executable, os.path.join(ROOT, "bench", "bench_fio"), *words], capture_output=True,
                          text=True, timeout=110, env={**os.environ, "PATH": folder})
    assert done.returncode == 77 and "apt-get install fio" in done.stdout and not os.path.exists(file), done
    for bad in (("--size", "1000"), ("--request", "1000"), ("--turn", "0"), ("--table",)):
        done = run("bench_fio", "--directory", drive, *bad)
        assert done.returncode == 2 and bad[0] in done.stderr, done
    if not shutil.which("fio"):
        print("# fio is not installed: nothing was held against it")
        return
    done = run("bench_fio", *words)  # how near it comes in so short a time says nothing
    if "no drive can be measured" in done.stderr or "counts nothing" in done.stderr:
        print(f"# {done.stderr.splitlines()[-1]}")
        return
    assert done.returncode == 1 and "Traceback" not in done.stderr and os.listdir(drive) == [], done
    before = len(report_blocks(file))
    run("bench_fio", *words)
    blocks = report_blocks(file)
    assert len(blocks) >= before and {b["way"] for b in blocks} <= {"read", "written", "read and written"}, blocks
    done = run("bench_fio", "--table", *words, "--way", "read")
    kept = [b for b in blocks if b["way"] == "read"]
    for line in map(json.loads, done.stdout.splitlines()):
        assert line["blocks"] == len(kept) and line["interval"][0] <= line["ratio"] <= line["interval"][1], line
    with open(file, "a", encoding="utf-8") as f:
        f.write(json.dumps({"way": "read", "pattern": {}, "ours": [1, 1], "fio": [1], "machine": {"cpu": "another"}}))
    assert "another machine" in run("bench_fio", *words).stderr
    with open(file, "w", encoding="utf-8") as f:
        f.write("{}\n")
    done = run("bench_fio", *words)
    assert done.returncode == 1 and "blocks.jsonl:1 is no block" in done.stderr, done


def report_blocks(file):
    if not os.path.exists(file):
        return []  # the drive had other work all the time
    with open(file, encoding="utf-8") as f:
        return [json.loads(line) for line in f]


def what_blocks_of_fio_say(_):
    """On made-up blocks: the interval's ranks are those of the binomial distribution, and three verdicts."""
    loader = importlib.machinery.SourceFileLoader("bench_fio", os.path.join(ROOT, "bench", "bench_fio"))
    fio = importlib.util.module_from_spec(importlib.util.spec_from_loader("bench_fio", loader))
    loader.exec_module(fio)
    assert fio.interval(list(range(5))) == (0, math.inf)  # five cannot say it with 95 %
    assert fio.interval([3, 1, 2, 6, 5, 4]) == (1, 6)
    assert fio.interval(list(range(1, 21))) == (6, 15)
    assert fio.interval(list(range(1, 101))) == (40, 61)
    block = {"ours": [2.0, 8.0], "fio": [4.0, 4.0]}
    assert fio.ratio(block) == 1 and fio.ratio({"ours": [0, 1], "fio": [1, 1]}) == 0
    assert fio.ratio({"ours": [1, 1], "fio": [0, 1]}) == math.inf
    for low, high, said in ((0.96, 1.04, "agrees"), (0.90, 0.94, "does not agree"), (1.06, 1.1, "does not agree"),
                            (0.94, 1.0, "not shown"), (1.0, 1.06, "not shown")):
        assert fio.verdict(low, high) == said, (low, high)

    def blocks(ratios):
        return [{"ours": [r, r], "fio": [1, 1]} for r in ratios]
    assert fio.is_decided(blocks([1.01, 0.99] * 10)) and not fio.is_decided(blocks([1.01, 0.99] * 9))
    assert not fio.is_decided(blocks([1.2, 0.8] * 20)) and fio.is_decided(blocks([1.21, 1.2] * 20))


def main():
    tests = [everything_runs, slips_are_told, failures_are_told, cap_that_holds_the_state,
             fio_is_held_against_us, what_blocks_of_fio_say]
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
