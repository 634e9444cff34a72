#!/usr/bin/env python3
"""state_quality and state_tokens with a script in penstock's place: how a run is
stopped, whose losses are whose, what the search finds.

    test_state.py
"""
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

BENCH = os.path.join(os.environ["PEN_ROOT"], "bench")
# train: tells of steps up to $LAST; then waits for a signal, counts those that come, and ends.
# plan: fits up to $FIT sequences; with state on a drive a step takes 1 + $SLOW / sequences as long.
PENSTOCK = '''#!/usr/bin/env -S python3 -IS
import json, os, signal, sys, time
def of(name): return sys.argv[sys.argv.index(name) + 1]
if sys.argv[1] == "plan":
    n = int(of("--per-device-train-batch-size"))
    if n > int(os.environ["FIT"]): sys.exit(3)
    drive = of("--offload-optimizer") == "nvme"
    print(json.dumps({"time": {"seconds_per_step": 1 + drive * float(os.environ["SLOW"]) / n}}))
elif sys.argv[1] == "init":
    os.makedirs(of("-o"))
else:
    told = []
    signal.signal(signal.SIGINT, lambda *_: told.append(1))
    os.makedirs(of("--output-dir"), exist_ok=True)
    with open(of("--output-dir") + "/log.jsonl", "a") as log:
        for step in range(1, int(os.environ["LAST"]) + 1):
            print(json.dumps({"step": step, "eval_loss": float(of("--learning-rate"))}), file=log)
    while os.environ["LAST"] != of("--max-steps") and not told: time.sleep(.01)
    if told: time.sleep(.5)
    open(of("--output-dir") + "/signals", "w").write(str(len(told)))
'''


def start(folder, name, *words, **variables):
    os.makedirs(f"{folder}/src/cli", exist_ok=True)
    path = f"{folder}/src/cli/penstock"
    with open(path, "w", encoding="utf-8") as f:
        f.write(PENSTOCK)
    os.chmod(path, 0o755)
    environment = {**os.environ, "PEN_BUILD": folder, **{key: str(value) for key, value in variables.items()}}
    return subprocess.Popen([f"{BENCH}/{name}", *map(str, words)], env=environment, start_new_session=True, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)


QUALITY = ("--seeds", 1, "--steps", 2, "--formats", "fp32")


def runs_of(folder):
    """Folders of runs by name."""
    found = os.listdir(f"{folder}/q") if os.path.isdir(f"{folder}/q") else []
    return sorted(name for name in found if name.startswith("run-") and not name.endswith(".txt"))


def a_stop_is_said_once(folder):
    """As a terminal does it: to all of the group."""
    bench = start(folder, "state_quality", "--directory", f"{folder}/q", *QUALITY, LAST=0)
    until = time.monotonic() + 20
    while time.monotonic() < until and not (runs_of(folder) and os.path.exists(f"{folder}/q/{runs_of(folder)[0]}/log.jsonl")):
        time.sleep(.01)
    os.killpg(bench.pid, signal.SIGINT)
    said = bench.communicate(timeout=20)[1]
    assert bench.returncode == 1 and "go on with the same command" in said, said
    with open(f"{folder}/q/{runs_of(folder)[0]}/signals", encoding="utf-8") as f:
        told = f.read()
    assert told == "1", f"told {told} times"


def runs_of_other_options_are_others(folder):
    """An unfinished one's losses are not taken for those of another learning rate."""
    half = start(folder, "state_quality", "--directory", f"{folder}/q", *QUALITY, "--learning-rate", 5, "--turn", 1, LAST=1)
    until = time.monotonic() + 20
    while time.monotonic() < until and not runs_of(folder):
        time.sleep(.01)
    time.sleep(1)
    half.send_signal(signal.SIGTERM)
    half.communicate(timeout=20)
    done = start(folder, "state_quality", "--directory", f"{folder}/q", *QUALITY, "--learning-rate", 7, LAST=2)
    out, said = done.communicate(timeout=20)
    assert "| `fp32` | 7.0000 |" in out, out + said
    assert len(runs_of(folder)) == 1, runs_of(folder)
    table = start(folder, "state_quality", "--directory", f"{folder}/q", *QUALITY, "--learning-rate", 3, "--table")
    assert "5.0" not in table.communicate(timeout=20)[0]


def tokens(folder, fit, slow):
    """The first row; the other formats' are not waited for."""
    done = start(folder, "state_tokens", "--model", "m", "--profile", "p", "--length", 10, "--most", 64, FIT=fit, SLOW=slow)
    row = next((line.rstrip() for line in done.stdout if line.startswith("| `fp32`")), None)
    done.terminate()
    assert row, done.communicate(timeout=20)[1]
    done.communicate(timeout=20)
    return row


def the_fewest_tokens_are_found(folder):
    for fit, slow, want in ((64, 1, "100 | 1.10 | 2.00"), (20, 1, "100 | 1.10 | 2.00"), (10, 1, "100 | 1.10 | 2.00"),
                            (64, 0, "10 | 1.00 | 1.00"), (1, 0, "10 | 1.00 | 1.00"), (64, 6.4, "640 | 1.10 | 7.40"),
                            (64, 7, "more than 640 | | 8.00"), (9, 1, "none: more than 90 do not fit | | 2.00"),
                            (0, 1, "does not fit | | does not fit")):
        found = tokens(folder, fit, slow)
        assert found == f"| `fp32` | {want} |", (fit, slow, found)


TESTS = (a_stop_is_said_once, runs_of_other_options_are_others, the_fewest_tokens_are_found)
print(f"1..{len(TESTS)}")
bad = 0
for number, function in enumerate(TESTS, 1):
    with tempfile.TemporaryDirectory(prefix="pen-state-") as where:
        try:
            function(where)
            print(f"ok {number} - {function.__name__}")
        except (AssertionError, OSError, subprocess.TimeoutExpired) as failure:
            bad = 1
            print(f"not ok {number} - {function.__name__}\n# " + repr(failure).replace("\n", "\n# "))
sys.exit(bad)
