#!/usr/bin/env python3
"""Training as its user expects it: rates, skips, accumulation, resuming, and what
is refused.

    test_train.py PENSTOCK [long]
"""
import json
import math
import os
import shutil
import signal
import struct
import subprocess
import tempfile

from penstock import (PENSTOCK, TILE, Job, fail, log, main, nan_row, same_log, same_tensors, same_weights, succeed,
                      tensors, test, wait_for)

SCRATCH = tempfile.TemporaryDirectory(prefix="pen-e2e-")
CONSTANT = ("--lr-scheduler-type", "constant", "--warmup-steps", "0")
JOB = Job(os.path.join(SCRATCH.name, "job"), *CONSTANT, "--gradient-accumulation-steps", "2")


def drive(folder):
    os.makedirs(folder, exist_ok=True)
    return ("--offload-optimizer", "nvme", "--nvme-path", f"{folder}/nvme", *TILE)


def floats(path):
    return {name: [x for (x,) in struct.iter_unpack("<f", blob)] for name, (_, _, blob) in tensors(path).items()}


@test
def rate_zero_changes_no_weight(folder):
    for dtype in ("fp32", "bf16"):
        for place in ((), drive(f"{folder}/{dtype}")):
            output = f"{folder}/{dtype}{len(place)}"
            model = f"{folder}/model-{dtype}"
            if not os.path.exists(model):
                succeed("init", JOB.path("config.json"), "-o", model, "--dtype", dtype)
            JOB.train(output, "--model", model, "--learning-rate", "0", "--max-steps", "4", *place)
            same_tensors(tensors(f"{output}/model"), tensors(model), output)


@test
def smallest_rate_leaves_the_loss(folder):
    JOB.train(f"{folder}/a", "--learning-rate", "0", "--max-steps", "6")
    JOB.train(f"{folder}/b", "--learning-rate", "1e-12", "--max-steps", "6")
    for a, b in zip(log(f"{folder}/a"), log(f"{folder}/b")):
        assert abs(a["loss"] - b["loss"]) < 1e-6, (a, b)


def poisoned(folder, share):
    """A job whose data has a byte with a NaN row, once or in every sequence."""
    job = Job(folder, "--save-steps", "1", "--save-total-limit", "99", "--batch-size", "1", steps=8,
              data_bytes=700, tie_word_embeddings=False)
    nan_row(job.model, ord("z"))
    with open(job.data, "r+b") as f:
        for at in range(5, 700, 700 if share == "one" else 16):
            f.seek(at + 330 if share == "one" else at)
            f.write(b"z")
    return job


@test
def non_finite_gradient_skips_the_step(folder):
    job = poisoned(f"{folder}/job", "one")
    for name, place in (("ram", ()), ("drive", drive(folder))):
        output = f"{folder}/{name}"
        done = job.train(output, "--max-steps", "24", *place)
        lines = log(output)
        skipped = [line["step"] for line in lines if "loss" in line and line["loss"] is None]
        assert len(skipped) == 1 and skipped[0] > 1, f"skipped steps {skipped}"
        step = skipped[0]
        assert f"step {step} is skipped" in done.stderr and "in block" in done.stderr, done.stderr
        line = lines[step - 1]
        assert line["skipped_steps"] == 1 and line["grad_norm"] is None, line
        assert lines[step - 2]["skipped_steps"] == 0 and lines[-1]["skipped_steps"] == 1, lines
        before, after = f"{output}/checkpoint-{step - 1}", f"{output}/checkpoint-{step}"
        same_tensors(tensors(after), tensors(before), after)
        with open(f"{before}/penstock.state", "rb") as a, open(f"{after}/penstock.state", "rb") as b:
            # Behind the header, which holds the step: every tile's p, m and v, or its checksum.
            old, new = a.read()[4096:], b.read()[4096:]
        assert name == "drive" or old == new, "state changed in a step that was skipped"
        assert tensors(f"{output}/checkpoint-{step + 1}") != tensors(after), "nothing is learned any more"
    same_log(f"{folder}/drive", f"{folder}/ram")


