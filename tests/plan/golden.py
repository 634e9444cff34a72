#!/usr/bin/env python3
"""Plans of fixed models on fixed machines, byte for byte as they were.

    tests/plan/golden.py PENSTOCK [--write]

Each case is planned in every form of output that it names and held against
golden/CASE.FORM; its exit code must be the one given.  --write makes these files
anew: after a change that is meant, read what `git diff` says of them.
"""
import difflib
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ALL = ("text", "json", "yaml")

# Nothing of the machine that runs this may be seen.
FIXED = ("--isa", "scalar", "--gemm", "reference")
GPU = ("--gpu", "rtx4090", "--cores", "16", "--memory-bandwidth", "65GB/s")
DRIVE = ("--drive-read", "7GB/s", "--drive-write", "5GB/s")


def on(machine, *parts):
    return ("--profile", f"machines/{machine}.json", *parts)


# name: model, exit code, forms, options
CASES = {
    "laptop-135m": ("smollm2-135m", 0, ALL, (*on("laptop", "--ram", "24GiB"), "--max-length", "512", "-b", "4")),
    "laptop-135m-tight": ("smollm2-135m", 0, ALL, (*on("laptop", "--ram", "1GiB", "--drives", "1"), "--max-length", "256",
                                                   "-b", "4", "--tbw", "300TB", "--max-steps", "1000")),
    "laptop-135m-full": ("smollm2-135m", 3, ("text", "json"), (*on("laptop", "--ram", "2GiB"), "--max-length", "512")),
    "laptop-1b-drive": ("llama-3.2-1b", 0, ALL, (*on("laptop", "--ram", "8GiB", "--drives", "1"), "--max-length", "512",
                                                 "-b", "1", "--gradient-accumulation-steps", "8")),
    "laptop-1b-in-place": ("llama-3.2-1b", 0, ("text", "json"),
                           (*on("laptop", "--ram", "4GiB", "--drives", "1"), "--max-length", "512", "-b", "1",
                            "--offload-params", "nvme", "--offload-gradients", "nvme", "--durability", "none")),
    "laptop-1b-two-drives": ("llama-3.2-1b", 0, ("text",), (*on("laptop", "--ram", "8GiB", "--drives", "2"), "--max-length",
                                                            "512", "-b", "1", "--gradient-accumulation-steps", "8")),
    "laptop-1b-split32": ("llama-3.2-1b", 0, ("text",), (*on("laptop", "--ram", "8GiB", "--drives", "1"), "--max-length",
                                                         "512", "-b", "1", "--state-format", "split32")),
    "laptop-1b-int8": ("llama-3.2-1b", 0, ("text", "json"), (*on("laptop", "--ram", "8GiB", "--drives", "1"), "--max-length",
                                                             "512", "-b", "1", "--state-format", "int8")),
    "server-2b-fp32": ("gemma-2-2b", 0, ("text", "json"), (*on("server", "--ram", "128GiB"), "--dtype", "fp32",
                                                           "--max-length", "1024", "-b", "2")),
    "server-7b-16-cores": ("qwen2.5-7b", 0, ALL, (*on("server", "--ram", "64GiB", "--drives", "2"), "--max-length", "2048",
                                                  "-b", "1", "--gradient-accumulation-steps", "16", "--tbw", "2000TB")),
    "server-7b-8-cores": ("qwen2.5-7b", 0, ("text",), (*on("server", "--ram", "64GiB", "--drives", "2", "--cores", "8"),
                                                       "--max-length", "2048", "-b", "1",
                                                       "--gradient-accumulation-steps", "16")),
    "rtx4090-7b": ("qwen2.5-7b", 0, ALL, (*GPU, *DRIVE, "--ram", "64GiB", "--max-length", "2048", "-b", "8",
                                          "--gradient-accumulation-steps", "4", "--tbw", "600TB")),
    "rtx4090-7b-ram": ("qwen2.5-7b", 0, ("text", "json"), (*GPU, "--ram", "192GiB", "--max-length", "2048", "-b", "8",
                                                           "--gradient-accumulation-steps", "4")),
    "rtx4090-7b-early": ("qwen2.5-7b", 0, ("text", "yaml"), (*GPU, *DRIVE, "--drives", "2", "--ram", "64GiB",
                                                            "--max-length", "1024", "-b", "8", "--gradient-accumulation-steps",
                                                            "8", "--speculative-updates", "auto")),
    "h200-7b-early": ("qwen2.5-7b", 0, ("text",), ("--gpu", "h200", "--cores", "64", "--memory-bandwidth", "400GB/s", *DRIVE,
                                                   "--drives", "4", "--ram", "128GiB", "--offload-optimizer", "nvme",
                                                   "--max-length", "1024", "-b", "8", "--gradient-accumulation-steps", "16",
                                                   "--speculative-updates", "auto")),
    "rtx4090-70b": ("llama-3.3-70b", 0, ("text",), (*GPU, *DRIVE, "--drives", "4", "--ram", "256GiB", "--max-length",
                                                    "1024", "-b", "4", "--gradient-accumulation-steps", "4")),
    "rtx3060-70b": ("llama-3.3-70b", 3, ("text", "json"), ("--gpu", "rtx3060", "--ram", "64GiB", "--cores", "8",
                                                           "--max-length", "1024", "-b", "8")),
    "sweep-ram": ("llama-3.2-1b", 0, ("text", "json"), (*on("laptop", "--drives", "1"), "--max-length", "512", "-b", "4",
                                                        "--sweep", "ram=1GiB,4GiB,8GiB,16GiB,32GiB")),
}


