#!/usr/bin/env python3
"""bench/compare on lines made up here, and the fingerprint it goes by."""
import copy
import json
import os
import subprocess
import sys
import tempfile

ROOT = os.environ["PEN_ROOT"]
sys.path.insert(0, os.path.join(ROOT, "bench"))
import report  # noqa: E402

HERE = {"cpu": "A", "cores": 2, "ram_bytes": 1 << 34, "kernel": "6.1",
        "libraries": {"libc": "glibc 2.36"}, "commit": "aaaa"}
TESTS = []


def test(function):
    TESTS.append(function)
    return function


def line(values=(1.0, 2.0, 3.0), name="a.b", unit="bytes/s", machine=None, **parameters):
    return report.result(name, parameters, unit, list(values), machine or HERE)


def compare(a, b):
    with tempfile.TemporaryDirectory() as folder:
        paths = [os.path.join(folder, n) for n in ("a.jsonl", "b.jsonl")]
        for path, lines in zip(paths, (a, b)):
            with open(path, "w", encoding="utf-8") as f:
                for one in lines:
                    f.write(one if isinstance(one, str) else json.dumps(one))
                    f.write("\n")
        return subprocess.run([sys.executable, os.path.join(ROOT, "bench/compare"), *paths],
                              capture_output=True, text=True, timeout=60)


def expect(done, status, *texts):
    assert done.returncode == status, f"{done.returncode}\n{done.stdout}{done.stderr}"
    for text in texts:
        assert text in done.stdout + done.stderr, f"no {text!r} in {done.stdout}{done.stderr}"


@test
def ratios_of_medians():
    expect(compare([line((9, 10, 11), n=5)], [line((19, 20, 22), n=5)]), 0,
           "a.b n=5: 2.000 (1.727 to 2.444)", "better")
    expect(compare([line((9, 10, 11), unit="s")], [line((19, 20, 22), unit="s")]), 0, "worse")
    expect(compare([line((9, 10, 11))], [line((10, 11, 12))]), 0, "within the spread")


@test
def only_what_both_have():
    done = compare([line(n=1), line(n=2)], [line(n=2), line(n=3)])
    expect(done, 0, "a.b n=2")
    assert "n=1" not in done.stdout and "n=3" not in done.stdout, done.stdout
    expect(compare([line(n=1)], [line(n=2)]), 1, "no result in common")


@test
def other_machines_are_refused():
    for field, value in (("cpu", "B"), ("cores", 3), ("ram_bytes", 1 << 35), ("kernel", "6.2")):
        other = copy.deepcopy(HERE)
        other[field] = value
        done = compare([line(), line(n=1)], [line(), line(n=1, machine=other)])
        expect(done, 2, f"different machines: {field} is {HERE[field]!r} and {value!r}")
        assert done.stdout == "", done.stdout


@test
def other_software_is_noted():
    other = copy.deepcopy(HERE)
    other["libraries"]["onednn"] = "3.0"
    other["commit"] = "bbbb"
    expect(compare([line()], [line(machine=other)]), 0, "note: onednn: None -> 3.0",
           "note: commit: aaaa -> bbbb")


@test
def bad_files_are_refused():
    expect(compare([line()], ["{"]), 2, "b.jsonl:1")
    expect(compare([line()], ["[]"]), 2, "b.jsonl:1")
    expect(compare([{"name": "x"}], [line()]), 2, "a.jsonl:1: no command, machine")
    expect(compare([line()], []), 2, "has no results")
    expect(compare([line()], [line(unit="FLOP/s")]), 2, "in bytes/s and in FLOP/s")


@test
def percents_are_of_pairs():
    rate = report.result("x", {}, "bytes/s", [10, 30, 50], HERE, ceiling=("roof", [20, 40, 50]))
    assert (rate["percent"], rate["percent_spread"]) == (75, {"min": 50, "max": 100}), rate
    time = report.result("x", {}, "s", [4, 4, 4], HERE, ceiling=("least", [1, 2, 4]))
    assert (time["percent"], time["value"], time["ceiling"]["value"]) == (50, 4, 2), time


@test
def fingerprint_is_whole():
    found = report.machine({"torch": "1"})
    for field in ("cpu", "cores", "ram_bytes", "kernel", "commit"):
        assert found[field], found
    assert found["libraries"]["torch"] == "1" and "glibc" in found["libraries"]["libc"], found


def main():
    print(f"1..{len(TESTS)}")
    bad = 0
    for number, function in enumerate(TESTS, 1):
        try:
            function()
            print(f"ok {number} - {function.__name__}")
        except Exception as error:  # each is one test's failure
            bad += 1
            print(f"not ok {number} - {function.__name__}")
            print("# " + str(error).replace("\n", "\n# "))
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