@test
def too_many_skips_stop_the_run(folder):
    job = poisoned(f"{folder}/job", "all")
    fail(1, ("3 steps in a row", "--max-skips"), *job.args(f"{folder}/run", "--max-skips", "3"))
    assert len(log(f"{folder}/run")) == 3


@test
def micro_batches_of_3_and_9_equal_one_of_12(folder):
    """With epsilon 1 the first update is g / (|g| + 1): as good as the gradient
    itself.  Sums of at most a few hundred fp32 terms in another order differ by
    less than 1e-5 of the largest; a mean of means would differ by a fifth."""
    job = Job(f"{folder}/job", *CONSTANT, "--dtype", "fp32", "--max-length", "9", "--adam-epsilon", "1",
              "--learning-rate", "1", "--weight-decay", "0", "--max-grad-norm", "0", data_bytes=13, steps=1)
    job.train(f"{folder}/two", "--batch-size", "1", "--gradient-accumulation-steps", "2")
    job.train(f"{folder}/one", "--batch-size", "2")
    (two,), (one,) = log(f"{folder}/two"), log(f"{folder}/one")
    assert one["num_tokens"] == two["num_tokens"] == 12, (one, two)
    for key in ("loss", "grad_norm"):
        assert abs(one[key] - two[key]) <= 1e-6 * one[key], (key, one, two)
    start, a, b = floats(job.model), floats(f"{folder}/two/model"), floats(f"{folder}/one/model")
    for name, values in start.items():
        scale = max(abs(x - y) for x, y in zip(a[name], values))
        worst = max(abs(x - y) for x, y in zip(a[name], b[name]))
        assert scale > 0 and worst <= 1e-5 * scale + 1.2e-7, f"{name}: {worst} of {scale}"


@test
def last_window_of_an_epoch_counts_its_tokens(folder):
    job = Job(f"{folder}/job", "--batch-size", "1", "--gradient-accumulation-steps", "4", data_bytes=321)
    job.train(f"{folder}/run", "--max-steps", "auto", "--num-train-epochs", "2")
    assert [line["num_tokens"] for line in log(f"{folder}/run")] == [128, 128, 64] * 2, log(f"{folder}/run")


@test
def rates_depend_on_steps_alone(folder):
    traces = []
    for accumulation in (1, 2, 8):
        output = f"{folder}/{accumulation}"
        JOB.train(output, "--gradient-accumulation-steps", accumulation, "--lr-scheduler-type", "cosine",
                  "--warmup-steps", "0.2", "--max-steps", "10")
        traces.append([line["learning_rate"] for line in log(output)])
    assert traces[0] == traces[1] == traces[2], traces
    assert traces[0][:3] == [0, 0.005, 0.01] and 0 < traces[0][9] < traces[0][8], traces[0]


RESUMES = {  # what the first ten steps ran with, and the next ten
    "drive": (drive, drive),
    "RAM": (lambda f: TILE, lambda f: TILE),
    "RAM to drive": (lambda f: (), drive),
    "drive to RAM": (drive, lambda f: ()),
    "other tiles": (drive, lambda f: (*drive(f), "--tile-size", "1536KiB")),
    "other directory": (drive, lambda f: drive(f"{f}/other")),
    "part on a drive": (lambda f: ("--nvme-path", f"{f}/nvme", *JOB.half_state()), drive),
    "to part on a drive": (drive, lambda f: ("--nvme-path", f"{f}/nvme", *JOB.half_state())),
    "groups, threads, discrete": (lambda f: ("--threads", "1", "--group-size", "1"),
                                  lambda f: ("--threads", "3", "--group-size", "2", "--update-threads", "1",
                                             "--host-mode", "discrete", "--recompute", "all", "--isa", "scalar")),
    "device to drive": (lambda f: ("--host-mode", "discrete", "--offload-optimizer", "none", *TILE), drive),
    "drive to device": (drive, lambda f: ("--host-mode", "discrete", "--offload-optimizer", "none")),
    "in place to copy-on-write": (lambda f: (*drive(f), "--durability", "none"), drive),
    "a commit every 4 steps": (lambda f: (*drive(f), "--commit-interval", "4"), drive),
}


