#!/usr/bin/env python3
"""Every state format trains to the same bits wherever its tiles and halves lie,
straight through or killed and resumed; the exact ones to the bits of fp32.

    test_state.py PENSTOCK [long]

One line that makes it red: halves taken from the tile where the weights are
newer, a checkpoint without them, a random number drawn by tile and not by
element.
"""
import os

import tempfile
import time

from penstock import (LONG, RANDOM, Job, fail, log, main, same_log, same_tensors, same_weights, succeed,
                      tensors, test, tier_bytes)

STEPS = 24 if LONG else 12
KILLS = 8 if LONG else 2
FORMATS = ("split32", "bf16", "int8")
EXACT = ("split32",)
TILE = ("--tile-size", "1")  # the smallest there is: several tiles in a layer
DRIVE = ("--offload-optimizer", "nvme", "--nvme-path", "NVME")
DISCRETE = ("--host-mode", "discrete")
ALL_ON_DISK = (*DRIVE, *TILE, "--offload-params", "nvme", "--offload-gradients", "nvme")

# Where halves are weights in RAM and where they are parts of tiles, and tiles of
# other sizes, since a tile is no unit of any number.
PLACEMENTS = {
    "RAM, small tiles": TILE,
    "drive": (*DRIVE, *TILE),
    "drive, large tiles": DRIVE,
    "part on a drive": ("--nvme-path", "NVME", "MIXED"),
    "all on disk": ALL_ON_DISK,
    "weights on disk, state in RAM": ("--offload-optimizer", "cpu", "--offload-params", "nvme", "--nvme-path", "NVME"),
    "discrete": DISCRETE,
    "discrete, state on disk": (*DISCRETE, *DRIVE, *TILE),
    "discrete, all on disk": (*DISCRETE, *ALL_ON_DISK),
    "scalar, 3 update threads": ("--isa", "scalar", "--update-threads", "3", *TILE),
    "avx2": ("--isa", "avx2", *DRIVE),
    "updated in place": (*DRIVE, *TILE, "--durability", "none"),
    "checkpoints": ("--save-steps", "4", *TILE),
}
SCRATCH = tempfile.TemporaryDirectory(prefix="pen-e2e-")


def make_job(name, *options):
    return Job(os.path.join(SCRATCH.name, name), "--gradient-accumulation-steps", "2", "--dtype", "bf16", *options,
               steps=STEPS, tie_word_embeddings=name != "untied", torch_dtype="bfloat16")


JOBS = [make_job("tied"), make_job("untied")]
PLAIN = {}


def straight(job, state):
    """The plain run of a format, or of the one whose bits it has to have."""
    state = "fp32" if state in EXACT else state
    if (job, state) not in PLAIN:
        PLAIN[job, state] = job.path(f"straight-{state}")
        job.train(PLAIN[job, state], "--state-format", state)
    return PLAIN[job, state]


def check(job, state, output):
    same_log(output, straight(job, state))
    same_weights(output, straight(job, state))


def resolve(job, words, folder):
    os.makedirs(f"{folder}/nvme", exist_ok=True)
    words = [f"{folder}/nvme" if word == "NVME" else word for word in words]
    return [*words[:-1], *job.half_state()] if words[-1:] == ["MIXED"] else words


def place(job, state, words):
    def body(folder):
        job.train(f"{folder}/run", "--state-format", state, *resolve(job, words, folder))
        check(job, state, f"{folder}/run")
    return body


for of, a_state in enumerate(FORMATS):
    for number, placement in enumerate(PLACEMENTS):
        for other, a_job in enumerate(JOBS):
            if LONG or (number % len(JOBS) == other and (number + of) % len(FORMATS)):
                function = place(a_job, a_state, PLACEMENTS[placement])
                function.__name__ = f"{a_state}: {placement}"
                test(function)


