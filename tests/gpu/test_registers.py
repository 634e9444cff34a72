#!/usr/bin/env python3
"""Every CUDA kernel, as compiled for every target: nothing spilled, no more
registers than stated here.

    test_registers.py --targets sm_80,sm_90 LOG...     # what ptxas -v said, one file per source
"""
import re
import sys

# Registers of a thread: what lets a multiprocessor (65,536) hold enough
# threads.  Attention keeps its results in registers: two blocks of 128 threads
# are enough there; of norms' gradients 1,024 threads should fit, of the rest
# 1,280.
ATTENTION = 255
CEILINGS = {"attention_kernel": ATTENTION, "dq_kernel": ATTENTION, "dkv_kernel": ATTENTION, "norm_dx_kernel": 64}
OTHERS = 48


def kernel_of(mangled):
    """The function's own name: the last of the length-prefixed ones before its
    template arguments."""
    name, at = mangled, 0
    # from where a name ends, since that may be a digit of a hash
    while match := re.compile(r"\d+").search(mangled, at):
        at = match.end()
        length = int(match.group())
        part = mangled[at:at + length]
        if len(part) == length and re.fullmatch(r"[a-z_]+\w*", part):
            name, at = part, at + length
            if name.endswith(("_kernel", "_partials")):
                return name
    return name


def kernels(path):
    """(target, kernel, registers, spilled bytes) of each kernel in a log."""
    target = mangled = None
    spilled = 0
    with open(path, encoding="utf-8") as log:
        for line in log:
            if match := re.search(r"Compiling entry function '(\w+)' for '(\w+)'", line):
                mangled, target = match.groups()
                spilled = 0
            elif match := re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", line):
                spilled = int(match.group(1)) + int(match.group(2))
            elif mangled and (match := re.search(r"Used (\d+) registers", line)):
                yield target, kernel_of(mangled), mangled, int(match.group(1)), spilled
                mangled = None


def main():
    wanted, logs = set(sys.argv[2].split(",")), sys.argv[3:]
    checked, failed = 0, 0
    for path in logs:
        found = list(kernels(path))
        for target in sorted(wanted):
            there = {mangled for of, _, mangled, *_ in found if of == target}
            if not there or there != {mangled for _, _, mangled, *_ in found}:
                print(f"{path}: does not speak of every kernel for {target}")
                failed += 1
        for target, name, mangled, registers, spilled in found:
            checked += 1
            ceiling = CEILINGS.get(name, OTHERS)
            if spilled or registers > ceiling:
                failed += 1
                print(f"{target} {name} ({mangled}): {registers} registers of {ceiling}, "
                      f"{spilled} bytes spilled")
    print(f"{checked} kernels for {' '.join(sorted(wanted))}, {failed} too large or missing")
    sys.exit(1 if failed or not checked else 0)


if __name__ == "__main__":
    main()
