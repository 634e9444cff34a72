"""From conversations to a model: masks, templates and splits through the real
program, with the tool that tools/setup installs.
"""
import contextlib
import json
import os
import shutil
import signal
import subprocess
import time

from penstock import PENSTOCK, Job, Skip, fail, main, succeed, test, wait_for

SHARED = os.path.join(os.environ.get("PEN_ROOT", "."), "..", "shared", "data")
STORIES = "models/stories260K-hf"
TALKS = "instruct/sharegpt-dummy-500.json"
SHORT = ("--max-length", "64", "-b", "4")


def shared(name):
    path = os.path.join(SHARED, name)
    if not os.path.exists(path):
        raise Skip(f"{path} is not there")
    return path


def tool():
    found = os.path.join(os.environ.get("PEN_ROOT", "."), ".venv", "bin", "penstock-prepare")
    if not os.access(found, os.X_OK):
        raise Skip("penstock-prepare is not installed: run tools/setup")
    return {**os.environ, "PENSTOCK_PREPARE": found}


def talks(path, n):
    """The first n published conversations, one a line."""
    with open(shared(TALKS), encoding="utf-8") as f:
        records = json.load(f)[:n]
    with open(path, "w", encoding="utf-8") as f:
        f.writelines(json.dumps(record) + "\n" for record in records)
    return records


def evaluate(data, *options):
    return json.loads(succeed("eval", "--model", shared(STORIES), "--data", data, "-o", "json",
                              *options, env=tool()).stdout)


@test
def masks_only_leave_targets_out(folder):
    """The same tokens in all three; the loss of fewer and fewer of them."""
    data = f"{folder}/talks.jsonl"
    talks(data, 20)
    chat = ("--chat-template", "chatml", "--max-length", "512")
    whole, assistant, completion = (evaluate(data, *chat, *more) for more in (
        (), ("--assistant-only-loss",), ("--completion-only-loss",)))
    assert whole["tokens"] == assistant["tokens"] == completion["tokens"], (whole, assistant)
    assert whole["targets"] == whole["tokens"], whole
    assert 0 < completion["targets"] < assistant["targets"] < whole["targets"], assistant
    assert len({r["loss"] for r in (whole, assistant, completion)}) == 3


@test
def options_without_effect_are_refused(folder):
    data = f"{folder}/talks.jsonl"
    talks(data, 4)
    with open(f"{folder}/ids.u16", "wb") as f:
        f.write(bytes(range(1, 100)))
    model = shared(STORIES)
    fail(2, "--assistant-only-loss has no effect", "eval", "--model", model, "--data",
         f"{folder}/ids.u16", "--assistant-only-loss", env=tool())
    fail(1, "no chat template", "eval", "--model", model, "--data", data, env=tool())
    fail(1, f"4 of the 4 samples of {data}", "eval", "--model", model, "--data", data, "--chat-template",
         "chatml", "--refuse-truncation", *SHORT, env=tool())
    done = succeed("eval", "--model", model, "--data", data, "--chat-template", "chatml", *SHORT,
                   env=tool())
    assert f"{data}: 4 of 4 samples cut off at 64 tokens" in done.stderr, done.stderr


@test
def the_template_goes_with_the_model(folder):
    """Trained with a template it did not have, the model has it; the checkpoint too;
    held-out data comes from the directory's other file; a resume finds its data."""
    os.mkdir(f"{folder}/sets")
    talks(f"{folder}/sets/train.jsonl", 8)
    talks(f"{folder}/sets/valid.jsonl", 3)
    with open(f"{folder}/t.jinja", "w", encoding="utf-8") as f:
        f.write("{% for m in messages %}{{ m.role + ': ' + m.content + eos_token }}{% endfor %}")
    train = ("train", "--model", shared(STORIES), "--data", f"{folder}/sets", "--eval-data",
             f"{folder}/sets", "--eval-steps", "2", "--save-steps", "2", "--output-dir",
             f"{folder}/run", "--assistant-only-loss", "--chat-template", f"{folder}/t.jinja", *SHORT)
    done = succeed(*train, "--max-steps", "2", env=tool())
    assert "8 documents" in done.stderr and "3 documents" in done.stderr, done.stderr
    for where in ("model", "checkpoint-2"):
        with open(f"{folder}/run/{where}/chat_template.jinja", encoding="utf-8") as f:
            assert "eos_token" in f.read()
    succeed(*train, "--max-steps", "4", "--resume", env=tool())
    os.mkdir(f"{folder}/tmp")
    done = succeed("eval", "--model", f"{folder}/run/model", "--data", f"{folder}/sets", *SHORT,
                   env={**tool(), "TMPDIR": f"{folder}/tmp"})
    assert "rendered by" in done.stderr and "3 documents" in done.stderr, done.stderr
    assert f"{folder}/tmp" not in done.stderr, f"a file that is gone is named\n{done.stderr}"
    assert os.listdir(f"{folder}/tmp") == [], os.listdir(f"{folder}/tmp")
    for verb in (("eval", "--data", f"{folder}/sets", "--model"), ("verify",), ("inspect",)):
        fail(2, "run is a run's directory: name the model in it", *verb, f"{folder}/run")


