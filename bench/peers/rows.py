"""The rows of the comparison: which jobs there are, and who does them how."""
import ctypes.util
import functools
import json
import os
import statistics
import subprocess

from contest import OURS, Contender, Failed, Job

PEERS = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(PEERS))
GIB = 1 << 30
WARM_UP = 1  # steps that do not count

# Ways to allocate that PyTorch's own guides name, each tried, for none wins everywhere: of
# torch, huge pages; instead of the C library's, one that keeps memory.
HUGE_PAGES = {"THP_MEM_ALLOC_ENABLE": "1"}
PAGES = {"": {}, ", huge pages": HUGE_PAGES}
TCMALLOC = ctypes.util.find_library("tcmalloc_minimal")
ALLOCATORS = {"": {}, ", tcmalloc": {"LD_PRELOAD": TCMALLOC}} if TCMALLOC else {"": {}}
BEST_ALLOCATOR = max(ALLOCATORS)

# What makes others do without AVX-512.  Both sides get all of it.
ONLY_AVX2 = {"ONEDNN_MAX_CPU_ISA": "AVX2", "OPENBLAS_CORETYPE": "Haswell",
             "ATEN_CPU_CAPABILITY": "avx2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"}

# Where penstock has the optimizer's state, and what else a row asks of it.
STATE_IN_RAM = ("--offload-optimizer", "cpu")
OWN_AVX2 = (*STATE_IN_RAM, "--isa", "avx2")


def in_memory(size, work):
    """At most so much RAM, the drive of the work folder for the rest."""
    return ("--host-memory", size, "--nvme-path", os.path.join(work, "state"),
            "--state-after-run", "discard")


class Setting:
    """Where things are, and the inputs that both sides share, made when first asked for."""

    def __init__(self, build, venv, work):
        self.build, self.venv, self.work = build, venv, work
        self.python = os.path.join(venv, "bin", "python3")
        self.penstock = os.path.join(build, "src", "cli", "penstock")

    def make(self, name, *command):
        """A file or directory of the work folder, by a command that writes it."""
        path = os.path.join(self.work, name)
        if not os.path.exists(path):
            os.makedirs(self.work, exist_ok=True)
            done = subprocess.run([*command], capture_output=True, text=True, check=False)
            if done.returncode:
                raise Failed(f"cannot make {path}: {done.stderr.strip().splitlines()[-1]}")
        return path

    def small(self):
        return self.make("smollm2", os.path.join(ROOT, "tools", "get-smollm2"),
                         os.path.join(self.work, "smollm2"))

    def large(self):
        return self.make("llama-1b", self.penstock, "init", "--model-config",
                         os.path.join(PEERS, "llama-1b.json"), "--dtype", "bf16",
                         "--output-dir", os.path.join(self.work, "llama-1b"))

    def tokens(self, count):
        """That many ids of the project's documents; one more, so that each has a target."""
        name = f"tokens-{count}.u16"
        return self.make(name, self.python, os.path.join(PEERS, "make_tokens.py"), self.small(),
                         os.path.join(self.work, name), str(count + 1))


def last_line(output):
    """What a peer_*.py says; libraries may have said more above it."""
    return json.loads(output.strip().split("\n")[-1])


# AdamW

def our_adamw(setting, elems, threads):
    def read(output):
        for line in map(json.loads, output.splitlines()):
            if line["name"] == "bench_adamw.tiles":
                return {"rate": line["value"]}
        raise ValueError("bench_adamw wrote no line bench_adamw.tiles")

    return Contender(OURS, [os.path.join(setting.build, "bench", "bench_adamw"), "--elements",
                            str(elems), "--threads", str(threads), "--repeats", "5"], read)


def peer_adamw(setting, how, elems, threads, pages):
    def read(output):
        return {"rate": elems / statistics.median(last_line(output)["seconds"])}

    return Contender(how + pages, [setting.python, os.path.join(PEERS, "peer_adamw.py"), "--how", how,
                                   "--elems", str(elems), "--threads", str(threads)], read,
                     {"OMP_NUM_THREADS": str(threads), **PAGES[pages]})


def adamw(setting):
    ways = [(how, pages) for how in ("torch-fused", "torch-foreach", "torch-fused-each",
                                     "torch-compiled", "deepspeed", "deepspeed-each")
            for pages in PAGES]

    def contenders(elems, threads):
        return [our_adamw(setting, elems, threads),
                *(peer_adamw(setting, how, elems, threads, pages) for how, pages in ways)]

    for elems in (100_000_000, 500_000_000):
        for threads in (1, 2):
            yield Job("adamw", {"elements": elems, "threads": threads}, {"rate": "parameters/s"},
                      functools.partial(contenders, elems, threads))


# A training step

