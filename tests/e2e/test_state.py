#!/usr/bin/env python3
"""Every state format trains to the same bits wherever its tiles and halves lie,
straight through or killed and resumed; the exact ones to the bits of fp32.

    test_state.py PENSTOCK [long]

One line that makes it red: halves taken from the tile where the weights are
newer, a checkpoint without them, a random number drawn by tile and not by
element.
"""
import json
import os
import re
import shutil
import struct
import tempfile
import time

from penstock import (LONG, RANDOM, Job, fail, log, main, nan_row, run, same_log, same_tensors, same_weights, succeed,
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
    "a commit every 5 steps": (*DRIVE, *TILE, "--commit-interval", "5"),
    "a commit every 3 steps, early updates": (*DRIVE, *TILE, "--commit-interval", "3", "--speculative-updates", "all"),
    "checkpoints": ("--save-steps", "4", *TILE),
}
UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20}
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
SELDOM = ("a drive, a commit every 3 steps", (*DRIVE, *TILE, "--commit-interval", "3"))
for of, a_state in enumerate(FORMATS):
    for number, (storage, storage_words) in enumerate((*STORAGES, SELDOM)):
        if not LONG and number not in (of, len(STORAGES)):
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


def state_of(folder, run):
    """Master weights and both moments of a finished run, by name, as lists of numbers."""
    succeed("export", run, "-o", f"{folder}/out", "--with-optimizer", "--overwrite")
    return [{name: [x for x, in struct.iter_unpack("<f", blob)]
             for name, (_, _, blob) in tensors(f"{folder}/out/{kind}.safetensors").items()}
            for kind in ("master_weights", "exp_avg", "exp_avg_sq")]


def rounded(kind, state, old, new):
    """Is every number what the format keeps of the old one?  A moment in int8 is half a code away, of the largest."""
    for name, values in old.items():
        most = max(map(abs, values))
        for was, now in zip(values, new[name]):
            far = {"bf16": abs(was) * 2 ** -8 if kind else 0,
                   "int8": most * 0.008 if kind else abs(was) * 2 ** -16}.get(state, 0)
            assert abs(was - now) <= far, f"{name}: {was} became {now} in {state}"


CONSTANT = ("--lr-scheduler-type", "constant")
CHANGES = (("fp32", "int8"), ("int8", "fp32"), ("split32", "bf16"), ("bf16", "int8"), ("int8", "bf16"))
ROUNDS = {"bf16": ("moments to bf16",), "int8": ("moments to 8-bit codes", "24 bits")}


def formats(output):
    """Of a run's state, and what it is being changed to, as the run's folder has it."""
    with open(f"{output}/run.json", encoding="utf-8") as f:
        told = json.load(f)
    return told["numerics"].get("state_format", "fp32"), told.get("state_becomes")


def convert(job, first, then):
    """On resume, if an option says so: what the new format keeps is unchanged, the rest rounded to nearest, which is
    said; then the run goes on with the new format's numbers, wherever it lies, also if it is killed while it changes."""
    def body(folder):
        drive = [*resolve(job, (*DRIVE, *TILE), folder), *CONSTANT]
        change = ("--state-format", then, "--convert-state", "--resume")
        for where, words in (("drive", drive), ("ram", (*TILE, *CONSTANT))):
            job.train(f"{folder}/{where}", *words, "--state-format", first, "--max-steps", 6, "--save-steps", 6)
        shutil.copytree(f"{folder}/ram", f"{folder}/cut")
        before = state_of(folder, f"{folder}/drive")
        fail(1, ("--state-format", "--convert-state"), *job.args(f"{folder}/drive", *drive, "--state-format", then, "--resume"))
        done = job.train(f"{folder}/drive", *drive, *change, "--max-steps", 6)
        said = next(line for line in done.stderr.splitlines() if f"state in {first} becomes {then}" in line)
        assert all(word in said for word in ROUNDS.get(then, ("exactly",))), said
        for kind, (old, new) in enumerate(zip(before, state_of(folder, f"{folder}/drive"))):
            rounded(kind, then, old, new)
        if then in ROUNDS:
            assert before != state_of(folder, f"{folder}/drive"), "nothing was rounded"
        for where, words in (("drive", (*drive, "--resume")), ("ram", (*TILE, *CONSTANT, *change)),):
            done = job.train(f"{folder}/{where}", *words)
            assert "becomes" not in done.stderr or where == "ram", done.stderr
            assert then == "fp32" or f" {then}," in done.stderr, done.stderr
        same_log(f"{folder}/drive", f"{folder}/ram")
        same_weights(f"{folder}/drive", f"{folder}/ram")
        assert formats(f"{folder}/cut") == (first, None)
        cuts = 0
        for fault in ("kill=0", "cut=0", "cut=4", "cut=12", "cut=20", "cut=28", "cut=36"):
            ended = run(*job.args(f"{folder}/cut", *drive, *change, "--io-engine", f"fault:threads,{fault}"))
            told = formats(f"{folder}/cut")
            assert told == (first, then) or told == (then, None) and not fault.endswith("=0"), f"{fault}: {told}"
            cuts += ended.returncode > 0
        assert cuts > 2, "power was not cut"
        job.train(f"{folder}/cut", *drive, "--resume")  # goes on changing
        assert formats(f"{folder}/cut") == (then, None)
        same_log(f"{folder}/cut", f"{folder}/ram")
        same_weights(f"{folder}/cut", f"{folder}/ram")
    body.__name__ = f"{first} becomes {then} on resume"
    return body


