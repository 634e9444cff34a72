"""Packing through the real program: the same loss in fewer rows, documents that
do not see each other, and runs that go on as they were packed.
"""
import json
import math
import os

from penstock import CONFIG, RANDOM, fail, log, main, same_log, succeed, tensors, test, text

N_DOCS = 13
RECIPE = ("--learning-rate", "1e-2", "--lr-scheduler-type", "constant", "--dtype", "fp32")


def model(folder):
    with open(f"{folder}/config.json", "w", encoding="utf-8") as f:
        json.dump({**CONFIG, "initializer_range": 0.05}, f)
    succeed("init", f"{folder}/config.json", "-o", f"{folder}/start", "--seed", "7")
    return f"{folder}/start"


def documents(path, lengths):
    """A directory of files of these many bytes: one document each."""
    os.mkdir(path)
    for i, n in enumerate(lengths):
        with open(f"{path}/{i:02}", "wb") as f:
            f.write(text(n, seed=i + 1))
    return path


def train(folder, name, data, *options):
    return succeed("train", "--model", f"{folder}/start", "--data", data, "--output-dir",
                   f"{folder}/{name}", *RECIPE, *options)


@test
def the_loss_is_the_same(folder):
    """loss(pack(a, b, ...)) is the sum of theirs, divided once by all targets.  All
    documents are in one step either way; only the order of an fp32 sum differs: 2^-24
    a target, of which at most a few hundred."""
    model(folder)
    data = documents(f"{folder}/data", [RANDOM.randint(5, 50) for _ in range(N_DOCS)])
    whole = ("--max-length", "64", "--batch-size", N_DOCS, "--max-steps", "1")
    train(folder, "apart", data, *whole)
    done = train(folder, "packed", data, *whole, "--packing")
    assert "rows of up to 64 tokens" in done.stderr, done.stderr
    (apart,), (packed,) = log(f"{folder}/apart")[:1], log(f"{folder}/packed")[:1]
    for key in ("loss", "grad_norm"):
        assert math.isclose(apart[key], packed[key], rel_tol=2e-5), (key, apart, packed)
    assert apart["loss"] > 3, apart


@test
def fewer_rows_do(folder):
    """Three rows of 32, 32 and 20 inputs, one a step: an epoch is three steps."""
    model(folder)
    data = documents(f"{folder}/data", [17, 17, 33, 11, 11])
    for more, steps in (((), 5), (("--packing",), 3)):
        train(folder, f"run{steps}", data, "--max-length", "32", "--batch-size", "1",
              "--num-train-epochs", "1", *more)
        steps_logged = [line for line in log(f"{folder}/run{steps}") if "loss" in line]
        assert len(steps_logged) == steps, steps_logged


@test
def neighbours_change_nothing(folder):
    """G3: other bytes in the first document, not one bit in the logits of the second."""
    start = model(folder)
    logits = []
    for name, seed in (("one", 3), ("two", 4)):
        os.mkdir(f"{folder}/{name}")
        for file, content in (("a", text(40, seed)), ("b", text(30, 9))):
            with open(f"{folder}/{name}/{file}", "wb") as f:
                f.write(content)
        succeed("eval", "--model", start, "--data", f"{folder}/{name}", "--batch-size", "2",
                "--max-length", "64", "--dump-logits", f"{folder}/{name}.safetensors")
        _, shape, body = tensors(f"{folder}/{name}.safetensors")["logits"]
        assert shape[0] == 39 + 29, shape
        row = len(body) // shape[0]
        logits.append((body[:39 * row], body[39 * row:]))
    assert logits[0][0] != logits[1][0]
    assert logits[0][1] == logits[1][1]


@test
def a_packed_run_goes_on_packed(folder):
    model(folder)
    data = documents(f"{folder}/data", [RANDOM.randint(5, 50) for _ in range(N_DOCS)])
    packed = ("--max-length", "64", "--batch-size", "2", "--packing")
    train(folder, "straight", data, *packed, "--max-steps", "8", "--save-steps", "3")
    train(folder, "run", data, *packed, "--max-steps", "3", "--save-steps", "3")
    fail(1, "--packing false differs", "train", "--model", f"{folder}/start", "--data", data,
         "--output-dir", f"{folder}/run", *RECIPE, "--resume", "--packing=false", "--max-steps", "8")
    # not said again, it is what it was
    train(folder, "run", data, "--resume", "--max-steps", "8", "--save-steps", "3")
    same_log(f"{folder}/run", f"{folder}/straight")


main()