def plan(program, case, form):
    """What the plan says, and its exit code and error as a last line."""
    model, _, _, options = CASES[case]
    done = subprocess.run([program, "plan", "--model", f"models/{model}.json", *FIXED, *options, "-o", form], cwd=HERE,
                          capture_output=True, text=True, timeout=300,
                          env={**os.environ, "HOME": HERE, "XDG_CONFIG_HOME": ""})
    return f"{done.stdout}{done.stderr}", done.returncode


def judge(program, case, form):
    """An empty text, or what is wrong."""
    said, code = plan(program, case, form)
    if code != CASES[case][1]:
        return f"exit code {code}, not {CASES[case][1]}: {said[-300:]}"
    name = f"golden/{case}.{form}"
    with open(os.path.join(HERE, name), encoding="utf-8") as f:
        was = f.read()
    differences = difflib.unified_diff(was.splitlines(), said.splitlines(), name, "now", lineterm="", n=0)
    return "\n".join(list(differences)[:40])


def write(program):
    for name in os.listdir(os.path.join(HERE, "golden")):
        os.remove(os.path.join(HERE, "golden", name))
    for case, (_, code, forms, _) in CASES.items():
        for form in forms:
            said, got = plan(program, case, form)
            if got != code:
                sys.exit(f"golden: {case}: exit code {got}, not {code}: {said[-500:]}")
            with open(os.path.join(HERE, "golden", f"{case}.{form}"), "w", encoding="utf-8") as f:
                f.write(said)


def test(program):
    questions = [(case, form) for case, (_, _, forms, _) in CASES.items() for form in forms]
    print(f"1..{len(questions)}")
    good = True
    for number, (case, form) in enumerate(questions, 1):
        wrong = judge(program, case, form)
        good &= not wrong
        print(f"{'not ok' if wrong else 'ok'} {number} - {case} {form}")
        if wrong:
            print("# " + wrong.replace("\n", "\n# "))
    sys.exit(not good)


def main():
    if len(sys.argv) < 2 or sys.argv[2:] not in ([], ["--write"]):
        sys.exit(__doc__)
    program = os.path.abspath(sys.argv[1])
    if sys.argv[2:]:
        write(program)
    else:
        test(program)


main()
