#!/usr/bin/env python3
"""tools/gpu-check from end to end on the fake device: what would waste a real one's first minutes.

    test_gpu_check.py BUILD

What makes it red: a stage that breaks off, a figure that cannot be read, an item done twice, a
wrong result that passes.
"""
import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
BUILD = os.path.abspath(sys.argv[1])
SANITIZER = """#!/bin/sh
# stands for compute-sanitizer: runs what comes behind its options, and finds what STUB_ERRORS says
while [ "${1#--}" != "$1" ]; do shift 2; done
"$@" || exit
echo "========= ERROR SUMMARY: ${STUB_ERRORS:-0} errors"
[ "${STUB_ERRORS:-0}" = 0 ] || exit 9
"""
TESTS = []


def test(function):
    TESTS.append(function)
    return function


def wait_until(condition):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "nothing came of it"
        time.sleep(0.05)


def running(text):
    """Processes with that in their command line, which is no part of any other's."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", encoding="utf-8", errors="replace") as f:
                found += [pid] * (text in f.read())
        except OSError:
            pass
    return found


def start(folder, *words, **env):
    return subprocess.Popen([os.path.join(ROOT, "tools", "gpu-check"), "--fake", BUILD, "--out", folder + "/out",
                             "--work", folder + "/work", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            env={**os.environ, **env})


def gpu_check(folder, *words, status=0, **env):
    stubs = os.path.join(folder, "bin")
    if not os.path.exists(stubs):
        os.makedirs(stubs)
        path = os.path.join(stubs, "compute-sanitizer")
        with open(path, "w", encoding="utf-8") as f:
            f.write(SANITIZER)
        os.chmod(path, os.stat(path).st_mode | stat.S_IXUSR)
    done = subprocess.run([os.path.join(ROOT, "tools", "gpu-check"), "--fake", BUILD, "--out", folder + "/out",
                           "--work", folder + "/work", *words], capture_output=True, text=True, timeout=200, check=False,
                          env={**os.environ, "PATH": stubs + ":" + os.environ["PATH"], **env})
    assert done.returncode == status, f"{words}: status {done.returncode}, not {status}\n{done.stderr[-3000:]}"
    return done


def results(folder, stage):
    with open(f"{folder}/out/{stage}.json", encoding="utf-8") as f:
        return json.load(f)


@test
def all_stages_end_well(folder):
    gpu_check(folder, "build", "kernels", "step", "--only", "machine", "--only", "compile", "--only", "device",
              "--only", "small", "--only", "memcheck", "--only", "times", "--only", "tf32", "--only", "ceilings", "--only", "model-1.5b",
              "--only", "1.5b-resident-4k", "--only", "1.5b-ram-16k", "--only", "1.5b-disk-4k")
    for stage in ("build", "kernels", "step"):
        for name, result in results(folder, stage).items():
            assert result["state"] == "ok", f"{stage} {name}: {result}"
    traced = results(folder, "step")["1.5b-ram-16k"]
    assert traced["exposed_seconds"].get("update", 0) >= 0 and traced["simulated"]["seconds"] > 0, traced
    assert traced["planned_bytes"]["device"] > 0 and 0 < traced["host_bytes"] < 1 << 30, traced
    with open(f"{folder}/out/report.md", encoding="utf-8") as f:
        told = f.read()
    for words in ("Fake GPU", "rehearsal", "| rope | bf16 |", "| gemm | TF32 |", "| 1.5b-ram-16k |", "copies both ways at once",
                  "| time within 10 % of the simulator's | 1.5b-ram-16k |", "MFU at least 60 % without recompute |  |  | not measured |"):
        assert words in told, words


@test
def promises_and_what_breaks_them(folder):
    gpu_check(folder, "promises", "--only", "bf16-bits", "--only", "fp32-near", "--only", "text", "--only", "resume")
    kept = gpu_check(folder, "promises", "--only", "resume")
    assert "promises resume: kept" in kept.stderr, kept.stderr
    # compute does not wait for uploads: another result, or a crash of NaN
    gpu_check(folder, "promises", "--only", "bf16-bits", "--again", status=1, PEN_FAKE_DROP_WAIT="01", PEN_FAKE_JITTER="1")
    assert results(folder, "promises")["bf16-bits"]["state"] == "failed"


@test
def findings_are_failures_and_done_again(folder):
    gpu_check(folder, "kernels", "--only", "memcheck", status=1, STUB_ERRORS="3")
    assert "memcheck: status 9" in results(folder, "kernels")["memcheck"]["why"]
    gpu_check(folder, "kernels", "--only", "memcheck")
    gpu_check(folder, "step", "--only", "1.5b-ram-4k", status=1)
    assert "ceilings comes first" in results(folder, "step")["1.5b-ram-4k"]["why"]


@test
def an_operation_that_breaks_the_device_hides_no_other(folder):
    """Its process is over; another one goes on behind it."""
    gpu_check(folder, "kernels", "--only", "small", status=1, PEN_FAKE_FAULT="3")
    assert "rope in bf16" in results(folder, "kernels")["small"]["why"], results(folder, "kernels")
    with open(f"{folder}/out/log.txt", encoding="utf-8") as f:
        told = f.read()
    assert "Bail out! rope broke the device: CUDA: " in told and "--after rope" in told, told


def step_of(seconds, tokens=65536, **more):
    return {"state": "ok", "seconds": seconds, "tokens_per_s": tokens / seconds, "mfu_of_data_sheet": 0.4,
            "mfu_of_measured_products": 0.5, "bound_told": "compute", "placement": ["placement: 0, 0 of 28 blocks recompute"],
            "planned_bytes": {}, "host_bytes": 0, "device_bytes": 0, "hiding_tokens": 10, "simulated": None, **more}


@test
def goals_are_judged(folder):
    """Made-up runs, some of which reach a goal and some of which miss it; of others nothing is said."""
    os.makedirs(folder + "/out")
    plan = {"seconds": 10, "bound_seconds": 9, "bound": "device"}
    steps = {"model-1.5b": {"state": "ok"},
             "7b-resident-64k": step_of(10, mfu_of_data_sheet=0.61, simulated=plan),
             "7b-ram-64k": step_of(10.9), "7b-state-in-ram-64k": step_of(11.2, simulated=plan),
             "1.5b-resident-64k": step_of(1), "1.5b-ram-64k": step_of(2, hiding_tokens=1000)}
    with open(folder + "/out/step.json", "w", encoding="utf-8") as f:
        json.dump(steps, f)
    told = gpu_check(folder, "step", "--only", "model-1.5b").stdout
    goals = [line.split(" | ")[1:] for line in told.splitlines() if "T* on: offload" in line or "at least 60 %" in line or
             "the simulator's |" in line]
    assert goals == [["7b-resident-64k", "61 %", "reached |"], ["7b-state-in-ram-64k", "40 %", "MISSED |"],
                     ["7b-ram-64k", "9 % longer than resident", "reached |"],
                     ["7b-state-in-ram-64k", "12 % longer than resident", "MISSED |"],
                     ["7b-resident-64k", "1 times the simulated", "reached |"],
                     ["7b-state-in-ram-64k", "1.12 times the simulated", "MISSED |"]], goals
    with open(f"{folder}/out/report.md", encoding="utf-8") as f:
        assert f.read() in told


@test
def whatever_goes_wrong_the_rest_is_done_and_kept(folder):
    """A profile without rates and a result without its figures; then a stage that has no time, and one that is stopped."""
    os.makedirs(folder + "/out")
    with open(folder + "/out/machine.json", "w", encoding="utf-8") as f:
        json.dump({"device": "a GPU", "device_bf16_flops": None}, f)
    with open(folder + "/out/kernels.json", "w", encoding="utf-8") as f:
        json.dump({"times": {"state": "ok", "rows": [{"time": "rope"}]}}, f)
    told = gpu_check(folder, "build", "step", "--only", "machine", "--only", "1.5b-resident-4k", "--only", "model-1.5b", status=1)
    assert results(folder, "step")["1.5b-resident-4k"]["state"] == "failed", results(folder, "step")
    assert results(folder, "step")["model-1.5b"]["state"] == "ok", results(folder, "step")
    assert "the part kernels could not be told: KeyError" in told.stdout and "| build | machine | ok |" in told.stdout, told.stdout
    gpu_check(folder, "promises", "--only", "bf16-bits", "--minutes", "0.02", status=75)
    assert results(folder, "promises")["bf16-bits"]["state"] == "cut", results(folder, "promises")


@test
def stopped_it_ends_what_runs_on_the_device(folder):
    child = start(folder, "promises", "--only", "fp32-bits", PEN_FAKE_BUS="20000")
    job = f"{folder}/work/promises-fp32"
    wait_until(lambda: os.path.exists(job) and running(job))
    child.terminate()
    child.communicate(timeout=30)
    assert child.returncode == 1 and not running(job), (child.returncode, running(job))


@test
def without_a_device_nothing_else_is_begun(folder):
    told = gpu_check(folder, "build", "kernels", "--only", "device", "--only", "small", status=1, PEN_FAKE_DEVICES="0").stderr
    assert "nothing else is begun without it: device: doctor finds no CUDA device: no CUDA device" in told, told
    assert results(folder, "build")["device"]["state"] == "failed" and not os.path.exists(f"{folder}/out/kernels.json")


@test
def wrong_usage_is_told(folder):
    assert "there is no stage fly" in gpu_check(folder, "fly", status=2).stderr
    assert "there is no item x" in gpu_check(folder, "build", "--only", "x", status=2).stderr
    assert "names its items itself" in gpu_check(folder, "build", "--first", status=2).stderr
    assert "about" in gpu_check(folder, "--list").stdout


@test
def what_is_worth_most_comes_first(folder):
    """Within one time for all, and with no time left nothing more is begun; the stages go on from there."""
    named = [line.split()[:2] for line in gpu_check(folder, "--first", "--list").stdout.splitlines()]
    assert named[0] == ["build", "machine"] and ["promises", "bf16-bits"] in named and len(named) > 9, named
    told = gpu_check(folder, "--first", "--host-memory", "1GiB").stderr
    begun = [line.split(":")[0].split() for line in told.splitlines() if line.endswith("s)")]
    assert begun == named, told
    for stage, name in named:
        assert results(folder, stage)[name]["state"] == "ok", (stage, name, results(folder, stage)[name])
    assert "build compile: kept" in gpu_check(folder, "build", "--only", "compile").stderr


def main():
    print(f"1..{len(TESTS)}")
    good = True
    for number, function in enumerate(TESTS, 1):
        folder = tempfile.mkdtemp(prefix="pen-gpu-check-")
        try:
            function(folder)
            print(f"ok {number} - {function.__name__}", flush=True)
        except (AssertionError, OSError, KeyError, subprocess.TimeoutExpired) as failure:
            good = False
            print(f"not ok {number} - {function.__name__}")
            print("# " + f"{type(failure).__name__}: {failure}".replace("\n", "\n# "), flush=True)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    sys.exit(not good)


main()
