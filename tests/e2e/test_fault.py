#!/usr/bin/env python3
"""Drives that fail at the n-th request, and power that is cut there: a run stops
cleanly or goes on, and what was committed continues to the same bits.

    test_fault.py PENSTOCK [long]

Every n in `long`, a spread of them otherwise.  One line that makes it red: a
manifest written before the data is synced, a failed write believed, a short
transfer taken for a whole one.
"""
import functools
import os
import re
import tempfile

from penstock import (LONG, RANDOM, SEED, TILE, Job, engines, log, main, nan_row, run, same_log, same_weights, succeed,
                      test)

SCRATCH = tempfile.TemporaryDirectory(prefix="pen-e2e-")
JOB = Job(os.path.join(SCRATCH.name, "job"), "--save-steps", "2", steps=5)
ENGINES = engines()


def early_job():
    """Updated during backward: of its steps some stand, some are done again, some are discarded."""
    job = Job(os.path.join(SCRATCH.name, "early"), "--save-steps", "3", "--batch-size", "1", "--max-grad-norm", "0",
              steps=7, data_bytes=300, tie_word_embeddings=False)
    job.train(job.path("look"))
    norms = sorted(line["grad_norm"] for line in log(job.path("look")) if line.get("grad_norm"))
    job.options[job.options.index("--max-grad-norm") + 1] = str(norms[5])
    nan_row(job.model, ord("z"))
    with open(job.data, "r+b") as f:
        f.seek(105)
        f.write(b"z")
    job.more = ("--speculative-updates", "all")
    return job


def halves_job():
    """Steps between commits write tiles without their halves, some of those that commit are skipped."""
    job = Job(os.path.join(SCRATCH.name, "halves"), "--save-steps", "3", "--batch-size", "1", "--dtype", "bf16",
              "--state-format", "int8", steps=7, data_bytes=300, tie_word_embeddings=False)
    nan_row(job.model, ord("z"))
    with open(job.data, "r+b") as f:
        f.seek(70)
        f.write(b"z")
        f.seek(240)
        f.write(b"z")
    job.more = ("--commit-interval", "2")
    return job


def options(job, folder, engine, *faults):
    drive = ("--offload-optimizer", "nvme", "--offload-gradients", "nvme", "--nvme-path", f"{folder}/nvme")
    spec = ",".join([f"fault:{engine}", f"seed={SEED}", *faults]) if faults else engine
    return (*drive, *TILE, *getattr(job, "more", ()), "--io-engine", spec)


def attempt(job, output, *words):
    return run(*job.args(output, *words, "--resume"), timeout=20)


@functools.lru_cache
def n_requests(job, engine):
    """Requests of a whole run: the first number at which no fault comes."""
    folder, low, high = job.path(engine), 0, 1024
    os.makedirs(folder)
    while low < high:
        middle = (low + high) // 2
        output = f"{folder}/count{middle}"
        if attempt(job, output, *options(job, output, engine, f"eio={middle}")).returncode:
            low = middle + 1
        else:
            high = middle
    assert 50 < low < 1024, f"{low} requests"
    return low


def numbers(n, share):
    """Every number in `long`; else the first, the last, and some between."""
    if LONG:
        return range(n)
    picked = {0, 1, 2, n - 2, n - 1}
    while len(picked) < share:
        picked.add(RANDOM.randrange(n))
    return sorted(picked)


def stopped_cleanly(done, what):
    lines = done.stderr.splitlines()
    assert done.returncode == 1, f"{what}: status {done.returncode}\n{done.stderr}"
    errors = [line for line in lines if line.startswith("error:")]
    assert len(errors) == 1 and lines[-1] == errors[0], f"{what}: not one last line of error\n{done.stderr}"


def continues(job, output, engine, what):
    done = attempt(job, output, *options(job, output, engine))
    assert done.returncode == 0, f"{what}: resume has status {done.returncode}\n{done.stderr}"
    same_log(output, job.straight())
    same_weights(output, job.straight())


