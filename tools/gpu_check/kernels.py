"""Stage kernels: every operation on the device against the host's, and how fast each is."""
import json
import os
import re
import shutil
import time

from .common import Absent, Failed, Item

FAKE_ONLY = ("--only", "rope")  # a rehearsal is not the test of the kernels
LOST_MOST = 6  # operations that may break the device before it is left alone


def judge(output):
    """{operation: share of what is allowed}, or what failed."""
    found, bad = {}, []
    for line in output.splitlines():
        if match := re.match(r"(not )?ok \d+ - (.*)", line):
            name, _, rest = match.group(2).partition(":")
            if match.group(1):
                bad.append(name)
            if share := re.search(r"up to ([\d.]+) of", rest):
                found[name] = float(share.group(1))
    if bad or not found:
        raise Failed(f"{len(bad)} operations are wrong: {', '.join(bad)}" if bad else "no operation was compared")
    return found


def checker(check):
    return [check.check_device, "--device", check.options.device]


def compare(*words):
    def do(check):
        seed = int(time.time())
        arguments = ["--seed", seed, *words, *(FAKE_ONLY if check.fake else ())]
        output, seconds = run_to_the_end(check, arguments)
        return {"seed": seed, "share_of_allowed": judge(output), "seconds": round(seconds, 1)}
    return do


def run_to_the_end(check, arguments):
    """An operation that breaks the device ends its process; another one goes on behind it."""
    output, seconds, after = "", 0, ()
    for _ in range(LOST_MOST):
        done = check.run([*checker(check), *arguments, *after], 400, ok=(0, 1))
        output, seconds = output + done.output, seconds + done.seconds
        lost = re.search(r"^Bail out! (\w+) broke the device", done.output, re.MULTILINE)
        if not lost:
            break
        after = ("--after", lost.group(1))
    return output, seconds


def sanitize(tool, *words):
    """`words`: what is left out, so that it is our kernels that are judged, not cuBLAS's."""
    def do(check):
        program = shutil.which("compute-sanitizer", path=os.environ["PATH"] + ":/usr/local/cuda/bin")
        if not program:
            raise Absent("there is no compute-sanitizer here")
        done = check.run([program, "--tool", tool, "--error-exitcode", "9", *checker(check), *words,
                          *(FAKE_ONLY if check.fake else ())], 300, ok=(0, 1, 9, 255))
        errors = re.findall(r"ERROR SUMMARY: (\d+) error", done.output) or \
            re.findall(r"RACECHECK SUMMARY: (\d+) hazard", done.output)
        if "not supported" in done.output and "ok 2" not in done.output:
            raise Absent("compute-sanitizer does not work here: " + done.output.strip().splitlines()[-1][:200])
        if done.status != 0 or any(int(n) for n in errors):
            first = [line for line in done.output.splitlines() if line.startswith("=========")][1:6]
            raise Failed(f"{tool}: status {done.status}, " + " | ".join(first)[:600])
        judge(done.output)
        return {"errors": errors}
    return do


def times_in(output):
    rows = [json.loads(line[2:]) for line in output.splitlines() if line.startswith('# {"time"')]
    if not rows:
        raise Failed("nothing was timed")
    return rows


def times(check):
    words = ("64", *FAKE_ONLY) if check.fake else ("8192",)
    return {"rows": times_in(check.run([*checker(check), "--time", *words], 300, ok=(0, 1)).output)}


def tf32(check):
    output = check.run([*checker(check), "--tf32", "--time", "64" if check.fake else "8192"], 60, ok=(0, 1)).output
    return {"share_of_allowed": judge(output), "rows": times_in(output)}


ITEMS = [Item("small", 60, "small, odd and random shapes", compare("--rounds", "10")),
         Item("large", 150, "shapes of real models", compare("--large")),
         Item("memcheck", 120, "small shapes under compute-sanitizer's memcheck", sanitize("memcheck")),
         Item("racecheck", 120, "the same under racecheck", sanitize("racecheck", "--without", "gemm")),
         Item("synccheck", 120, "the same under synccheck", sanitize("synccheck", "--without", "gemm")),
         Item("times", 60, "seconds of each operation as a 1 B model has it", times),
         Item("tf32", 10, "products in fp32 by TF32: how near, how fast", tf32)]
