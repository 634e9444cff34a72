"""Watches a training run from outside: memory it takes, steps it has logged; and reads its timeline."""
import json
import os
import subprocess
import time

DEVICE_EVERY_S = 3  # asking nvidia-smi takes half a second itself


class Watch:
    """Peak bytes of a run, and its end after so many steps (0: its own end)."""

    def __init__(self, output, steps, device):
        self.log, self.steps, self.device = os.path.join(output, "log.jsonl"), steps, device
        self.host_bytes = self.device_bytes = 0
        self.asked = 0.0

    def __call__(self, child):
        self.host_bytes = max(self.host_bytes, resident(child.pid))
        if time.monotonic() - self.asked > DEVICE_EVERY_S:
            self.asked = time.monotonic()
            self.device_bytes = max(self.device_bytes, on_device(self.device))
        return self.steps and len(self.lines()) >= self.steps

    def lines(self):
        try:
            with open(self.log, encoding="utf-8") as f:
                return [json.loads(line) for line in f if line.endswith("\n")]
        except FileNotFoundError:
            return []


def resident(pid):
    """Bytes of RAM that are the process's own."""
    total = 0
    try:
        with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as f:
            for line in f:
                if line.startswith(("RssAnon:", "RssShmem:")):
                    total += int(line.split()[1]) * 1024
    except (FileNotFoundError, ProcessLookupError):
        pass
    return total


def on_device(number):
    """Bytes of the device's memory in use by all; 0 where nobody says."""
    try:
        done = subprocess.run(["nvidia-smi", "-i", str(number), "--query-gpu=memory.used",
                               "--format=csv,noheader,nounits"], capture_output=True, text=True, timeout=20, check=True)
        return int(done.stdout.split()[0]) << 20
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return 0


def union(spans):
    """Disjoint and in order."""
    merged = []
    for begin, end in sorted(spans):
        if merged and begin <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([begin, end])
    return merged


def without(spans, others):
    """How long `spans` are where none of `others` is; both as union() gives them."""
    total = 0.0
    for begin, end in spans:
        total += end - begin
        for other_begin, other_end in others:
            total -= max(0.0, min(end, other_end) - max(begin, other_begin))
    return total


def exposed(path, step_seconds):
    """{lane: seconds a step in which it worked and compute did not}, of the last steps of a timeline."""
    with open(path, encoding="utf-8") as f:
        events = json.load(f)["traceEvents"]
    lanes = {e["tid"]: e["args"]["name"].split()[0] for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
    work = [e for e in events if e["ph"] == "X"]
    end = max(e["ts"] + e["dur"] for e in work if e["name"] == "decide")
    begin = end - 1e6 * sum(step_seconds)
    spans = {}
    for e in work:
        span = (max(e["ts"], begin), min(e["ts"] + e["dur"], end))
        if span[0] < span[1]:
            spans.setdefault(lanes.get(e["tid"], "?"), []).append(span)
    busy = union(spans.get("compute", []))
    return {lane: without(union(of), busy) * 1e-6 / len(step_seconds) for lane, of in spans.items() if lane != "compute"}
