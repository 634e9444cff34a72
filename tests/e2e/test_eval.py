"""Evaluation held against transformers' numbers (tests/fixtures): the loss of each
document, and questions with choices as the lm-evaluation-harness scores them.
"""
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import time

from penstock import PENSTOCK, Job, Skip, fail, main, succeed, tensors, test

FIXTURES = os.path.join(os.environ.get("PEN_ROOT", "."), "tests", "fixtures")
# fp32 against float64: 2^-24 of logits up to 40, in each of a few tokens' sums.
TOLERANCE = 2e-5


def tool():
    found = os.path.join(os.environ.get("PEN_ROOT", "."), ".venv", "bin", "penstock-prepare")
    if not os.access(found, os.X_OK):
        raise Skip("penstock-prepare is not installed: run tools/setup")
    return {**os.environ, "PENSTOCK_PREPARE": found}


def lines(*args, **more):
    return [json.loads(line) for line in succeed("eval", "-o", "jsonl", *args, **more).stdout.splitlines()]


def numbers(tensor):
    form = {"I32": "<i", "F64": "<d"}[tensor[0]]
    return [value for value, in struct.iter_unpack(form, tensor[2])]


def write_megatron(name, documents):
    """NAME.bin and NAME.idx of int32 tokens."""
    with open(name + ".bin", "wb") as f:
        f.write(b"".join(struct.pack(f"<{len(d)}i", *d) for d in documents))
    n, pointers = len(documents), [0]
    for document in documents:
        pointers.append(pointers[-1] + 4 * len(document))
    with open(name + ".idx", "wb") as f:
        f.write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 4, n, n + 1))
        f.write(struct.pack(f"<{n}i", *map(len, documents)) + struct.pack(f"<{n}q", *pointers[:-1]))
        f.write(struct.pack(f"<{n + 1}q", *range(n + 1)))
    return name + ".bin"


@test
def each_document_has_the_reference_s_loss(folder):
    """Cut in windows too, and whatever runs at once; the lines add up to the whole."""
    golden = tensors(f"{FIXTURES}/models/llama/golden.safetensors")
    ids, begin, losses = (numbers(golden[name]) for name in ("ids", "doc_begin", "token_loss"))
    spans = list(zip(begin, begin[1:]))
    data = write_megatron(f"{folder}/d", [ids[a:b] for a, b in spans])
    model = ("--model", f"{FIXTURES}/models/llama", "--data", data)
    drive = ("--offload-params", "nvme", "--nvme-path", f"{folder}/drive")
    first = lines(*model)
    for more in (("--batch-size", "3"), ("--batch-size", "1"), drive):
        assert lines(*model, *more) == first, more
    assert [line["document"] for line in first] == list(range(len(spans))), first
    for line, (a, b) in zip(first, spans):
        want = sum(losses[a:b]) / (b - a - 1)
        assert line["targets"] == b - a - 1, line
        assert abs(line["loss"] - want) < TOLERANCE, f"{line}: not {want}"
    whole = json.loads(succeed("eval", "-o", "json", *model).stdout)
    total = sum(line["loss"] * line["targets"] for line in first) / whole["targets"]
    assert abs(whole["loss"] - total) < TOLERANCE and whole["targets"] == 30, whole
    cut = lines(*model, "--max-length", "4", "--batch-size", "2")
    assert [(c["document"], c["targets"]) for c in cut] == [(f["document"], f["targets"]) for f in first]
    assert all(c["loss"] != f["loss"] for c, f in zip(cut[1:3], first[1:3])), cut


@test
def questions_are_scored_as_the_reference_scores_them(folder):
    environment, source = tool(), f"{FIXTURES}/choices"
    model, questions = f"{folder}/model", f"{source}/questions.jsonl"
    os.mkdir(model)
    for name in ("models/llama/config.json", "models/llama/model.safetensors", "choices/tokenizer.json",
                 "choices/tokenizer_config.json"):
        shutil.copy(f"{FIXTURES}/{name}", model)
    with open(f"{source}/expected.json", encoding="utf-8") as f:
        want = json.load(f)
    ask = ("--model", model, "--data", questions)
    got = lines(*ask, env=environment)
    assert len(got) == len(want)
    for line, expected in zip(got, want):
        assert (line["acc"], line["acc_norm"]) == (expected["acc"], expected["acc_norm"]), line
        for a, b in zip(line["logprobs"], expected["logprobs"], strict=True):
            assert abs(a - b) < 5 * TOLERANCE, f"{line}: not {expected}"
    total = json.loads(succeed("eval", "-o", "json", *ask, "--batch-size", "3", env=environment).stdout)
    for key in ("acc", "acc_norm"):
        mean = sum(w[key] for w in want) / len(want)
        assert abs(total[key] - mean) < 1e-12, total
        assert abs(total[key + "_stderr"] - (mean * (1 - mean) / (len(want) - 1)) ** .5) < 1e-12, total
    fail(1, "longer than", "eval", *ask, "--max-length", "5", env=environment)
    fail(1, "nothing is trained on", "train", *ask, "-o", f"{folder}/run", env=environment)