def resumes(name, first, then):
    def body(folder):
        output = f"{folder}/run"
        JOB.train(output, "--max-steps", "10", "--save-steps", "10", *first(folder))
        done = JOB.train(output, "--resume", *then(folder))
        assert "resuming after step 10" in done.stderr, done.stderr
        same_log(output, JOB.straight())
        same_weights(output, JOB.straight())
    body.__name__ = f"10 steps and 10 more are 20: {name}"
    return test(body)


for case, (begin, go_on) in RESUMES.items():
    resumes(case, begin, go_on)


@test
def other_numerics_are_refused_by_name(folder):
    JOB.train(f"{folder}/run", "--max-steps", "2", *drive(folder))
    before = {name: os.stat(f"{folder}/run/{name}").st_mtime_ns for name in ("log.jsonl", "run.json")}
    with open(f"{folder}/run/run.json", encoding="utf-8") as f:
        gemm = "openblas" if json.load(f)["numerics"]["gemm"] == "reference" else "reference"
    for option, value in (("--seed", "1"), ("--dtype", "bf16"), ("--gemm", gemm), ("--max-length", "16"),
                          ("--per-device-train-batch-size", "3"), ("--gradient-accumulation-steps", "1")):
        fail(1, (option, "another run"), *JOB.args(f"{folder}/run", "--resume", *drive(folder), option, value))
    other = Job(f"{folder}/other", data_bytes=1500)
    fail(1, ("--data", "not the data"),
         *JOB.args(f"{folder}/run", "--resume", *drive(folder), "--data", other.data))
    after = {name: os.stat(f"{folder}/run/{name}").st_mtime_ns for name in before}
    assert before == after, "a refused resume wrote into the run"
    done = JOB.train(f"{folder}/run", "--resume", "--max-steps", "2", *drive(folder))
    assert "resuming after step 2" in done.stderr, done.stderr


@test
def a_drive_that_is_not_there_ends_no_run(folder):
    """Not mounted, or damaged: nothing of the run is begun anew, and it goes on when the drive is back."""
    for kept in ((), ("--save-steps", "3")):
        run = os.path.join(folder, f"run{len(kept)}")
        options = (*kept, "--offload-optimizer", "nvme", "--nvme-path", f"{folder}/nvme{len(kept)}")
        state = options[-1]
        JOB.train(run, *options, "--max-steps", "6")
        shutil.rmtree(f"{run}/model")
        before = log(run)
        os.rename(state, f"{state}.away")
        os.mkdir(state)
        fail(1, ("cannot be read", "there is no store", "drive"), *JOB.args(run, *options, "--resume"))
        os.rmdir(state)
        shutil.copytree(f"{state}.away", state)
        for name, _, files in os.walk(state):
            for file in files:
                if file.endswith(".manifest"):
                    os.truncate(f"{name}/{file}", 0)
        fail(1, ("cannot be read", ".manifest"), *JOB.args(run, *options, "--resume"))
        assert log(run) == before, "a refused resume wrote into the log"
        shutil.rmtree(state)
        os.rename(f"{state}.away", state)
        done = JOB.train(run, *options, "--resume")
        assert "resuming after step 6" in done.stderr, done.stderr
        same_log(run, JOB.straight())
        same_weights(run, JOB.straight())


@test
def a_run_is_not_overwritten_unasked(folder):
    output = f"{folder}/run"
    done = JOB.train(output, "--max-steps", "3", "--resume")
    assert f"nothing to resume in {output}" in done.stderr, done.stderr
    first = log(output)
    fail(1, ("--resume", "--overwrite"), *JOB.args(output, "--max-steps", "3"))
    assert log(output) == first
    JOB.train(output, "--max-steps", "2", "--overwrite", *drive(folder))
    assert log(output) == first[:2]