class Steps:
    """A model, the batch of each of its steps, and how both sides are told of it."""

    def __init__(self, setting, model, batch, length, recompute=False, steps=3):
        self.setting, self.model = setting, model
        self.batch, self.length, self.recompute, self.steps = batch, length, recompute, steps

    def parameters(self):
        return {"model": self.model, "batch": self.batch, "length": self.length,
                "recompute": self.recompute}

    def model_dir(self):
        return {"smollm2": self.setting.small, "llama-1b": self.setting.large}[self.model]()

    def tokens(self):
        return self.setting.tokens(self.batch * self.length)

    def rate(self, seconds):
        return self.batch * self.length / statistics.median(seconds)

    def ours(self, name=OURS, dtype="bf16", options=STATE_IN_RAM, **more):
        run = os.path.join(self.setting.work, "run")

        def read(output):
            with open(os.path.join(run, "log.jsonl"), encoding="utf-8") as f:
                steps = [json.loads(line) for line in f]
            return {"rate": self.rate([s["step_seconds"] for s in steps[WARM_UP:]]),
                    "loss": steps[0]["loss"]}

        return Contender(name, [
            self.setting.penstock, "train", "--model", self.model_dir(), "--data", self.tokens(),
            "--output-dir", run, "--overwrite", "--max-steps", str(WARM_UP + self.steps),
            "--max-length", str(self.length), "--per-device-train-batch-size", str(self.batch),
            "--learning-rate", "1e-5", "--lr-scheduler-type", "constant", "--max-grad-norm", "0",
            "--dtype", dtype, "--recompute", "all" if self.recompute else "none",
            "--threads", "2", *options], read, **more)

    def peer(self, how, compiled=False, allocator="", environment=None, cap_bytes=0):
        def read(output):
            found = last_line(output)
            return {"rate": self.rate(found["seconds"]), "loss": found["losses"][0]}

        capped = f", at most {cap_bytes // GIB} GiB" if cap_bytes else ""
        return Contender(f"torch {how}{', compiled' * compiled}{allocator}{capped}", [
            self.setting.python, os.path.join(PEERS, "peer_step.py"), "--model", self.model_dir(),
            "--tokens", self.tokens(), "--batch", str(self.batch), "--length", str(self.length),
            "--threads", "2", "--steps", str(self.steps), "--warm-up", str(WARM_UP), "--how", how,
            *["--compile"] * compiled, *["--recompute"] * self.recompute], read,
            {"OMP_NUM_THREADS": "2", **ALLOCATORS[allocator], **(environment or {})}, cap_bytes)

    def job(self, name, ways, loss_within, ours=None):
        """ways: of the peers, arguments of peer(); ours: likewise of ours()."""
        return Job(name, self.parameters(), {"rate": "tokens/s", "peak_bytes": "bytes"},
                   lambda: [self.ours(**(ours or {})), *(self.peer(*way) for way in ways)],
                   {"loss": loss_within})


def step(setting):
    """Every way that PyTorch has on the first job; on the others those that come near its best."""
    near = [("masters", False, BEST_ALLOCATOR), ("masters", True, BEST_ALLOCATOR),
            ("masters-hooks", True, BEST_ALLOCATOR)]
    every = [("masters",), *near, ("autocast", False, BEST_ALLOCATOR),
             ("autocast", True, BEST_ALLOCATOR)]
    for batch, length, recompute in ((4, 512, False), (4, 512, True), (1, 2048, False),
                                     (1, 2048, True)):
        yield Steps(setting, "smollm2", batch, length, recompute, steps=2).job(
            "step", near if recompute or batch == 1 else every, 0.02)
    for length, recompute in ((512, False), (512, True), (2048, False), (2048, True)):
        # of PyTorch's ways only hooks fit into 24 GiB; ours may have what they take
        yield Steps(setting, "llama-1b", 1, length, recompute, steps=3).job(
            "step", near[2:], 0.02, {"options": in_memory("20GiB", setting.work)})


def memory(setting):
    """A model of 1 B parameters in 12 GiB; what PyTorch does with 20, and without a cap."""
    yield Steps(setting, "llama-1b", 1, 512, True, steps=1).job(
        "memory", [(how, False, "", None, cap) for cap in (20 * GIB, 0)
                   for how in ("masters", "masters-hooks")], 0.02,
        {"options": in_memory("11GiB", setting.work), "cap_bytes": 12 * GIB})


def avx2(setting):
    for batch, length in ((4, 512), (1, 2048)):
        yield Steps(setting, "smollm2", batch, length, steps=2).job(
            "avx2", [("fp32", compiled, BEST_ALLOCATOR, ONLY_AVX2) for compiled in (False, True)],
            0.001, {"dtype": "fp32", "options": OWN_AVX2, "environment": ONLY_AVX2})


ROWS = {"adamw": adamw, "step": step, "memory": memory, "avx2": avx2}
