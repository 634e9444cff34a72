#!/usr/bin/env python3
"""Updates during backward never change the numbers: losses, norms and final weights
are those of updates that waited for the norm, whatever is clipped or not finite.

    test_speculate.py PENSTOCK [long]

One line that makes it red: a shadow that takes its home's place after a clipped
step, a random number drawn for another step when an update is done again.
"""
import json
import os
import re
import tempfile

from penstock import (LONG, RANDOM, Job, fail, log, main, nan_row, same_log, same_weights, succeed, test, tier_bytes,
                      wait_for)

STEPS = 200
TILE = ("--tile-size", "1")  # the smallest there is: several tiles in a layer
DRIVE = ("--offload-optimizer", "nvme", "--nvme-path", "NVME", *TILE)
ALL_ON_DISK = (*DRIVE, "--offload-params", "nvme", "--offload-gradients", "nvme")
DISCRETE = ("--host-mode", "discrete")
PLACEMENTS = {
    "RAM": TILE,
    "drive": DRIVE,
    "part on a drive": ("--nvme-path", "NVME", "MIXED"),
    "all on disk": ALL_ON_DISK,
    "gradients on disk, groups of 1": ("--offload-gradients", "nvme", "--nvme-path", "NVME", *TILE, "--group-size", "1"),
    "discrete, state in RAM": (*DISCRETE, "--offload-optimizer", "cpu", *TILE),
    "discrete, all on disk": (*DISCRETE, *ALL_ON_DISK),
    "a commit every 3 steps, checkpoints": (*DRIVE, "--commit-interval", "3", "--save-steps", "30"),
    "3 threads, 1 slot of each": (*DRIVE, "--update-threads", "3", "--weight-slots", "1", "--gradient-slots", "1",
                                  "--tile-slots", "1"),
}
MODEL = os.path.join(os.environ["PEN_ROOT"], "tests/plan/models/qwen2.5-7b.json")
MACHINE = ("--gpu", "h200", "--cores", "64", "--ram", "512GiB", "--memory-bandwidth", "400GB/s", "--offload-optimizer", "cpu",
           "--max-length", "1024", "-b", "8", "--gradient-accumulation-steps", "2")
FORMATS = ("fp32", "split32", "bf16", "int8")
SHARES = ("all", "2", "1")
SCRATCH = tempfile.TemporaryDirectory(prefix="pen-e2e-")


def make_job(name, dtype, *options):
    return Job(os.path.join(SCRATCH.name, name), "--gradient-accumulation-steps", "2", "--dtype", dtype, *options,
               steps=STEPS, data_bytes=1400, tie_word_embeddings=False)


def norms(job):
    return sorted(line["grad_norm"] for line in log(job.straight()) if line.get("grad_norm"))


