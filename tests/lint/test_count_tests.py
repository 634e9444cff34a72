#!/usr/bin/env python3
"""tools/count-tests on logs made up here: nothing that failed may look passed."""
import json
import os
import subprocess
import sys
import tempfile

TOOL = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tools/count-tests")


def entry(result, out="", name="penstock:unit / a"):
    return {"name": name, "result": result, "stdout": out, "returncode": 0}


# entries, last line, exit status, a text that must be there
CASES = [
    ([entry("OK", "1..2\nok 1 - a\nok 2 - b\n")], "2 passed, 0 failed, 0 skipped", 0, ""),
    ([entry("OK")], "1 passed, 0 failed, 0 skipped", 0, ""),
    ([entry("FAIL", "1..2\nok 1 - a\nnot ok 2 - b\n")], "1 passed, 1 failed, 0 skipped", 1,
     "FAILED unit/a: b"),
    ([entry("FAIL")], "0 passed, 1 failed, 0 skipped", 1, "FAILED unit/a: fail"),
    ([entry("ERROR", "1..3\nok 1 - a\n")], "1 passed, 1 failed, 0 skipped", 1,
     "FAILED unit/a: error after 1 of 3"),
    ([entry("ERROR", "1..1\nok 1 - a\n")], "1 passed, 1 failed, 0 skipped", 1, "after 1 of 1"),
    ([entry("FAIL", "1..3\nnot ok 1 - a\n")], "0 passed, 2 failed, 0 skipped", 1, "after 1 of 3"),
    ([entry("TIMEOUT", "1..2\nok 1 - a\n")], "1 passed, 1 failed, 0 skipped", 1, "timeout"),
    ([entry("OK", "1..2\nok 1 - a\n")], "1 passed, 1 failed, 0 skipped", 1, "after 1 of 2"),
    ([entry("OK", "1..2\n# skipped: no disk\nnot ok 1 # SKIP a\nok 2 - b\n")],
     "1 passed, 0 failed, 1 skipped", 0, "skipped unit/a: a: no disk"),
    ([entry("SKIP", "needs x\n"), entry("OK")], "1 passed, 0 failed, 1 skipped", 0,
     "skipped unit/a: needs x"),
    ([entry("SKIP", "needs x\n")], "0 passed, 0 failed, 1 skipped", 1, ""),
    # a failure in one program does not hide a crash in the next
    ([entry("FAIL", "1..1\nnot ok 1 - a\n"), entry("ERROR", "1..1\nok 1 - a\n")],
     "1 passed, 2 failed, 0 skipped", 1, ""),
    ([], "0 passed, 0 failed, 0 skipped", 1, ""),
    (None, "0 passed, 0 failed, 0 skipped", 1, "no test ran"),
]


def run(entries, line, status, text):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "testlog.json")
        if entries is not None:
            with open(path, "w") as f:
                f.writelines(json.dumps(e) + "\n" for e in entries)
        done = subprocess.run([sys.executable, TOOL, path], capture_output=True, text=True)
    lines = done.stdout.strip().split("\n")
    return lines[-1] == line and done.returncode == status and text in done.stdout, done


def main():
    print(f"1..{len(CASES)}")
    all_good = True
    for number, case in enumerate(CASES, 1):
        good, done = run(*case)
        all_good = all_good and good
        print(f"{'ok' if good else 'not ok'} {number} - {case[1]}")
        if not good:
            print(f"# {done.returncode} {done.stdout!r} {done.stderr!r}")
    sys.exit(not all_good)


if __name__ == "__main__":
    main()