BAD = {
    "broken.jsonl": ('{"text": "a"}\n{"text"\n', "broken.jsonl line 2 is not JSON at column 8"),
    "keys.jsonl": ('{"foo": 1}', "has the fields foo"),
    "pair.jsonl": ('{"chosen": "a", "rejected": "b"}', "chosen as the completion"),
    "half.jsonl": ('{"text": "a\\ud83d"}', "is half of one"),
    "masked.jsonl": ('{"input_ids": [5, 6], "labels": [-100, -100]}', "1 of 1 samples dropped"),
    "wide.jsonl": ('{"input_ids": [5, 600]}', "only 512 ids"),
    "empty.jsonl": ("", "nothing to train on"),
    "empty.txt": ("", "no text"),
    "short.bin": ("abc", "no whole number of tokens"),
    "short.pent": ("PENTOKEN", "header alone has 256"),
}


@test
def bad_data_is_a_line_and_no_run(folder):
    """Then the same command with good data begins as if nothing had been."""
    train = ("train", "--model", shared(STORIES), "--output-dir", f"{folder}/run", "--max-steps", "1", *SHORT)
    for name, (content, words) in BAD.items():
        path = f"{folder}/{name}"
        with open(path, "w", encoding="utf-8") as f:
            f.write(content)
        for data in (("--data", path), ("--data", f"{folder}/good.jsonl", "--eval-data", path, "--eval-steps", "1")):
            with open(f"{folder}/good.jsonl", "w", encoding="utf-8") as f:
                f.write('{"text": "once upon a time"}\n')
            done = fail(1, words, *train, *data, env=tool())
            assert sum(line.startswith("error:") for line in done.stderr.splitlines()) == 1, done.stderr
            assert not os.path.exists(f"{folder}/run/run.json"), name
            if os.path.exists(f"{folder}/run"):  # the good file, kept to be found again
                assert data[0] == "--data" and len(data) > 2 and os.listdir(f"{folder}/run/data")
                shutil.rmtree(f"{folder}/run")
    deep = ("train", "--model", shared(STORIES), "--output-dir", f"{folder}/a/b//c/", "--max-steps", "1", *SHORT)
    fail(1, "has the fields foo", *deep, "--data", f"{folder}/keys.jsonl", env=tool())
    assert not os.path.exists(f"{folder}/a"), "folders were made for nothing"
    fail(1, "cannot find the data", *train, "--data", f"{folder}/none", env=tool())
    succeed(*train, "--data", f"{folder}/good.jsonl", env=tool())


@test
def a_run_that_is_there_is_told_before_any_work(folder):
    job = Job(folder, steps=1)
    job.train(f"{folder}/run")
    texts = f"{folder}/t.jsonl"
    with open(texts, "w", encoding="utf-8") as f:
        f.write('{"text": "once upon a time"}\n')
    done = fail(1, "/run holds a run", "train", "--model", shared(STORIES), "--data", texts, "-o", f"{folder}/run",
                env={**os.environ, "PENSTOCK_PREPARE": "/bin/false"})
    assert done.stderr.endswith("(--resume goes on with it, --overwrite starts over)\n"), done.stderr
    assert not os.path.exists(f"{folder}/run/data")


