#!/usr/bin/env python3
"""Placement never changes the numbers: losses, norms, rates and final weights
are equal bit for bit wherever bytes live and whoever moves them.

    test_placement.py PENSTOCK [long]

One line that makes it red: a gradient added to in another order when groups
change, a tile updated with another tile's step, a slot reused too early.
"""
import os
import re
import tempfile

from penstock import LONG, TILE, Job, Skip, engines, log, main, run, tensors, test, tier_bytes

STEPS = 50 if LONG else 20
DRIVE = ("--offload-optimizer", "nvme", "--nvme-path", "NVME")
DISCRETE = ("--host-mode", "discrete")

# What differs from "all in RAM, nothing asked for".  NVME stands for a folder
# of the run's own, NVME2 for two, MIXED for a budget that holds half the state.
PLACEMENTS = {
    "uring": (*DRIVE, *TILE, "--io-engine", "uring"),
    "threads engine": (*DRIVE, *TILE, "--io-engine", "threads"),
    "ram engine": (*DRIVE, *TILE, "--io-engine", "ram"),
    "two drives": ("--offload-optimizer", "nvme", "--nvme-path", "NVME2", *TILE),
    "gradients on disk": (*DRIVE, *TILE, "--offload-gradients", "nvme"),
    "weights on disk": (*DRIVE, *TILE, "--offload-params", "nvme"),
    "only weights on disk": ("--offload-optimizer", "cpu", "--offload-params", "nvme", "--nvme-path", "NVME"),
    "activations on disk": (*DRIVE, "--offload-activations", "nvme", "--recompute", "all"),
    "all on disk": (*DRIVE, *TILE, "--offload-params", "nvme", "--offload-gradients", "nvme",
                    "--offload-activations", "nvme", "--recompute", "2"),
    "part of the state on disk": ("--nvme-path", "NVME", "MIXED"),
    "at most 1 MiB of the state in RAM": (*TILE, "--nvme-path", "NVME", "--speculative-updates", "3", "--optimizer-host-memory", "1MiB"),
    "discrete": (*DISCRETE,),
    "discrete, small device": (*DISCRETE, "--device-memory", "SMALL"),
    "discrete, state in RAM": (*DISCRETE, "--offload-optimizer", "cpu"),
    "discrete, state on the device, groups of 1": (*DISCRETE, *TILE, "--offload-optimizer", "none", "--group-size", "1"),
    "discrete, weights in RAM": (*DISCRETE, "--offload-params", "cpu", "--offload-activations", "cpu"),
    "discrete, all on disk": (*DISCRETE, *DRIVE, *TILE, "--offload-params", "nvme", "--offload-gradients", "nvme",
                              "--offload-activations", "nvme", "--recompute", "all"),
    "groups of 1": ("--group-size", "1"),
    "groups of 2": ("--group-size", "2", *DRIVE, *TILE),
    "one group": ("--group-size", "4"),
    "groups of 2, discrete": ("--group-size", "2", *DISCRETE, "--offload-params", "cpu"),
    "groups of 1, gradients on disk": ("--group-size", "1", *DRIVE, "--offload-gradients", "nvme"),
    "recompute all": ("--recompute", "all"),
    "recompute one": ("--recompute", "1", *DISCRETE),
    "recompute none": ("--recompute", "none", *TILE),
    "logits kept, one group": ("--recompute-logits", "none", "--group-size", "4"),
    "logits kept, groups of 2, discrete": ("--recompute-logits", "none", "--group-size", "2", *DISCRETE,
                                           "--offload-params", "nvme", "--nvme-path", "NVME"),
    "logits kept in part": ("--recompute-logits", "1", *DRIVE, *TILE, "--offload-gradients", "nvme"),
    "no logits kept": ("--recompute-logits", "all", "--group-size", "3"),
    "tiles of 1.5 MiB": ("--tile-size", "1536KiB", *DRIVE),
    "tiles of 3 MiB": ("--tile-size", "3MiB"),
    "one slot of each": ("--weight-slots", "1", "--gradient-slots", "1", "--tile-slots", "1", *DRIVE, *TILE,
                         *DISCRETE, "--offload-params", "cpu"),
    "many slots": ("--weight-slots", "6", "--gradient-slots", "5", "--tile-slots", "9", *DRIVE, *TILE,
                   *DISCRETE, "--offload-params", "nvme"),
    "one request at a time": (*DRIVE, *TILE, "--io-depth", "1"),
    "1 thread, 3 update threads": ("--threads", "1", "--update-threads", "3"),
    "2 threads, 1 update thread": ("--threads", "2", "--update-threads", "1", *DRIVE),
    "3 threads": ("--threads", "3", *TILE),
    "scalar": ("--isa", "scalar", "--recompute", "1"),
    "avx2": ("--isa", "avx2", *DRIVE, *TILE),
    "avx512": ("--isa", "avx512"),
    "avx512bf16": ("--isa", "avx512bf16", "--recompute", "all"),
    "updates in place": (*DRIVE, *TILE, "--durability", "none"),
    "a commit every 3 steps": (*DRIVE, *TILE, "--commit-interval", "3"),
    "checkpoints": (*DRIVE, *TILE, "--save-steps", "4"),
    "a checkpoint under way, state in RAM": ("--save-steps", "6"),
    "trace": ("--trace", "TRACE", *DRIVE),
}