# Clipping that is never asked for, that one step in ten triggers, and all of them; and in data with NaN.
JOBS = {"never": make_job("never", "bf16", "--max-grad-norm", "0")}
TENTH = str(norms(JOBS["never"])[STEPS * 9 // 10])
JOBS["sometimes"] = make_job("sometimes", "bf16", "--max-grad-norm", TENTH)
JOBS["always"] = make_job("always", "bf16", "--max-grad-norm", "1e-3")
JOBS["not finite"] = make_job("nan", "fp32", "--max-grad-norm", TENTH, "--max-skips", "1000")
nan_row(JOBS["not finite"].model, ord("z"))
with open(JOBS["not finite"].data, "r+b") as f:
    f.seek(500)
    f.write(b"z")
PLAIN = {}


def plain(job, state):
    """The run that a format's other ones are held against: nothing is early."""
    if (job, state) not in PLAIN:
        PLAIN[job, state] = job.path(f"plain-{state}")
        job.train(PLAIN[job, state], "--state-format", state)
    return PLAIN[job, state]


def outcomes(done):
    found = re.search(r"early updates: of (\d+) steps stood, (\d+) done again, (\d+) discarded, (\d+) left out",
                      done.stderr)
    assert found, done.stderr
    return [int(n) for n in found.groups()]


def resolve(job, words, folder):
    os.makedirs(f"{folder}/nvme", exist_ok=True)
    words = [f"{folder}/nvme" if word == "NVME" else word for word in words]
    return [*words[:-1], *job.half_state()] if words[-1:] == ["MIXED"] else words


def place(clip, state, placement, share):
    def body(folder):
        job, output = JOBS[clip], f"{folder}/run"
        done = job.train(output, "--state-format", state, "--speculative-updates", share,
                         *resolve(job, PLACEMENTS[placement], folder))
        same_log(output, plain(job, state))
        same_weights(output, plain(job, state))
        stood, again, discarded, left = outcomes(done)
        assert stood + again + discarded + left == STEPS, done.stderr
        if clip == "never":
            assert stood == STEPS, done.stderr
        elif clip == "always":
            assert (stood, again, left) == (0, 4, STEPS - 4), done.stderr
        else:
            assert stood > STEPS // 4 and again > 2, done.stderr
        assert (discarded > 0) == (clip == "not finite"), done.stderr
        with open(f"{output}/log.jsonl", encoding="utf-8") as lines:
            told = [json.loads(line) for line in lines]
        told = [line for line in told if "speculation" in line]
        assert [sum(line["speculation"] == word for line in told) for word in ("stood", "redone", "discarded")] == \
            [stood, again, discarded], done.stderr
        assert (told[-1]["updates_redone"], told[-1]["updates_discarded"]) == (again, discarded), told[-1]
    body.__name__ = f"clipped {clip}, {state}, {placement}, {share}"
    return test(body)


for number, a_placement in enumerate(PLACEMENTS):
    for other, a_clip in enumerate(JOBS):
        for third, a_state in enumerate(FORMATS):
            if a_clip == "not finite" and a_state != "fp32":
                continue
            often = {"never": 3, "sometimes": 1, "always": 6, "not finite": 2}[a_clip]
            turn = a_clip == "not finite" or (number + other) % len(FORMATS) == third
            if LONG or (turn and number % often == 0):
                place(a_clip, a_state, a_placement, SHARES[(number + third) % 3])


@test
def wear_is_as_planned(folder):
    """A step writes what the plan says, and one that is done again as much more as that says."""
    job = JOBS["always"]
    place_options = resolve(job, DRIVE, folder)
    early = ("--speculative-updates", "all")
    bare = {**os.environ, "HOME": folder, "XDG_CONFIG_HOME": folder}  # no profile of this machine
    drives = json.loads(succeed("plan", *job.options, *place_options, *early, "-o", "json", env=bare).stdout)["drives"]
    assert drives["redone_bytes"] > 0, drives
    job.train(f"{folder}/run", *place_options, *early, env=bare)
    with open(f"{folder}/run/log.jsonl", encoding="utf-8") as f:
        written = [json.loads(line)["nvme_written_bytes"] for line in f]
    steps = [b - a for a, b in zip(written, written[1:])]
    manifest = steps[-1] - drives["written_bytes_per_step"]  # of a step without early updates, as are the last ones
    assert 0 <= manifest <= 65536, (manifest, drives)
    # The first four are early: the second and the third do the last one's again, too.
    assert steps[0] == steps[1] == steps[2] == steps[-1] + drives["redone_bytes"], (steps[:6], drives)


@test
def memory_is_as_planned(folder):
    """Shadows are rows of the plan; what has no room for them is told so, with exit code 3."""
    job = JOBS["never"]
    words = [*resolve(job, TILE, folder), "--recompute", "none", "--recompute-logits", "none", "--group-size", "1"]
    without = succeed(*job.args(f"{folder}/a", "--dry-run", *words))
    early = succeed(*job.args(f"{folder}/a", "--dry-run", *words, "--speculative-updates", "all"))
    more = tier_bytes(early, "host") - tier_bytes(without, "host")
    rows = re.findall(r"^ +([\d.]+) (\w+) +(optimizer state|weights) updated early", early.stderr, re.M)
    assert len(rows) == 2, early.stderr
    assert more > 12 * 3 * 100000, more
    fail(3, "does not fit", *job.args(f"{folder}/a", "--dry-run", *words, "--speculative-updates", "all", "--host-memory",
                                      str(tier_bytes(early, "host") - 1)))


@test
def after_backward_is_the_same(folder):
    """The other way round, for comparison: each update at the end of its own step."""
    job = JOBS["sometimes"]
    for number, words in enumerate((TILE, DRIVE, (*DISCRETE, *ALL_ON_DISK))):
        output = f"{folder}/{number}"
        job.train(output, "--update-after-backward", *resolve(job, words, folder))
        same_log(output, job.straight())
        same_weights(output, job.straight())
    fail(2, ("--update-after-backward", "--speculative-updates"),
         *job.args(f"{folder}/a", "--update-after-backward", "--speculative-updates", "all"))


@test
def what_is_exposed_is_planned():
    """Where updates take about as long as backward, early ones hide more than lazy ones, and these more than none."""
    told = {}
    for words in ((), ("--speculative-updates", "auto"), ("--update-after-backward",)):
        done = succeed("plan", "--model", MODEL, *MACHINE, "-o", "json", *words)
        told[words[:1]] = plan = json.loads(done.stdout)
        time = plan["time"]
        assert 0 <= time["exposed_update_seconds"] < time["seconds_per_step"], time
    lazy, early, after = (plan["time"]["seconds_per_step"] for plan in told.values())
    assert early < 0.9 * lazy and lazy < 0.9 * after, (lazy, early, after)
    assert told["--speculative-updates",]["time"]["exposed_update_seconds"] < 0.05 * early, told
    assert [plan["speculative_blocks"] > 0 for plan in told.values()] == [False, True, False], told


@test
def resumed_with_and_without(folder):
    """A run that is killed goes on early where it was not, and the other way round."""
    job, output = JOBS["sometimes"], f"{folder}/run"
    words = resolve(job, DRIVE, folder)

    def steps():
        try:
            return len(log(output))
        except (FileNotFoundError, json.JSONDecodeError):
            return 0
    for share, until in (("all", 40), ("none", 80), ("2", 120), ("all", 160)):
        process = job.start(output, *words, "--speculative-updates", share, "--resume")
        assert wait_for(lambda end=until: steps() >= end, process), f"it ended before step {until}"
        process.kill()
        process.wait()
    job.train(output, *words, "--speculative-updates", RANDOM.choice(SHARES), "--resume")
    same_log(output, job.straight())
    same_weights(output, job.straight())


main()
