#!/usr/bin/env python3
"""Machines that allow less: the same numbers, and one line that says why.

    test_machine.py PENSTOCK [long]

Needs REFUSE_URING, the program of refuse_uring.c, in the environment.
"""
import os
import shutil
import tempfile

from penstock import TILE, Job, Skip, fail, main, same_log, same_weights, test

SCRATCH = tempfile.TemporaryDirectory(prefix="pen-e2e-")
JOB = Job(os.path.join(SCRATCH.name, "job"), steps=8)
DRIVE = ("--offload-optimizer", "nvme", *TILE, "--nvme-path")


def holds(folder, done, *words):
    for word in words:
        assert word in done.stderr, f'"{word}" was not said\n{done.stderr}'
    same_log(f"{folder}/run", JOB.straight())
    same_weights(f"{folder}/run", JOB.straight())


@test
def state_on_tmpfs(folder):
    if not os.path.isdir("/dev/shm") or not os.access("/dev/shm", os.W_OK):
        raise Skip("no tmpfs at /dev/shm")
    memory = tempfile.mkdtemp(prefix="pen-e2e-", dir="/dev/shm")
    try:
        done = JOB.train(f"{folder}/run", *DRIVE, memory)
        holds(folder, done, "tmpfs")
    finally:
        shutil.rmtree(memory)


@test
def little_memory_may_be_locked(folder):
    """Buffers that cannot be registered are used without: 64 KiB, as on many machines."""
    prefix = ["prlimit", "--memlock=65536:65536"]
    if os.geteuid() == 0:
        prefix = ["setpriv", "--bounding-set=-ipc_lock", "--inh-caps=-ipc_lock", *prefix]
    for word in (prefix[0], "prlimit"):
        if not shutil.which(word):
            raise Skip(f"no {word} here")
    done = JOB.train(f"{folder}/run", *DRIVE, f"{folder}/nvme", prefix=prefix)
    if "uring" not in done.stderr or "auto: threads" in done.stderr:
        raise Skip("io_uring is not used here")
    holds(folder, done, "not registered", "64.0 KiB")


@test
def io_uring_is_refused(folder):
    wrapper = os.environ.get("REFUSE_URING")
    if not wrapper:
        raise Skip("no program that refuses io_uring was built")
    done = JOB.train(f"{folder}/run", *DRIVE, f"{folder}/nvme", prefix=[wrapper])
    holds(folder, done, "threads", "io_uring")
    assert sum("io_uring" in line for line in done.stderr.splitlines()) == 1, done.stderr


@test
def few_addresses_are_a_limit_of_memory(folder):
    """OpenBLAS asks for its buffers again and again where it may not map them."""
    limit = shutil.which("prlimit")
    if not limit:
        raise Skip("no prlimit here")
    done = fail(3, ("ulimit -v", "does not fit"), *JOB.args(f"{folder}/run", "--gemm", "auto"),
                prefix=[limit, f"--as={250 << 20}"], timeout=60)
    assert "step 1/" not in done.stderr and not os.path.exists(f"{folder}/run"), done.stderr
    holds(folder, JOB.train(f"{folder}/run", prefix=[limit, f"--as={(1 + os.cpu_count()) << 29}"]))


main()