# What may change numbers: each has its own plain run.
NUMERICS = {
    "fp32, tied, 3 micro-batches": (("--dtype", "fp32", "--gradient-accumulation-steps", "3"), {}),
    "bf16, untied, 4 micro-batches": (("--dtype", "bf16", "--gradient-accumulation-steps", "4"),
                                      {"tie_word_embeddings": False, "torch_dtype": "bfloat16"}),
}

SCRATCH = tempfile.TemporaryDirectory(prefix="pen-e2e-")
JOBS = {name: Job(os.path.join(SCRATCH.name, f"job{i}"), *options, steps=STEPS, **config)
        for i, (name, (options, config)) in enumerate(NUMERICS.items())}


def resolve(job, words, folder):
    """Puts real folders and budgets where the table has names for them."""
    real = {"NVME": f"{folder}/nvme", "NVME2": f"{folder}/nvme1,{folder}/nvme2", "TRACE": f"{folder}/trace.json"}
    for name in ("nvme", "nvme1", "nvme2"):
        os.makedirs(f"{folder}/{name}", exist_ok=True)
    if "SMALL" in words:  # what all on the device takes, less half the weights
        done = run(*job.args(f"{folder}/plan", "--dry-run", *[w for w in words if w not in ("--device-memory", "SMALL")]))
        weights = sum(len(blob) for _, _, blob in tensors(job.model).values())
        real["SMALL"] = str(tier_bytes(done, "device") - weights // 2)
    words = [real.get(word, word) for word in words]
    return [*words[:-1], *job.half_state()] if words[-1:] == ["MIXED"] else words


# What the CPU must say of itself (/proc/cpuinfo) to run a level of instructions.
CPU_FLAGS = {"avx2": "avx2", "avx512": "avx512dq", "avx512bf16": "avx512_bf16"}


def cpu_has(flag):
    with open("/proc/cpuinfo", encoding="ascii") as f:
        return flag in f.read().split()


def place(name, job):
    def body(folder):
        if name in CPU_FLAGS and not cpu_has(CPU_FLAGS[name]):
            raise Skip(f"this CPU has no {CPU_FLAGS[name]}")
        if name == "uring" and name not in engines():
            raise Skip("io_uring cannot be used here")
        words = resolve(job, PLACEMENTS[name], folder)
        done = job.train(f"{folder}/run", *words)
        job.check(f"{folder}/run")
        on_drives, tiles = map(int, re.search(r"(\d+) of (\d+) tiles of state on drives", done.stderr).groups())
        if "MIXED" in PLACEMENTS[name] or "--optimizer-host-memory" in words:
            assert 0 < on_drives < tiles, f"{on_drives} of {tiles} tiles on drives: no mix\n{done.stderr}"
        elif "--offload-optimizer" in words:
            on_disk = words[words.index("--offload-optimizer") + 1] == "nvme"
            assert on_drives == (tiles if on_disk else 0), done.stderr
    return body


for number, placement in enumerate(PLACEMENTS):
    for other, (numerics, a_job) in enumerate(JOBS.items()):
        if LONG or number % len(JOBS) == other:
            function = place(placement, a_job)
            function.__name__ = f"{placement} ({numerics})".replace("#", "")
            test(function)


@test
def two_numa_nodes(folder):
    """Threads bound and memory touched as on a machine of two nodes: hwloc is told that this is one."""
    if len(os.sched_getaffinity(0)) < 2:
        raise Skip("one CPU is no two nodes")
    env = {**os.environ, "HWLOC_SYNTHETIC": "numa:2 core:1 pu:1"}
    for number, job in enumerate(JOBS.values()):
        for name, words in (("on", ()), ("off", ("--numa", "off")), ("drive", (*DRIVE, *TILE, "--threads", "3"))):
            output = f"{folder}/{name}{number}"
            done = job.train(output, *resolve(job, words, folder), env=env)
            if "built without hwloc" in done.stderr:
                raise Skip("built without hwloc")
            job.check(output)
            assert "2 cores on 2 nodes" in done.stderr, done.stderr
            assert ("where its part of memory is touched first" in done.stderr) == (name != "off"), done.stderr
            assert ("NUMA: " in done.stderr) == (name != "off"), done.stderr


@test
def the_comparison_can_fail(folder):
    """Another seed, or another rate, is seen by what the tests above compare."""
    job = next(iter(JOBS.values()))
    for words in (("--seed", "43"), ("--learning-rate", "1.0000001e-2")):
        job.train(f"{folder}/{words[1]}", *words)
        try:
            job.check(f"{folder}/{words[1]}")
        except AssertionError:
            continue
        raise AssertionError(f"{words} changed nothing")


@test
def loss_falls():
    for job in JOBS.values():
        losses = [line["loss"] for line in log(job.straight())]
        assert len(losses) == STEPS and losses[-1] < losses[0] - 1, losses


main()
