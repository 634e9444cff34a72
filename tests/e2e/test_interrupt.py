"""One Ctrl-C while weights are read ends the program soon, in one line, and leaves nothing behind.

Needs INTERRUPT_READING, the library of interrupt_reading.c, in the environment: it sends the signal.
"""
import os
import re

from penstock import TILE, Job, main, run, test

LIBRARY = os.environ["INTERRUPT_READING"]
# Behind the header's reads, before the last of the weights'.
AT = 12


def interrupted(*args, at=AT, **more):
    return run(*args, env={**os.environ, "LD_PRELOAD": LIBRARY, "PEN_INTERRUPT_AT": str(at), **more})


@test
def weights_are_loaded_no_further(folder):
    job = Job(f"{folder}/job")
    drive = f"{folder}/drive"
    os.mkdir(drive)
    before = sorted(os.listdir(folder))
    moved = ("--offload-params", "nvme", "--nvme-path", drive)
    evaluation = ("eval", "--model", job.model, "--data", job.data, "--max-length", 32)
    words = ("generate", "--model", job.model, "--prompt", "abc", "--max-new-tokens", 4)
    training = job.args(f"{folder}/run")
    for verb in (evaluation, (*evaluation, *moved), words, (*words, *moved), training,
                 (*training, *moved, "--offload-optimizer", "nvme")):
        ended = interrupted(*verb)
        last = ended.stderr.splitlines()[-1]
        assert ended.returncode == 1, f"{verb}: {ended.returncode}\n{ended.stderr}"
        told = re.fullmatch(r"error: stopped while loading block .+, (\d+) of (\d+)", last)
        assert told and int(told[1]) < int(told[2]), ended.stderr
        assert ended.stdout == "" and sorted(os.listdir(folder)) == before, os.listdir(folder)
        assert os.listdir(drive) == [], f"{verb}: {os.listdir(drive)}"


@test
def no_tile_more_is_read(folder):
    """Of a block that has many of them."""
    job = Job(f"{folder}/job", intermediate_size=4096)
    training = job.args(f"{folder}/run", *TILE)
    log = f"{folder}/reads"
    n_reads = []
    for at in (6, 8):  # the header is behind
        ended = interrupted(*training, at=at, PEN_INTERRUPT_LOG=log)
        assert ended.returncode == 1 and "stopped while loading block layer 0, 1 of " in ended.stderr, ended.stderr
        n_reads.append(os.path.getsize(log))
        os.remove(log)
    assert max(n_reads) <= 4, f"reads after the signal: {n_reads}"


@test
def an_evaluation_ends_amid_its_only_batch(folder):
    job = Job(f"{folder}/job")
    drive = f"{folder}/drive"
    os.mkdir(drive)
    ended = interrupted("eval", "--model", job.model, "--data", job.data, "--max-length", 32, "--batch-size", 64,
                        "--offload-params", "nvme", "--nvme-path", drive, "--io-engine", "threads", at=1,
                        PEN_INTERRUPT_FILES=".data")
    assert ended.returncode == 1 and ended.stdout == "", ended.stderr
    assert ended.stderr.splitlines()[-1] == "error: stopped after 0 of 1 batches", ended.stderr
    assert os.listdir(drive) == [], os.listdir(drive)


@test
def an_export_is_taken_back(folder):
    job = Job(f"{folder}/job")
    ended = interrupted("export", job.model, "-o", f"{folder}/new")
    assert ended.returncode == 1 and ended.stderr == f"error: stopped; nothing of {folder}/new was written\n", ended.stderr
    assert os.listdir(folder) == ["job"], os.listdir(folder)


main()