@test
def one_process_at_a_time(folder):
    output = f"{folder}/run"
    process = JOB.start(output, "--max-steps", "100000", *drive(folder))
    try:
        assert wait_for(lambda: os.path.exists(f"{output}/log.jsonl"), process)
        fail(1, "in use", *JOB.args(output, "--resume", *drive(folder)))
        fail(1, "in use", *JOB.args(output, "--overwrite", *drive(folder)))
    finally:
        process.kill()
        process.wait()


@test
def interrupt_finishes_the_step_and_saves(folder):
    for number, place in enumerate((drive(f"{folder}/0"), (), ("--nvme-path", f"{folder}/2", *JOB.half_state()))):
        for name in (signal.SIGINT, signal.SIGTERM):
            output = f"{folder}/run{number}{name}"
            process = subprocess.Popen([PENSTOCK, *map(str, JOB.args(output, *place))], text=True,
                                       stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
            log_file = f"{output}/log.jsonl"
            assert wait_for(lambda: os.path.exists(log_file) and os.path.getsize(log_file) > 900, process)
            process.send_signal(name)
            said = process.communicate(timeout=60)[1]
            done = log(output)[-1]["step"]
            assert process.returncode == 1, said
            assert f"stopped after step {done} of 20" in said and "--resume" in said, said
            again = JOB.train(output, "--resume", *place)
            assert f"resuming after step {done}" in again.stderr, again.stderr
            same_log(output, JOB.straight())
            same_weights(output, JOB.straight())


@test
def max_write_stops_before_it_is_passed(folder):
    job = Job(folder)
    place = drive(folder)
    output = job.path("limited")

    def written():
        with open(os.path.join(output, "log.jsonl"), encoding="utf-8") as f:
            return [json.loads(line)["nvme_written_bytes"] for line in f]

    step = json.loads(succeed("plan", *job.options, *place, "-o", "json").stdout)["drives"]["written_bytes_per_step"]
    most = 9 * step  # the state's first load is one of them
    fail(1, ["--max-write", "saved", "--resume"], *job.args(output, *place, "--max-write", most))
    counts = written()
    # From one step to the next the update of one step, and a manifest.
    assert 3 < len(counts) < 9 and counts[-1] <= most - step, (len(counts), counts, step)
    assert all(step <= b - a < step + 65536 for a, b in zip(counts[1:], counts[2:])), (counts, step)
    fail(1, "no room for a step", *job.args(output, *place, "--max-write", most, "--resume"))
    before = len(counts)
    job.train(output, *place, "--resume")
    job.check(output)
    assert written()[before] >= counts[-1], "a resumed run forgot what had been written"


@test
def a_hub_id_names_the_download(folder):
    fail(1, "hf download some-org/some-model", *JOB.args(f"{folder}/run", "--model", "some-org/some-model"),
         env={**os.environ, "HF_HOME": folder})
    fail(1, "cannot open ./nothing/here", *JOB.args(f"{folder}/run", "--model", "./nothing/here"))


@test
def checkpoints_are_limited(folder):
    for place in ((), drive(folder)):
        output = f"{folder}/run{len(place)}"
        JOB.train(output, "--save-steps", "3", "--save-total-limit", "2", *place)
        assert sorted(n for n in os.listdir(output) if "checkpoint" in n) == ["checkpoint-15", "checkpoint-18"]


@test
def state_is_kept_or_discarded(folder):
    JOB.train(f"{folder}/kept", "--max-steps", "10", *drive(f"{folder}/a"))
    assert os.listdir(f"{folder}/a/nvme")
    done = JOB.train(f"{folder}/kept", "--resume", *drive(f"{folder}/a"))
    assert "resuming after step 10" in done.stderr, done.stderr
    same_weights(f"{folder}/kept", JOB.straight())
    JOB.train(f"{folder}/gone", "--max-steps", "3", "--state-after-run", "discard", *drive(f"{folder}/b"))
    assert os.listdir(f"{folder}/b/nvme") == [], os.listdir(f"{folder}/b/nvme")


main()
