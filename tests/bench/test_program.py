#!/usr/bin/env python3
"""A bench on a tiny job: what it writes is whole, and what it is told wrong it says.

    test_program.py PROGRAM ARGUMENTS...
"""
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.environ["PEN_ROOT"], "bench"))
import report  # noqa: E402

PROGRAM, *JOB = sys.argv[1:]
NAME = os.path.basename(PROGRAM)


# OpenMP's threads would spin while other tests want their cores.
ENVIRONMENT = {**os.environ, "OMP_WAIT_POLICY": "passive"}


def run(*arguments):
    return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, timeout=100,
                          env=ENVIRONMENT)


def check_line(line):
    program, dot, what = line["name"].partition(".")
    assert program and dot and what, line["name"]
    spread = line["spread"]
    assert 0 < spread["min"] <= spread["median"] <= spread["max"], line
    assert line["value"] == spread["median"] and spread["n"] >= 1, line
    assert line["parameters"] and line["unit"], line
    assert line["command"].startswith(NAME + " ") and JOB[-1] in line["command"], line
    assert line["machine"].keys() >= {"cpu", "cores", "ram_bytes", "kernel", "libraries",
                                      "commit"}, line
    if "ceiling" in line:
        assert line["ceiling"]["value"] > 0 and line["ceiling"]["name"], line
        assert line["ceiling"]["spread"]["n"] == spread["n"], line
        low, high = line["percent_spread"]["min"], line["percent_spread"]["max"]
        assert 0 < low <= line["percent"] <= high, line


def lines_are_whole():
    done = run(*JOB)
    assert done.returncode == 0, f"{done.returncode}: {done.stderr}"
    lines = [json.loads(text) for text in done.stdout.splitlines()]
    assert lines, "no lines"
    for line in lines:
        check_line(line)
    keys = [(line["name"], json.dumps(line["parameters"])) for line in lines]
    assert len(set(keys)) == len(keys), keys
    # bench_* stand beside their ceilings; roof_* are ceilings
    ours = [line for line in lines if line["name"].startswith("bench_")]
    assert bool(ours) == NAME.startswith("bench_"), keys
    assert all("ceiling" in line for line in ours if report.more_is_better(line["unit"])), keys


def slips_are_told():
    done = run("--repaets", "2")
    assert done.returncode == 2 and "--repeats" in done.stderr and not done.stdout, done.stderr
    done = run("--threads", "0.5")
    assert done.returncode == 2 and "threads" in done.stderr and not done.stdout, done.stderr
    done = run("--help")
    assert done.returncode == 0 and "--repeats" in done.stdout, done.stdout


def main():
    tests = [lines_are_whole, slips_are_told]
    print(f"1..{len(tests)}")
    bad = 0
    for number, function in enumerate(tests, 1):
        try:
            function()
            print(f"ok {number} - {function.__name__}")
        except Exception as error:  # each is one test's failure
            bad += 1
            print(f"not ok {number} - {function.__name__}")
            print("# " + repr(error).replace("\\n", "\n# "))
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