def kill_and_resume(job, state, words):
    """Killed at random moments; what goes on elsewhere moves its state."""
    def body(folder):
        here, kills, runs = resolve(job, words, folder), 0, 0
        there = resolve(job, TILE if words == DRIVE else (*DRIVE, *TILE), folder)
        begin = time.monotonic()
        job.train(f"{folder}/whole", "--state-format", state, *here, "--save-steps", "3")
        seconds = time.monotonic() - begin
        while kills < KILLS:
            output = f"{folder}/run{runs}"
            assert runs < 8 * KILLS, f"only {kills} kills came in time"
            process = job.start(output, "--state-format", state, *here, "--save-steps", "3", "--resume")
            time.sleep(RANDOM.uniform(0, seconds))
            process.kill()
            if process.wait() < 0:
                kills += 1
            if kills % 2 and os.path.exists(f"{output}/run.json"):  # the run knows its format
                job.train(output, *there, "--save-steps", "3", "--resume")
                check(job, state, output)
                runs += 1
        job.train(f"{folder}/run{runs}", "--state-format", state, *here, "--save-steps", "3", "--resume")
        check(job, state, f"{folder}/run{runs}")
    return body


STORAGES = (("RAM", TILE), ("a drive", DRIVE), ("drives alone", ALL_ON_DISK))
for of, a_state in enumerate(FORMATS):
    for number, (storage, storage_words) in enumerate(STORAGES):
        if not LONG and of != number:
            continue
        function = kill_and_resume(JOBS[0], a_state, storage_words)
        function.__name__ = f"{a_state} killed on {storage}"
        test(function)


@test
def exact_formats_may_be_changed_on_resume(folder):
    """Only if the option says so; the run goes on in the new one from then on."""
    job, output = JOBS[0], f"{folder}/run"
    drive = resolve(job, (*DRIVE, *TILE), folder)
    states = ("split32", None, "fp32", None, "split32")
    for n, state in enumerate(states):
        words = ("--state-format", state) if state else ()
        done = job.train(output, *drive, *words, "--max-steps", STEPS * (n + 1) // len(states), "--resume",
                         "--lr-scheduler-type", "constant")
        kept = state or states[n - 1]
        assert (" split32," in done.stderr) == (kept == "split32"), done.stderr
    job.train(f"{folder}/straight", "--lr-scheduler-type", "constant")
    same_log(output, f"{folder}/straight")
    same_weights(output, f"{folder}/straight")


@test
def the_exported_state_is_the_same(folder):
    """Master weights and moments of a finished run and of a checkpoint, in fp32."""
    job = JOBS[0]
    for name, words in (("drive", (*DRIVE, *TILE)), ("RAM", TILE)):
        for state in ("fp32", "split32"):
            output = f"{folder}/{name}-{state}"
            job.train(output, "--state-format", state, *resolve(job, words, f"{folder}/{state}-{name}"),
                      "--save-steps", STEPS)
            succeed("export", f"{output}/checkpoint-{STEPS}", "-o", f"{output}-out", "--with-optimizer")
        for kind in ("master_weights", "exp_avg", "exp_avg_sq"):
            a, b = (tensors(f"{folder}/{name}-{state}-out/{kind}.safetensors") for state in ("split32", "fp32"))
            same_tensors(a, b, kind)


@test
def bytes_are_as_the_plan_says(folder):
    """State in RAM is as small as promised, and reading and writing it too."""
    job = JOBS[0]
    n = sum(len(blob) // 2 for _, _, blob in tensors(f"{straight(job, 'fp32')}/model").values())
    totals = {}
    for state in ("fp32", *FORMATS):
        done = job.train(f"{folder}/{state}", "--state-format", state, "--dry-run", *TILE)
        totals[state] = tier_bytes(done, "host")
    least = {"split32": 1.9, "bf16": 5.8, "int8": 8.6}  # of 14 bytes: 12, 8, 5.1, but for padding
    for state in FORMATS:
        assert totals["fp32"] - totals[state] > least[state] * n, (totals, n)


@test
def what_cannot_be_is_said_in_one_line(folder):
    job = JOBS[0]
    fail(2, ("--state-format split32", "--dtype bf16"), *job.args(f"{folder}/a", "--state-format", "split32", "--dtype",
                                                                 "fp32"))
    job.train(f"{folder}/int8", "--state-format", "int8", "--max-steps", "2")
    for state in ("fp32", "bf16"):
        fail(1, ("--state-format", state, "int8"), *job.args(f"{folder}/int8", "--state-format", state, "--resume"))
    fail(2, ("state-format", "split32"), *job.args(f"{folder}/a", "--state-format", "split16"))
    assert not os.path.exists(f"{folder}/a")


main()
