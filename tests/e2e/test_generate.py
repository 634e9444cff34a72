"""Generation through the real program: ids are the reference's wherever weights
lie; text comes as it is made, in whole characters; a conversation goes on.
"""
import json
import os
import re
import signal
import subprocess
import time

from penstock import PENSTOCK, Job, Skip, fail, log, main, same_weights, succeed, test

SHARED = os.path.join(os.environ.get("PEN_ROOT", "."), "..", "shared", "data")
STORIES = os.path.join(SHARED, "models", "stories260K-hf")
CHAT = ("--chat", "--chat-template", "chatml", "--greedy")


def stories():
    if not os.path.exists(STORIES):
        raise Skip(f"{STORIES} is not there")
    return STORIES


def tool():
    found = os.path.join(os.environ.get("PEN_ROOT", "."), ".venv", "bin", "penstock-prepare")
    if not os.access(found, os.X_OK):
        raise Skip("penstock-prepare is not installed: run tools/setup")
    return {**os.environ, "PENSTOCK_PREPARE": found}


def generate(model, *options, **more):
    return json.loads(succeed("generate", "--model", model, "-o", "json", *options, **more).stdout)


@test
def weights_on_drives_give_the_same_ids(folder):
    """By wish, and because RAM is too small; nothing stays on the drive."""
    job = Job(f"{folder}/job", num_hidden_layers=12)
    options = ("--max-new-tokens", "40", "--prompt", "abc", "--seed", "3", "--temperature", "2")
    want = generate(job.model, *options)
    assert len(want["ids"]) == 43 and want["prompt_tokens"] == 3, want
    drive = f"{folder}/drive"
    for place in (("--offload-params", "nvme"), ("--offload-params", "nvme", "--weight-slots", "1")):
        done = succeed("generate", "--model", job.model, "-o", "json", *options, *place,
                       "--nvme-path", drive)
        assert json.loads(done.stdout) == want, done.stdout
        assert "weights on drives" in done.stderr, done.stderr
    assert os.listdir(drive) == [], os.listdir(drive)
    small = ("--host-memory", "32MiB", "--threads", "1")
    fail(3, "does not fit", "generate", "--model", job.model, *options, *small)
    done = succeed("generate", "--model", job.model, "-o", "json", *options, *small,
                   "--nvme-path", drive)
    assert json.loads(done.stdout) == want and "weights on drives" in done.stderr, done.stderr


@test
def loss_is_the_same_from_drives(folder):
    job = Job(f"{folder}/job")
    evaluate = ("eval", "--model", job.model, "--data", job.data, "-o", "json")
    want = succeed(*evaluate).stdout
    got = succeed(*evaluate, "--offload-params", "nvme", "--nvme-path", f"{folder}/drive").stdout
    assert got == want, f"{got} is not {want}"


@test
def a_cache_that_has_no_room_is_refused(folder):
    """Keys and values of 2^20 tokens: 3 layers, 2 heads of 16 elements, 4 bytes each."""
    job = Job(f"{folder}/job", max_position_embeddings=1 << 21)
    done = fail(3, "does not fit", "generate", "--model", job.model, "--prompt", "a", "--threads", "1",
                "--max-new-tokens", (1 << 20) - 1, "--host-memory", "512MiB")
    assert re.search(r"768 MiB +keys and values of a document", done.stderr), done.stderr


@test
def positions_beyond_the_model_s_are_told(folder):
    job = Job(f"{folder}/job", max_position_embeddings=32)
    done = succeed("generate", "--model", job.model, "--prompt", "abc", "--max-new-tokens", "30")
    assert done.stderr.count("up to 33 tokens") == done.stderr.count("more than the 32 positions") == 1, done.stderr
    done = succeed("generate", "--model", job.model, "--prompt", "abc", "--max-new-tokens", "29")
    assert "positions" not in done.stderr, done.stderr
    done = succeed("eval", "--model", job.model, "--data", job.data, "--max-length", "33")
    assert done.stderr.count("more than the 32 positions") == 1, done.stderr
    learned = {"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 32,
               "activation_function": "gelu_new", "vocab_size": 256, "layer_norm_epsilon": 1e-5}
    with open(f"{folder}/gpt2.json", "w", encoding="utf-8") as f:
        json.dump(learned, f)
    succeed("init", f"{folder}/gpt2.json", "-o", f"{folder}/gpt2")
    fail(1, "learned 32 positions", "generate", "--model", f"{folder}/gpt2", "--prompt", "abc",
         "--max-new-tokens", "30")