@test
def a_run_does_not_lie_in_its_data(folder):
    """What it wrote would become text to train on."""
    job = Job(folder, steps=1)
    os.makedirs(f"{folder}/texts/more")
    shutil.copy(job.data, f"{folder}/texts/a.txt")
    os.symlink(f"{folder}/texts/more", f"{folder}/link")
    train = ("train", "--model", job.model, "--max-steps", "1", *SHORT)
    for place in ("texts", "texts/", "texts/run", "texts/new/run", "link/run", "texts/more/../run"):
        for data in (("--data", f"{folder}/texts"), ("--data", job.data, "--eval-data", f"{folder}/texts", "--eval-steps", "1"),
                     ("--data", f"{folder}/texts", "--dry-run"), ("--data", f"{folder}/texts", "--resume")):
            done = fail(2, "which is read as data", *train, *data, "--output-dir", f"{folder}/{place}")
            assert len(done.stderr.splitlines()) == 1, done.stderr
    assert sorted(os.listdir(f"{folder}/texts")) == ["a.txt", "more"] and not os.listdir(f"{folder}/texts/more")
    succeed(*train, "--data", f"{folder}/texts", "--output-dir", f"{folder}/texts-run")
    fail(2, "which is read as data", *train, "--data", ".", "--output-dir", "run", cwd=folder)
    # A run that is there is held against its data, wherever it lies.
    inside = ("--save-steps", "1", "--output-dir", f"{folder}/texts/run")
    succeed(*train, "--data", job.data, *inside)
    succeed(*train, "--data", job.data, *inside, "--resume")
    fail(1, "not the data this run was started with", *train, "--data", f"{folder}/texts", *inside, "--resume")


@test
def a_stopped_preparation_leaves_nothing(folder):
    """Ctrl-C or a polite kill of the program alone: the tool is ended too, in one line."""
    slow, texts = f"{folder}/slow", f"{folder}/t.jsonl"
    with open(slow, "w", encoding="utf-8") as f:
        f.write(f"#!/bin/sh\ntrap 'rm {folder}/at-work; exit 1' TERM\n: > {folder}/at-work\nsleep 60 2> /dev/null & wait\n")
    os.chmod(slow, 0o755)
    with open(texts, "w", encoding="utf-8") as f:
        f.write('{"text": "once upon a time"}\n')
    os.mkdir(f"{folder}/tmp")
    environment = {**os.environ, "PENSTOCK_PREPARE": slow, "TMPDIR": f"{folder}/tmp"}
    for verb in (("train", "-o", f"{folder}/new/run"), ("eval",), ("plan", "--ram", "8GiB")):
        for number in (signal.SIGINT, signal.SIGTERM):
            ran = subprocess.Popen([PENSTOCK, *verb, "--model", shared(STORIES), "--data", texts, *SHORT],
                                   env=environment, stderr=subprocess.PIPE, text=True)
            while not os.path.exists(f"{folder}/at-work") and ran.poll() is None:
                time.sleep(.002)
            ran.send_signal(number)
            said = ran.communicate(timeout=30)[1]
            assert ran.returncode == 1 and said.startswith("error: stopped while penstock-prepare"), said
            assert said.count("\n") == 1, said
            assert sorted(os.listdir(folder)) == ["slow", "t.jsonl", "tmp"], os.listdir(folder)
            assert os.listdir(f"{folder}/tmp") == [], os.listdir(f"{folder}/tmp")


@test
def a_plan_given_up_takes_its_text_along(folder):
    """The search looks at no flag; the token file in /tmp goes all the same."""
    texts, found = f"{folder}/t.jsonl", set()
    with open(texts, "w", encoding="utf-8") as f:
        f.write('{"text": "once upon a time"}\n')
    sweep = ("--cores", "4", "--memory-bandwidth", "40GB/s", "--ram", "8GiB", "--sweep", "max-length=" + ",".join(
        map(str, range(33, 64))))
    ran = subprocess.Popen([PENSTOCK, "plan", "--model", shared(STORIES), "--data", texts, *sweep], env=tool(),
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    mine = f"/proc/{ran.pid}/fd"

    def is_planning():
        """It has opened its token file itself."""
        with contextlib.suppress(OSError):
            found.update(path for name in os.listdir(mine) if (path := os.readlink(f"{mine}/{name}")).endswith(".pent"))
        return found

    assert wait_for(is_planning, ran), "planned too soon to be given up"
    ran.send_signal(signal.SIGINT)
    assert ran.wait(20) == -signal.SIGINT, ran.returncode
    assert not any(os.path.exists(os.path.dirname(path)) for path in found), found


main()
