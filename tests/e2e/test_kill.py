#!/usr/bin/env python3
"""Killed at any moment and continued, a run ends in the same bits.

    test_kill.py PENSTOCK [long]

Moments are drawn from PEN_SEED, and taken on purpose in a checkpoint and in
the export.  One line that makes it red: an extent freed before the manifest is
durable, a cursor saved one step off, a log that is not cut back.
"""
import json
import os
import re
import tempfile
import time

from penstock import (LONG, RANDOM, TILE, Job, main, same_log, same_tensors, same_weights, succeed, tensors,
                      test, text, wait_for)

KILLS = 12 if LONG else 3  # of each kind of storage
SCRATCH = tempfile.TemporaryDirectory(prefix="pen-e2e-")
OPTIONS = ("--gradient-accumulation-steps", "2", "--save-steps", "4", "--eval-steps", "3", "--eval-data",
           os.path.join(SCRATCH.name, "held-out.txt"))
JOB = Job(os.path.join(SCRATCH.name, "job"), *OPTIONS, steps=24)
EXPERTS = Job(os.path.join(SCRATCH.name, "experts"), *OPTIONS, steps=24, model_type="mixtral", intermediate_size=96,
              num_local_experts=6, output_router_logits=True)
with open(os.path.join(SCRATCH.name, "held-out.txt"), "wb") as f:
    f.write(text(300, seed=2))
STORAGE = {
    "all on a drive": lambda folder: ("--offload-optimizer", "nvme", "--nvme-path", f"{folder}/nvme", *TILE),
    "all in RAM": lambda folder: TILE,
    "a commit every 3 steps": lambda folder: ("--offload-optimizer", "nvme", "--nvme-path", f"{folder}/nvme", *TILE,
                                              "--commit-interval", "3"),
    "updated in place": lambda folder: ("--offload-optimizer", "nvme", "--nvme-path", f"{folder}/nvme", *TILE,
                                        "--durability", "none"),
    "early updates on a drive": lambda folder: ("--speculative-updates", "all", "--offload-optimizer", "nvme",
                                                "--nvme-path", f"{folder}/nvme", *TILE),
    "early updates in RAM": lambda folder: ("--speculative-updates", "all", *TILE),
    "part on a drive": lambda folder: ("--nvme-path", f"{folder}/nvme", *JOB.half_state()),
}
# Of a mixture of experts, those that are routed to alone fetched from the drive.
STORAGE_OF_EXPERTS = {
    "experts on a drive": lambda folder: ("--offload-params", "nvme", *STORAGE["all on a drive"](folder)),
}


def straight(job):
    return job.straight("--save-total-limit", "99")


def logged_step(output):
    """Last step with a training line; a torn last line is none."""
    last = 0
    try:
        with open(os.path.join(output, "log.jsonl"), encoding="utf-8") as f:
            for line in f:
                if line.endswith("\n") and '"loss"' in line:
                    last = json.loads(line)["step"]
    except FileNotFoundError:
        pass
    return last


def look_around(job, output):
    """Whatever has the name of something whole is whole, and is the right one."""
    for name in os.listdir(output) if os.path.isdir(output) else ():
        path = os.path.join(output, name)
        if re.fullmatch(r"checkpoint-\d+|model", name):
            succeed("verify", path)
            same_tensors(tensors(path), tensors(os.path.join(straight(job), name)), path)


def kill_at(job, output, options, moment):
    """Starts or resumes, kills at the moment, and says whether it was in time."""
    process = job.start(output, *options, "--resume")
    name, delay = moment
    if name:
        wait_for(lambda: os.path.isdir(output) and any(re.fullmatch(name, n) for n in os.listdir(output)), process)
    time.sleep(delay)
    process.kill()
    return process.wait() < 0


def moments(seconds):
    """First inside a checkpoint and the export, a third of all; then at any time."""
    for number in range(8 * KILLS):
        if number < max(2, KILLS // 3):
            yield (r"checkpoint-\d+\.tmp", r"model\.tmp")[number % 2], RANDOM.uniform(0, 0.005)
        else:
            yield None, RANDOM.uniform(0, seconds)


def finish(job, output, options, before):
    """Goes on to the end, and holds everything against the plain run."""
    process = job.start(output, *options, "--resume")
    status = process.wait(timeout=120)
    with open(f"{output}.said", encoding="utf-8") as f:
        said = f.read()
    assert status == 0, said
    resumed = [int(n) for n in re.findall(r"resuming after step (\d+)", said)]
    if options[-2:] == TILE and "--offload-optimizer" in options and before:
        assert resumed and resumed[-1] >= before - 2, f"step {before} was logged\n{said}"
    same_log(output, straight(job))
    same_weights(output, straight(job))
    look_around(job, output)
    left = [name for name in os.listdir(output) if ".tmp" in name or name.startswith("removed")]
    assert not left, f"left behind: {left}"


def kill_and_resume(job, place):
    def body(folder):
        options, kills, runs = place(folder), 0, 0
        straight(job)
        begin = time.monotonic()
        job.train(f"{folder}/whole", *options)
        for moment in moments(time.monotonic() - begin):
            in_time = kill_at(job, f"{folder}/run{runs}", options, moment)
            look_around(job, f"{folder}/run{runs}")
            kills += in_time
            if not in_time or kills == KILLS:
                finish(job, f"{folder}/run{runs}", options, logged_step(f"{folder}/run{runs}"))
                runs += 1
            if kills == KILLS:
                return
        raise AssertionError(f"only {kills} kills came in time")
    return body


for a_job, storages in ((JOB, STORAGE), (EXPERTS, STORAGE_OF_EXPERTS)):
    for storage, where in storages.items():
        function = kill_and_resume(a_job, where)
        function.__name__ = f"killed {KILLS} times, {storage}"
        test(function)


@test
def a_finished_run_that_is_resumed_stays_finished(folder):
    job = Job(os.path.join(folder, "job"), steps=6)
    options = ("--offload-optimizer", "nvme", "--nvme-path", job.path("nvme"), *TILE, "--resume")
    output = job.path("run")
    job.train(output, *options)
    for _ in range(3):  # each writes the model again, and commits with it
        done = job.train(output, *options)
        assert "resuming after step 6" in done.stderr, done.stderr
    job.straight()
    job.check(output)


main()