@test
def a_prompt_comes_on_standard_input(folder):
    """From a pipe or a file, as if named by an option; what is no prompt is told."""
    job = Job(f"{folder}/job")
    options = ("generate", "--model", job.model, "--greedy", "--max-new-tokens", "5", "-o", "json")

    def piped(text, *more):
        return subprocess.run([PENSTOCK, *options, *more], input=text, capture_output=True, timeout=300, check=False)

    want = succeed(*options, "--prompt", "ab\nc").stdout
    done = piped(b"ab\nc\n")
    assert done.stdout.decode() == want and b"standard input" in done.stderr, done
    with open(f"{folder}/prompt", "wb") as f:
        f.write(b"ab\nc\r\n\n")
    with open(f"{folder}/prompt", "rb") as f:
        assert subprocess.run([PENSTOCK, *options], stdin=f, capture_output=True, timeout=300, check=True).stdout.decode() == want
    assert piped(b"other", "--prompt", "ab\nc").stdout.decode() == want
    alone = succeed(*options).stdout  # of /dev/null
    for nothing in (b"", b"\n"):
        done = piped(nothing)
        assert done.stdout.decode() == alone != want and b"nothing came there" in done.stderr, done
    long = b"ab " * 400
    assert json.loads(piped(long, "--max-length", "2000", "--max-new-tokens", "1").stdout)["prompt_tokens"] == len(long)
    for text, said in ((b"a\0b", b"has a byte 0 at 1"), (b"a" * (16 << 20) + b"a", b"more than 16 MiB"),
                       (b"a" * 300, b"the prompt has 300 tokens, --max-length allows 200")):
        done = piped(text, "--max-length", "200")
        assert done.returncode == 2 and said in done.stderr.splitlines()[-1] and not done.stdout, done.stderr


@test
def a_prompt_in_chunks_is_the_prompt_in_one(folder):
    """Longer than what goes through the model at once; token by token is the judge."""
    job = Job(f"{folder}/job", max_position_embeddings=2048)
    options = ("--gemm", "reference", "--greedy")
    prompt = ("the quick brown fox. " * 60)[:1100]
    got = generate(job.model, *options, "--prompt", prompt, "--max-new-tokens", "3")["ids"]
    for n in (3, 2, 1):
        shorter = bytes(got[:len(got) - n]).decode("latin-1")
        if not shorter.isascii():
            break
        assert generate(job.model, *options, "--prompt", shorter, "--max-new-tokens", n)["ids"] == got


@test
def text_ends_where_it_is_told_to():
    environment, model = tool(), stories()
    options = ("--greedy", "--prompt", "Once upon a time", "--max-new-tokens", "60")
    whole = generate(model, *options, env=environment)
    assert whole["ended_by"] == "length" and whole["text"].startswith("Once upon a time"), whole
    stop = whole["text"].split(". ")[0][-12:] + "."
    short = generate(model, *options, "--stop", stop, env=environment)
    assert short["ended_by"] == "stop text", short
    assert short["text"] == whole["text"][:whole["text"].index(stop)], short
    told = succeed("generate", "--model", model, *options, env=environment)
    assert told.stdout == whole["text"] + "\n", told.stdout
    assert "tokens after" in told.stderr, told.stderr


