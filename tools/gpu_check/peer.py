"""Stage peer: PyTorch at the same steps on the same device, each way as a process of its own."""
import json
import os
import subprocess
import sys

from . import shapes
from .common import ROOT, Absent, Cut, Failed, Item

PROGRAM = os.path.join(ROOT, "bench", "peers", "peer_device.py")
RUNS = [("1.5b", "resident", False), ("1.5b", "resident", True), ("1.5b", "cpu-optimizer", False),
        ("7b", "bf16-state", False), ("7b", "cpu-optimizer", False)]
SECONDS = {"1.5b": 90, "7b": 150}


def python():
    """PEN_TORCH_PYTHON, or the Python that runs this."""
    program = os.environ.get("PEN_TORCH_PYTHON", sys.executable)
    try:
        done = subprocess.run([program, "-c", "import torch, transformers"], capture_output=True, text=True,
                              timeout=120, check=False)
    except (OSError, subprocess.TimeoutExpired) as why:
        raise Absent(f"{program} cannot be asked for torch: {why}") from None
    if done.returncode:
        raise Absent(f"{program} has no torch and transformers: {done.stderr.strip().splitlines()[-1]}")
    return program


def run(name, how, compiled):
    def do(check):
        program = python()
        path = os.path.join(check.work, name + ".peer.json")
        with open(path, "w", encoding="utf-8") as f:
            json.dump(shapes.config(check, name), f)
        steps = [f"{batch}x{micros}" for batch, micros in shapes.STEPS.values()]
        more = ["--device", "cpu", "--timed", "1"] if check.fake else ["--timed", str(shapes.TIMED)]
        # what it did before its time was over or it failed is worth something, too
        done = check.run([program, PROGRAM, "--config", path, "--how", how, "--length", shapes.length(check), "--steps",
                          *steps, *["--compile"] * compiled, *more], 400, ok=range(-64, 256), keep=True)
        rows = [json.loads(line) for line in done.output.splitlines() if line.startswith('{"steps"')]
        if not rows:
            if done.cut:
                raise Cut(f"{done.seconds:.0f} s were not enough for a first row")
            raise Failed(f"status {done.status}: " + (done.output.strip().splitlines() or ["nothing said"])[-1][:300])
        return {"status": done.status, "rows": [judged(check, name, row) for row in rows]}
    return do


def judged(check, name, row):
    size = next(size for size, (batch, micros) in shapes.STEPS.items() if row["steps"] == f"{batch}x{micros}")
    if "failed" in row:
        return {"size": size, **row}
    seconds = shapes.median(row["seconds"])
    figures = shapes.utilisation(check, name, size, seconds) if os.path.exists(check.path("machine.json")) else {}
    return {"size": size, **row, "median_seconds": seconds, "tokens_per_s": shapes.tokens_of(check, size) / seconds,
            **figures}


ITEMS = [Item(f"{NAME}-{HOW}" + "-compiled" * COMPILED, SECONDS[NAME] + 60 * COMPILED,
              f"PyTorch at the same steps of {NAME}: {HOW}" + ", layers compiled" * COMPILED, run(NAME, HOW, COMPILED))
         for NAME, HOW, COMPILED in RUNS]