def fails_at_every(job, kind, share):
    def body(folder):
        for number, engine in enumerate(ENGINES):
            n = n_requests(job, engine)
            for at in numbers(n, share)[number::1 if LONG else 2]:
                what = f"{engine}, {kind} at request {at} of {n}"
                output = f"{folder}/{engine}{at}"
                stopped_cleanly(attempt(job, output, *options(job, output, engine, f"{kind}={at}")), what)
                continues(job, output, engine, what)
    which = {EARLY: ", early updates", HALVES: ", commits of halves"}.get(job, "")
    body.__name__ = f"{kind} at the n-th request{which}"
    return test(body)


EARLY, HALVES = early_job(), halves_job()
for fault, wanted, wanted_early, wanted_halves in (("cut", 25, 12, 12), ("eio", 10, 6, 4), ("enospc", 8, 6, 4)):
    fails_at_every(JOB, fault, wanted)
    fails_at_every(EARLY, fault, wanted_early)
    fails_at_every(HALVES, fault, wanted_halves)


@test
def early_updates_come_to_all_there_is(folder):
    """What the faults above come to: updates that stand, are done again and are discarded."""
    done = EARLY.train(f"{folder}/run", *options(EARLY, f"{folder}/run", ENGINES[0]))
    stood, again, discarded = map(int, re.search(r"of (\d+) steps stood, (\d+) done again, (\d+) discarded",
                                                 done.stderr).groups())
    assert stood and again and discarded, done.stderr


@test
def halves_come_to_commits_of_both_kinds(folder):
    """What the faults above come to: commits after steps that were applied, and after skipped ones."""
    del folder
    skipped = [line["loss"] is None for line in log(HALVES.straight())]
    due = skipped[1::2]
    assert any(due) and not all(due) and not all(skipped[::2]), skipped


def goes_on(kind):
    def body(folder):
        n = n_requests(JOB, "threads")
        faults = [f"{kind}=20%"] + [f"{kind}={at}" for at in (range(n) if LONG else RANDOM.sample(range(n), 2))]
        for number, fault in enumerate(faults):
            engine, output = ENGINES[number % len(ENGINES)], f"{folder}/{number}"
            succeed(*JOB.args(output, *options(JOB, output, engine, fault)))
            same_log(output, JOB.straight())
            same_weights(output, JOB.straight())
    body.__name__ = f"{kind}: tried again"
    return test(body)


for fault in ("short", "late", "eintr", "eagain"):
    goes_on(fault)


@test
def cut_again_while_resuming(folder):
    """Power is cut in the run, and in each of the next starts."""
    for number in range(12 if LONG else 3):
        output, starts = f"{folder}/{number}", 0
        while starts < 8:
            starts += 1
            at = RANDOM.randrange(10, 120)
            done = attempt(JOB, output, *options(JOB, output, RANDOM.choice(ENGINES), f"cut={at}"))
            if done.returncode == 0:
                break
            stopped_cleanly(done, f"start {starts} of {output}, cut at {at}")
        continues(JOB, output, ENGINES[-1], f"{output} after {starts} cuts")


@test
def a_damaged_manifest_is_not_believed(folder):
    """The newest of the two is damaged: the run goes on from the one before."""
    for slot in range(2):
        output = f"{folder}/{slot}"
        succeed(*JOB.args(output, *options(JOB, output, "threads")))
        manifests = [os.path.join(top, name) for top, _, names in os.walk(f"{output}/nvme") for name in names
                     if name.endswith("manifest")]
        assert len(manifests) == 1, manifests
        with open(manifests[0], "r+b") as f:
            at = slot * os.path.getsize(manifests[0]) // 2 + 40
            f.seek(at)
            byte = f.read(1)
            f.seek(at)
            f.write(bytes([byte[0] ^ 1]))
        continues(JOB, output, "threads", f"slot {slot} damaged")


main()