@test
def text_comes_as_it_is_made():
    """The first words are there long before the last; a reader that goes away ends it."""
    model = stories()
    process = subprocess.Popen([PENSTOCK, "generate", "--model", model, "--greedy", "--prompt", "Once upon",
                                "--max-new-tokens", "400", "--gemm", "reference"], env=tool(),
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    times, text = [], b""
    while piece := os.read(process.stdout.fileno(), 65536):
        times.append(time.monotonic())
        text += piece
        text.decode("utf-8")  # whole characters at every moment
    assert process.wait() == 0
    assert len(times) > 50, f"{len(times)} pieces of {len(text)} bytes"


@test
def a_conversation_goes_on(folder):
    """A turn per line; each is what one conversation of the same words would give."""
    environment, model = tool(), stories()
    options = (*CHAT, "--max-new-tokens", "12", "--system", "Tell a story.", "-o", "json")
    done = subprocess.run([PENSTOCK, "generate", "--model", model, *options], env=environment,
                          input="Once there was\n\na cat\n", capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    first, second = map(json.loads, done.stdout.splitlines())
    alone = generate(model, *options, "--prompt", "Once there was", env=environment)
    assert alone == first, f"{alone}\n{first}"
    assert second["prompt_tokens"] > len(first["ids"]) - 12, second
    assert second["ids"][:20] == first["ids"][:20]
    fail(3, "the conversation has", "generate", "--model", model, *options, "--prompt", "word " * 100,
         "--max-length", "60", env=environment)
    fail(1, "no chat template", "generate", "--model", model, "--chat", "--prompt", "hi", env=environment)
    job = Job(f"{folder}/job")
    fail(2, "has no tokenizer", "generate", "--model", job.model, "--chat", "--prompt", "hi")


@test
def ctrl_c_ends_an_answer_or_the_wait_for_one(folder):
    """What was said stays; before the model is there the program ends at once."""
    job = Job(f"{folder}/job", max_position_embeddings=40000)
    ran = subprocess.Popen([PENSTOCK, "generate", "--model", job.model, "--prompt", "abc", "--max-new-tokens", "30000"],
                           stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    said = b""
    while len(said) <= len("abc") and (more := os.read(ran.stdout.fileno(), 4096)):  # the prompt is told before a token is made
        said += more
    ran.send_signal(signal.SIGINT)
    rest, told = ran.communicate(timeout=60)
    assert ran.returncode == 0 and (said + rest).startswith(b"abc") and b"tokens after 3" in told, told
    with open(f"{folder}/deaf", "w", encoding="utf-8") as f:
        f.write(f"#!/bin/sh\n: > {folder}/asked\nread line\n")
    os.chmod(f"{folder}/deaf", 0o755)
    ran = subprocess.Popen([PENSTOCK, "generate", "--model", stories(), "--prompt", "a"], stdin=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL, env={**os.environ, "PENSTOCK_PREPARE": f"{folder}/deaf"})
    while not os.path.exists(f"{folder}/asked") and ran.poll() is None:
        time.sleep(.002)
    ran.send_signal(signal.SIGINT)
    assert ran.wait(20) == -signal.SIGINT, ran.returncode


@test
def samples_change_nothing_of_a_run(folder):
    """Wherever state lies, and resumed; the last one is what the finished model says."""
    job = Job(f"{folder}/job", "--gemm", "reference")
    ask = ("--samples-every", "5", "--sample-prompt", "abc", "--max-new-tokens", "40")
    drive = ("--offload-optimizer", "nvme", "--offload-params", "nvme", "--nvme-path", f"{folder}/drive")
    for name, place in (("ram", ()), ("drive", drive)):
        run = f"{folder}/{name}"
        job.train(run, *ask, *place)
        samples = [line for line in log(run) if "sample_ids" in line]
        assert [line["step"] for line in samples] == [5, 10, 15, 20], samples
        assert all(len(line["sample_ids"]) == 43 and line["sample"].startswith("abc") for line in samples)
        same_weights(run, job.straight())
        assert [line for line in log(run) if "loss" in line] == log(job.straight())
        want = generate(f"{run}/model", "--greedy", "--prompt", "abc", "--max-new-tokens", "40",
                        "--gemm", "reference")
        assert samples[-1]["sample_ids"] == want["ids"] and samples[-1]["sample"] == want["text"], want
    run = f"{folder}/resumed"
    succeed(*job.args(run, "--max-steps", "10", "--lr-scheduler-type", "constant", "--warmup-steps", "0",
                      *ask, *drive))
    with open(f"{run}/log.jsonl", encoding="utf-8") as f:
        lines = f.readlines()
    with open(f"{run}/log.jsonl", "w", encoding="utf-8") as f:
        f.writelines(lines[:-1])  # as if killed between the last step and its sample
    assert "sample_ids" in lines[-1], lines[-1]
    succeed(*job.args(run, "--max-steps", "11", "--lr-scheduler-type", "constant", "--warmup-steps", "0",
                      "--resume", *ask, *drive))
    assert json.loads(lines[-1]) in log(run), log(run)
    fail(2, "--sample-prompt needs --samples-every", *job.args(f"{folder}/none", "--sample-prompt", "a"))


main()