@test
def odd_requests_are_refused(folder):
    job = Job(folder)
    for verb in (("eval", "--data", job.data), ("train", "--data", job.data, "-o", f"{folder}/run"), ("generate",)):
        fail(2, "config.json is a file: name the model's directory", *verb, "--model", f"{job.model}/config.json")
    fail(2, "jsonl for eval too", "generate", "--model", job.model, "--prompt", "a", "-o", "jsonl")
    fail(2, "--dump-logits and -o jsonl", "eval", "--model", job.model, "--data", job.data, "-o", "jsonl",
         "--dump-logits", f"{folder}/l")


@test
def without_a_tokenizer_only_bytes_are_text(folder):
    """A vocabulary of 256 is taken for bytes, which is said; any other is no guess."""
    other, bytes_ = Job(f"{folder}/other", vocab_size=300), Job(f"{folder}/bytes")
    for verb in (("eval",), ("train", "-o", f"{folder}/run"), ("plan", "--ram", "8GiB")):
        fail(1, ("has no tokenizer.json", "its vocabulary of 300"), *verb, "--model", other.model, "--data", other.data)
    assert not os.path.exists(f"{folder}/run")
    fail(1, "its vocabulary of 300", "generate", "--model", other.model, "--prompt", "a")
    with open(f"{other.model}/generation_config.json", "w", encoding="utf-8") as f:
        json.dump({"bos_token_id": 1}, f)
    said = json.loads(succeed("generate", "--model", other.model, "--max-new-tokens", "5", "-o", "json").stdout)
    assert len(said["ids"]) == 5 and "text" not in said, said
    with open(f"{folder}/ids.u16", "wb") as f:
        f.write(struct.pack("<9H", *range(290, 299)))
    succeed("eval", "--model", other.model, "--data", f"{folder}/ids.u16")
    for verb in (("eval", "--data", bytes_.data), ("generate", "--prompt", "a", "--max-new-tokens", "2")):
        done = succeed(*verb, "--model", bytes_.model)
        assert done.stderr.count("has no tokenizer: each byte of") == 1, done.stderr


@test
def what_others_wrote_is_not_replaced(folder):
    job = Job(folder, steps=1)
    with open(job.data, "rb") as f:
        before = f.read()
    weights = f"{job.model}/model.safetensors"
    for path in (job.data, weights, folder):
        fail(2, f"--dump-logits: {path} is there", "eval", "--model", job.model, "--data", job.data, "--dump-logits", path)
        fail(2, f"--trace: {path} is there", *job.args(f"{folder}/run", "--trace", path))
    assert not os.path.exists(f"{folder}/run")
    with open(job.data, "rb") as f:
        assert f.read() == before
    succeed("verify", job.model)
    for _ in range(2):  # their own they do replace
        succeed("eval", "--model", job.model, "--data", job.data, "--dump-logits", f"{folder}/l")
        succeed(*job.args(f"{folder}/run", "--overwrite", "--trace", f"{folder}/t"))


@test
def an_interrupted_evaluation_leaves_nothing(folder):
    job = Job(folder, data_bytes=40000)
    dump = f"{folder}/l"
    with open(f"{folder}/said", "w", encoding="utf-8") as said:
        ran = subprocess.Popen([PENSTOCK, "eval", "--model", job.model, "--data", job.data, "--max-length", "32",
                                "--batch-size", "1", "--dump-logits", dump], stdout=said, stderr=said)
    while not os.path.exists(dump + ".tmp") and ran.poll() is None:
        time.sleep(.002)
    ran.send_signal(signal.SIGINT)
    assert ran.wait(60) == 1, ran.returncode
    with open(f"{folder}/said", encoding="utf-8") as f:
        assert re.search(r"error: stopped after \d+ of 1250 batches$", f.read().rstrip())
    assert not os.path.exists(dump) and not os.path.exists(dump + ".tmp"), os.listdir(folder)


main()