for number, (a_first, a_then) in enumerate(CHANGES):
    test(convert(JOBS[number % len(JOBS)], a_first, a_then))


def nan_job():
    """Some of its steps are skipped."""
    job = Job(os.path.join(SCRATCH.name, "nan"), "--dtype", "bf16", "--max-skips", "1000", "--lr-scheduler-type", "constant",
              steps=10, torch_dtype="bfloat16", tie_word_embeddings=False)
    nan_row(job.model, ord("z"))
    with open(job.data, "r+b") as f:
        for at in range(100, 1400, 150):
            f.seek(at)
            f.write(b"z")
    return job


@test
def a_commit_after_skipped_steps_is_whole(folder):
    """Steps without a commit leave halves out; one that commits and is skipped adds them, and so does a save with
    nothing to apply: what an evaluation before it has applied."""
    job = nan_job()
    for state in FORMATS:
        name, ends = f"{folder}/{state}", set()
        job.train(f"{name}-ram", "--state-format", state, "--save-steps", 1, "--save-total-limit", 100)
        skipped = [line["loss"] is None for line in log(f"{name}-ram")]
        for steps in range(4, 10):
            output, words = f"{name}-{steps}", resolve(job, (*DRIVE, *TILE), f"{name}-{steps}-nvme")
            words += ["--state-format", state, "--commit-interval", 100, "--data", job.data, "--save-steps", 2,
                      "--eval-steps", 2, "--eval-data", job.data]
            job.train(output, *words, "--max-steps", steps)
            step = steps // 2 * 2
            for which, run_of in (("out", output), ("want", f"{name}-ram")):
                succeed("export", f"{run_of}/checkpoint-{step}", "-o", f"{output}-{which}", "--with-optimizer")
            for kind in ("master_weights", "exp_avg", "exp_avg_sq"):
                same_tensors(*(tensors(f"{output}-{which}/{kind}.safetensors") for which in ("out", "want")), kind)
            ends.add(skipped[steps - 1])
            job.train(output, *words, "--resume")
            same_weights(output, f"{name}-ram")
        assert ends == {False, True}, skipped


@test
def between_commits_halves_are_not_written(folder):
    """10, 6 and 3 bytes a parameter, and two more where a step commits; the plan says so."""
    job = JOBS[0]
    n = sum(len(blob) // 2 for _, _, blob in tensors(f"{straight(job, 'fp32')}/model").values())
    for state, least in (("split32", 10), ("bf16", 6), ("int8", 3.125)):
        words = resolve(job, (*DRIVE, *TILE), f"{folder}/{state}-nvme")
        job.train(f"{folder}/{state}", "--state-format", state, *words, "--commit-interval", 4)
        with open(f"{folder}/{state}/log.jsonl", encoding="utf-8") as f:
            written = [json.loads(line)["nvme_written_bytes"] for line in f]
        steps = {step + 1: (written[step] - written[step - 1]) / n for step in range(2, STEPS)}
        for step, got in steps.items():  # a step applies the update of the one before
            want = least + 2 * (step % 4 == 1)
            assert want <= got < 1.1 * want, f"{state}: {got} bytes a parameter in step {step}, not {want}"
        for interval, want in ((1, least + 2), (4, least + 0.5)):
            done = job.train(f"{folder}/{state}-{interval}", "--state-format", state, *words, "--commit-interval", interval,
                             "--dry-run")
            number, unit = re.search(r"drives: ([0-9.]+) (\w+) written per step", done.stderr).groups()
            got = float(number) * UNITS[unit] / n
            assert 0.99 * want < got < 1.1 * want, f"{state}: {got} planned, not {want}"


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
    for words in (("--resume",), ("--state-format", "int8")):
        fail(2, ("--convert-state needs", "--resume", "--state-format"),
             *job.args(f"{folder}/a", "--convert-state", *words))
    assert not os.path.exists(f"{folder}/a")


main()
