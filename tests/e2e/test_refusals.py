"""What cannot end well says so before the work, in one line, and leaves nothing."""
import json
import os
import shutil
import signal
import struct
import subprocess
import time

from penstock import CONFIG, PENSTOCK, TILE, Job, Skip, fail, main, run, succeed, test

# Sequences of an evaluation and steps of a run all meet the tensor of this name.
EVERYWHERE = "model.norm.weight"


def poison(model, tensor=EVERYWHERE):
    """The first element of an F32 tensor becomes NaN."""
    path = os.path.join(model, "model.safetensors")
    with open(path, "r+b") as f:
        n, = struct.unpack("<Q", f.read(8))
        begin = json.loads(f.read(n))[tensor]["data_offsets"][0]
        f.seek(8 + n + begin)
        f.write(struct.pack("<f", float("nan")))


def in_small_folder(folder, megabytes, *args):
    """Runs the program with a file system of its own at `folder`; then "left:" and what is in it is told."""
    os.makedirs(folder, exist_ok=True)
    script = f'mount -t tmpfs -o size={megabytes}m none {folder} || exit 77; "$@"; rc=$?; echo left: $(ls -A {folder}); exit $rc'
    done = subprocess.run(["unshare", "-m" if os.geteuid() == 0 else "-rm", "sh", "-c", script, "sh", PENSTOCK, *map(str, args)],
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode == 77 or "unshare" in done.stderr:
        raise Skip(f"mounting is not permitted here: {done.stderr}")
    return done


def refused(done, *words):
    assert done.returncode == 3, f"status {done.returncode}\n{done.stderr}"
    for word in words:
        assert word in done.stderr.splitlines()[-1], f'"{word}" is not in the last line\n{done.stderr}'


@test
def a_model_that_the_drive_has_no_room_for(folder):
    """38 MB on a drive of 16."""
    with open(f"{folder}/config.json", "w", encoding="utf-8") as f:
        json.dump({**CONFIG, "intermediate_size": 16384}, f)
    done = in_small_folder(f"{folder}/small", 16, "init", f"{folder}/config.json", "-o", f"{folder}/small/model")
    refused(done, "does not fit", "bytes too few")
    assert done.stdout == "left:\n", done.stdout
    succeed("init", f"{folder}/config.json", "-o", f"{folder}/model")
    done = in_small_folder(f"{folder}/small", 16, "export", f"{folder}/model", "-o", f"{folder}/small/model")
    refused(done, "does not fit", "bytes too few")


@test
def what_comes_with_a_model_needs_room_too(folder):
    """1.3 MiB of weights have it, their state or a GGUF file of them beside them has not."""
    job = Job(f"{folder}/job", steps=2)
    job.train(f"{folder}/run", "--save-steps", "1")
    small = f"{folder}/small"
    done = in_small_folder(small, 3, "export", f"{folder}/run/checkpoint-1", "-o", f"{small}/model", "--with-optimizer")
    refused(done, "does not fit: the model with its optimizer's state needs", "bytes too few")
    assert done.stdout == "left:\n", done.stdout
    done = in_small_folder(small, 2, "export", f"{folder}/run", "-o", f"{small}/model", "--gguf", "F32")
    refused(done, "small/model is written and whole, but no GGUF file in it", "does not fit: the GGUF file needs", "bytes too few")
    assert done.stdout.endswith("left: model\n"), done.stdout


@test
def a_model_of_no_numbers_says_nothing(folder):
    job = Job(f"{folder}/job")
    poison(job.model)
    done = fail(1, ["logits that are not finite", "penstock verify"], "generate", "--model", job.model, "--prompt", "abc",
                "-o", "json")
    assert done.stdout == "", done.stdout
    for more in (), ("-o", "jsonl"):
        done = fail(1, ["not finite", "penstock verify"], "eval", "--model", job.model, "--data", job.data, *more)
        assert done.stdout == "", done.stdout


@test
def a_run_that_trained_nothing_has_no_model(folder):
    job = Job(f"{folder}/job", steps=3)
    shutil.copytree(job.model, f"{folder}/whole")
    poison(job.model)
    output = f"{folder}/run"
    for more in (), ("--resume",):
        done = fail(1, ["all 3 steps were skipped", "penstock verify"], *job.args(output, *more))
        assert "finished" not in done.stderr and not os.path.exists(f"{output}/model"), done.stderr


@test
def outputs_at_the_end_can_be_made(folder):
    job = Job(f"{folder}/job", steps=2)
    for option, verb in (("--trace", job.args(f"{folder}/run")),
                         ("--dump-logits", ["eval", "--model", job.model, "--data", job.data])):
        fail(1, [option, "/none/t.json", "No such file"], *verb, option, f"{folder}/none/t.json")
    assert not os.path.exists(f"{folder}/run"), os.listdir(f"{folder}/run")


@test
def a_stop_does_not_wait_for_a_sample(folder):
    """Of 200,000 tokens, which take minutes."""
    job = Job(f"{folder}/job", steps=3)
    more = ("--samples-every", "1", "--max-new-tokens", "200000")
    process = job.start(f"{folder}/run", *more)
    try:
        log = f"{folder}/run/log.jsonl"
        end = time.monotonic() + 60
        while time.monotonic() < end and not (os.path.exists(log) and os.path.getsize(log)):
            time.sleep(0.05)
        time.sleep(0.3)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 1
    finally:
        process.kill()
        process.wait()
    with open(f"{folder}/run.said", encoding="utf-8") as f:
        said = f.read()
    assert "stopped after step 1 of 3" in said and "more than the 256 positions" in said, said
    succeed(*job.args(f"{folder}/run", "--resume", "--samples-every", "1", "--max-new-tokens", "3"))
    with open(f"{folder}/run/log.jsonl", encoding="utf-8") as log:
        sampled = [line["step"] for line in map(json.loads, log) if "sample_ids" in line]
    assert sampled == [1, 2, 3], sampled  # the one that was broken off, too


@test
def a_drive_without_room_for_state(folder):
    job = Job(f"{folder}/job")
    small = f"{folder}/small"
    done = in_small_folder(small, 2, *job.args(f"{folder}/run", "--offload-optimizer", "nvme", "--nvme-path", f"{small}/state",
                                               *TILE))
    refused(done, "does not fit", "too few", "--nvme-path")
    assert done.stdout == "left:\n", done.stdout


@test
def temporary_files_are_where_they_are_wanted(folder):
    job = Job(f"{folder}/job", steps=2)
    prepare = f"{folder}/prepare"  # notes where it was to write, and fails
    with open(prepare, "w", encoding="utf-8") as f:
        f.write(f'#!/bin/sh\necho "$@" >> {folder}/asked\necho no >&2\nexit 1\n')
    os.chmod(prepare, 0o755)
    with open(f"{job.model}/tokenizer.json", "w", encoding="utf-8") as f:
        f.write("{}")
    os.mkdir(f"{folder}/tmp")
    env = {**os.environ, "TMPDIR": f"{folder}/tmp", "PENSTOCK_PREPARE": prepare}
    for name, verb in (("eval", ["eval"]), ("plan", ["plan"]), ("plan", ["train", "-o", f"{folder}/run", "--dry-run"])):
        run(*verb, "--model", job.model, "--data", job.data, env=env)
        with open(f"{folder}/asked", encoding="utf-8") as f:
            assert f"{folder}/tmp/penstock-{name}-" in f.read(), name
        os.remove(f"{folder}/asked")
        assert os.listdir(f"{folder}/tmp") == [], os.listdir(f"{folder}/tmp")


@test
def closed_streams_are_no_files(folder):
    """Else the next file that is opened is standard error, and gets what is said."""
    job = Job(f"{folder}/job", steps=2)
    succeed(*job.args(f"{folder}/run"), prefix=["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh"])
    assert os.path.getsize(f"{folder}/run/run.lock") == 0
    with open(f"{folder}/run/log.jsonl", encoding="utf-8") as f:
        assert [json.loads(line)["step"] for line in f] == [1, 2]
    assert run("inspect", job.model, prefix=["sh", "-c", 'exec "$@" >&-', "sh"]).returncode == 1


@test
def files_may_only_be_so_large(folder):
    """A limit of their size ends the write, and not the program in silence."""
    job = Job(f"{folder}/job", steps=2)
    state = f"{folder}/state"
    for words, verb in (("model.safetensors", ["init", job.model, "-o", f"{folder}/new"]),
                        ("model.safetensors", ["export", job.model, "-o", f"{folder}/new"]),
                        ("run/model", job.args(f"{folder}/run")),
                        (".data", [*job.args(f"{folder}/other"), "--offload-optimizer", "nvme", "--nvme-path", state])):
        fail(1, (words, "File too large"), *verb, prefix=["prlimit", f"--fsize={1 << 20}"])
    assert sorted(os.listdir(folder)) == ["job", "run"], os.listdir(folder)
    assert "model" not in os.listdir(f"{folder}/run")
    succeed(*job.args(f"{folder}/run"), "--resume")


@test
def options_are_refused_when_they_are_read(folder):
    job = Job(f"{folder}/job")
    for words, more in ((["--max-length", "from 2"], ("--max-length", "1")), ("above 0", ("--adam-epsilon", "0")),
                        ("--adam-beta1 1: it must be below 1", ("--adam-beta1", "1")),
                        ("--adam-beta2 1: it must be below 1", ("--adam-beta2", "1")),
                        ("keeps nothing", ("--io-engine", "null")),
                        ("names . twice (./)", ("--nvme-path", ".,./")),
                        ("names same twice", ("--nvme-path", "same,same")),
                        ("unexpected argument", ("extra",))):
        fail(2, words, *job.args(f"{folder}/run", *more))
    assert not os.path.exists(f"{folder}/run")


@test
def paths_are_told_as_what_they_are(folder):
    job = Job(f"{folder}/job")
    os.symlink("loop", f"{folder}/loop")
    fail(1, "Too many levels", "eval", "--model", f"{folder}/loop", "--data", job.data)
    fail(1, "is not a model directory", "export", job.data, "-o", f"{folder}/new")
    fail(1, "is a file; name a folder", "export", job.model, "-o", job.data)
    for path in (job.data, f"{job.data}/below"):  # before all else
        done = fail(1, f"--output-dir {path}: {job.data} is a file; name a folder", *job.args(path))
        assert done.stderr.count("\n") <= 2, done.stderr
    os.mkdir(f"{folder}/full")
    with open(f"{folder}/full/letter.txt", "w", encoding="utf-8") as f:
        f.write("mine")
    fail(1, "is there and not empty", "export", job.model, "-o", f"{folder}/full")
    fail(1, "it holds letter.txt", "export", job.model, "-o", f"{folder}/full", "--overwrite")
    assert "penstock-prepare --tokenizer" in succeed("inspect", job.data).stderr
    succeed("init", job.model, "-o", f"{folder}/like")  # by its config.json


@test
def what_nothing_computes_is_not_made(folder):
    config = f"{folder}/config.json"
    for size in (1026, 7):
        with open(config, "w", encoding="utf-8") as f:
            json.dump({**CONFIG, "head_dim": size}, f)
        fail(1, "head_dim", "init", config, "-o", f"{folder}/model")
        assert os.listdir(folder) == ["config.json"]


@test
def a_drive_s_folder_is_made_but_no_tree(folder):
    """A typo, or a drive that is not mounted, fills no other drive."""
    job = Job(f"{folder}/job", steps=2)
    drive = ("--offload-params", "nvme", "--nvme-path")
    for verb in (job.args(f"{folder}/run"), (*job.args(f"{folder}/run"), "--resume"),
                 ["eval", "--model", job.model, "--data", job.data], ["generate", "--model", job.model, "--prompt", "a"]):
        for path in ("mnt/ssd", "mnt/ssd/", "mnt//ssd/a/b"):
            fail(2, [f"--nvme-path {folder}/{path}: there is no {folder}/mnt;"], *verb, *drive, f"{folder}/{path}")
        fail(2, ["there is no mnt;"], *verb, *drive, f"{folder},mnt/ssd", cwd=folder)
        assert os.listdir(folder) == ["job"], os.listdir(folder)
    succeed(*job.args(f"{folder}/run"), *drive, f"{folder}/ssd/")
    succeed(*job.args(f"{folder}/runs/a"), *drive, f"{folder}/runs/a/state")  # what lies in the run is made with it


main()
