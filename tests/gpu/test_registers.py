#!/usr/bin/env python3
"""Every CUDA kernel, as compiled for every target: nothing spilled, no more
registers than stated here.

    test_registers.py LOG...     # what ptxas -v said, one file per source
"""
import re
import sys

# Registers of a thread: what lets a multiprocessor (65,536) hold enough
# threads.  Attention keeps its results in registers: one block of 128 threads
# is enough there; for the rest 1,024 threads should fit.
ATTENTION = 255
OTHERS = 64
CEILINGS = {"attention_kernel": ATTENTION, "dq_kernel": ATTENTION, "dkv_kernel": ATTENTION}


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
    checked, failed, targets = 0, 0, set()
    for path in sys.argv[1:]:
        found = list(kernels(path))
        if not found:
            print(f"{path}: says nothing of any kernel")
            failed += 1
        for target, name, mangled, registers, spilled in found:
            checked += 1
            targets.add(target)
            ceiling = CEILINGS.get(name, OTHERS)
            if spilled or registers > ceiling:
                failed += 1
                print(f"{target} {name} ({mangled}): {registers} registers of {ceiling}, "
                      f"{spilled} bytes spilled")
    print(f"{checked} kernels for {' '.join(sorted(targets))}, {failed} too large")
    sys.exit(1 if failed or not checked else 0)


if __name__ == "__main__":
    main()
