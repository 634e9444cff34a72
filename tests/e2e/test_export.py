"""Exports: every number format, the optimizer's state from every place it can lie
in, all companions, and nothing that looks whole before it is.
"""
import glob
import json
import os
import shutil
import signal
import struct
import subprocess

from penstock import (CONFIG, PENSTOCK, Job, Skip, fail, main, same_tensors, succeed, tensors, test,
                      wait_for)

KINDS = ("master_weights", "exp_avg", "exp_avg_sq")
COMPANIONS = ("tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja", "chat_template.json",
              "generation_config.json")


def floats(tensor):
    """As fp32 numbers, from F32, BF16 or F16."""
    form, blob = tensor[0], tensor[2]
    if form == "BF16":
        return [struct.unpack("<f", b"\0\0" + blob[i:i + 2])[0] for i in range(0, len(blob), 2)]
    return [x for x, in struct.iter_unpack({"F32": "<f", "F16": "<e"}[form], blob)]


def bf16(x):
    """To nearest, ties away from zero, as all that is written here."""
    bits = struct.unpack("<I", struct.pack("<f", x))[0]
    return struct.unpack("<f", struct.pack("<I", (bits + 0x8000) >> 16 << 16))[0]


def f16(x):
    return struct.unpack("<e", struct.pack("<e", x))[0]


TEMPLATES = "additional_chat_templates"


def put_templates(model):
    os.mkdir(f"{model}/{TEMPLATES}")
    for name in ("tool_use.jinja", "rag.jinja", "notes.txt"):
        with open(f"{model}/{TEMPLATES}/{name}", "w", encoding="utf-8") as f:
            f.write(name)


@test
def named_chat_templates_go_along(folder):
    """In a folder of their own: copied, replaced and removed with the model; what else lies there is not."""
    job = Job(f"{folder}/job", steps=4)
    put_templates(job.model)

    def check(model):
        assert sorted(os.listdir(f"{model}/{TEMPLATES}")) == ["rag.jinja", "tool_use.jinja"], model
        with open(f"{model}/{TEMPLATES}/rag.jinja", encoding="utf-8") as f:
            assert f.read() == "rag.jinja"

    for more in (), ("--overwrite",):
        succeed("export", job.model, "-o", f"{folder}/out", *more)
        check(f"{folder}/out")
        assert sorted(os.listdir(folder)) == ["job", "out"], os.listdir(folder)
    run = job.train(f"{folder}/run", "--save-steps", "1", "--save-total-limit", "2") and f"{folder}/run"
    kept = [name for name in os.listdir(run) if name.startswith("checkpoint-")]
    assert len(kept) == 2, os.listdir(run)
    for name in (*kept, "model"):
        check(f"{run}/{name}")
    job.train(run, "--overwrite")
    check(f"{run}/model")
    assert not any(name.startswith(("checkpoint-", "removed-")) for name in os.listdir(run)), os.listdir(run)
    for mine in ("x.txt", "deep/x.jinja"):
        os.makedirs(os.path.dirname(f"{folder}/out/{TEMPLATES}/{mine}"), exist_ok=True)
        with open(f"{folder}/out/{TEMPLATES}/{mine}", "w", encoding="utf-8") as f:
            f.write("mine")
        fail(1, f"it holds {TEMPLATES}", "export", job.model, "-o", f"{folder}/out", "--overwrite")
        if mine == "x.txt":
            os.unlink(f"{folder}/out/{TEMPLATES}/{mine}")


@test
def every_format_is_the_weights_rounded_once(folder):
    job = Job(f"{folder}/job")
    for name in COMPANIONS:
        with open(f"{job.model}/{name}", "w", encoding="utf-8") as f:
            json.dump({"eos_token_id": 3} if "generation" in name else {}, f)
    want = {name: floats(t) for name, t in tensors(job.model).items()}
    for dtype, form, rounded in (("bf16", "BF16", bf16), ("fp16", "F16", f16), ("fp32", "F32", float)):
        out = f"{folder}/{dtype}"
        succeed("export", job.model, "-o", out, "--dtype", dtype)
        got = tensors(out)
        assert sorted(got) == sorted(want)
        for name, numbers in want.items():
            assert got[name][0] == form, (name, got[name][0])
            assert floats(got[name]) == [rounded(x) for x in numbers], (dtype, name, [(x, y, rounded(x)) for x, y in zip(numbers, floats(got[name])) if y != rounded(x)][:3])
        for name in COMPANIONS:
            with open(f"{out}/{name}", "rb") as a, open(f"{job.model}/{name}", "rb") as b:
                assert a.read() == b.read(), name
        with open(f"{out}/config.json", encoding="utf-8") as f:
            said = json.load(f)["torch_dtype"]
        assert said == {"BF16": "bfloat16", "F16": "float16", "F32": "float32"}[form], said
        succeed("verify", out)
        succeed("eval", "--model", out, "--data", job.data)
    same_tensors(tensors(f"{folder}/fp32"), tensors(job.model), "fp32")
    succeed("export", job.model, "-o", f"{folder}/same")
    same_tensors(tensors(f"{folder}/same"), tensors(job.model), "same")


@test
def state_is_the_same_wherever_it_lay(folder):
    """In a checkpoint, in the store a checkpoint refers to, in a finished run's store."""
    job = Job(f"{folder}/job", steps=6)
    places = {"ram": (), "drive": ("--offload-optimizer", "nvme", "--nvme-path", f"{folder}/drive")}
    found = {}
    for name, place in places.items():
        run = f"{folder}/{name}"
        job.train(run, "--save-steps", "3", *place)
        for source, step in ((f"{run}/checkpoint-3", 3), (f"{run}/checkpoint-6", 6),
                             *([(run, 6)] if place else [])):
            out = f"{folder}/out-{name}-{os.path.basename(source)}"
            done = succeed("export", source, "-o", out, "--with-optimizer")
            assert f"state after step {step}" in done.stderr, done.stderr
            state = {kind: tensors(f"{out}/{kind}.safetensors") for kind in KINDS}
            weights = tensors(f"{out}/model.safetensors")
            for kind in KINDS:
                assert list(sorted(state[kind])) == list(sorted(weights)), kind
                assert all(state[kind][n][:2] == ("F32", weights[n][1]) for n in weights), kind
                succeed("verify", f"{out}/{kind}.safetensors")
            same_tensors(state["master_weights"], weights, f"{out}: masters of an fp32 model")
            assert any(x != 0 for x in floats(state["exp_avg"]["model.norm.weight"]))
            assert all(x >= 0 for x in floats(state["exp_avg_sq"]["model.norm.weight"]))
            for kind in KINDS:
                if (step, kind) in found:
                    same_tensors(state[kind], found[step, kind], f"{out}: {kind}")
                found[step, kind] = state[kind]
            same_tensors(tensors(f"{out}/model.safetensors"), tensors(
                f"{source}/model" if source == run else source), out)
    assert found[3, "exp_avg"] != found[6, "exp_avg"]
    succeed("export", f"{folder}/ram", "-o", f"{folder}/plain")
    fail(1, "kept no optimizer state", "export", f"{folder}/ram", "-o", f"{folder}/none", "--with-optimizer")
    fail(1, "has no optimizer state", "export", job.model, "-o", f"{folder}/none", "--with-optimizer")
    moved = shutil.copytree(f"{folder}/drive/checkpoint-3", f"{folder}/moved")
    fail(1, "lies in the store of its run", "export", moved, "-o", f"{folder}/none", "--with-optimizer")
    # more steps, another model: the store is ahead of the model that is there
    shutil.copytree(f"{folder}/drive/model", f"{folder}/old")
    succeed(*job.args(f"{folder}/drive", "--max-steps", "8", "--resume", *places["drive"]))
    shutil.rmtree(f"{folder}/drive/model")
    shutil.move(f"{folder}/old", f"{folder}/drive/model")
    fail(1, "is not that of", "export", f"{folder}/drive", "-o", f"{folder}/none", "--with-optimizer")
    assert not glob.glob(f"{folder}/none*"), glob.glob(f"{folder}/none*")


@test
def only_whole_models_are_there(folder):
    job = Job(f"{folder}/job")
    out = f"{folder}/out"
    fail(1, "cannot", "export", f"{folder}/nothing", "-o", out)
    os.mkdir(out)
    with open(f"{out}/notes.txt", "w", encoding="utf-8") as f:
        f.write("mine")
    fail(1, out, "export", job.model, "-o", out)
    assert os.listdir(out) == ["notes.txt"]
    shutil.rmtree(out)
    shutil.copytree(job.model, f"{out}.tmp")  # as if killed
    succeed("export", job.model, "-o", out)
    assert not os.path.exists(f"{out}.tmp")
    os.mkdir(f"{folder}/other.tmp")
    with open(f"{folder}/other.tmp/notes.md", "w", encoding="utf-8") as f:
        f.write("mine")
    fail(1, "other.tmp is needed for writing, but holds notes.md", "export", job.model, "-o", f"{folder}/other")
    assert os.listdir(f"{folder}/other.tmp") == ["notes.md"]
    fail(1, out, "export", job.model, "-o", out)
    succeed("export", job.model, "-o", out, "--overwrite", "--dtype", "bf16")
    with open(f"{job.model}/model.safetensors", "r+b") as f:
        f.truncate(os.path.getsize(f.name) - 4)
    fail(1, "model.safetensors", "export", job.model, "-o", out, "--overwrite")
    assert {t[0] for t in tensors(out).values()} == {"BF16"}, "what was there is not any more"
    fail(2, "--dtype fp16 is for export", "eval", "--model", out, "--data", job.data, "--dtype", "fp16")


@test
def a_stopped_copy_leaves_nothing(folder):
    """Of export and init, whatever the signal."""
    with open(f"{folder}/config.json", "w", encoding="utf-8") as f:
        json.dump({**CONFIG, "hidden_size": 1024, "intermediate_size": 4096}, f)
    succeed("init", f"{folder}/config.json", "-o", f"{folder}/model")
    for verb in (("export", f"{folder}/model", "--dtype", "fp16"), ("init", f"{folder}/config.json")):
        for number in (signal.SIGINT, signal.SIGTERM):
            out = f"{folder}/out"
            with open(f"{folder}/said", "w", encoding="utf-8") as said:
                ran = subprocess.Popen([PENSTOCK, *verb, "-o", out], stderr=said)
            assert wait_for(lambda: os.path.exists(out + ".tmp"), ran), "it was done too soon to be stopped"
            ran.send_signal(number)
            assert ran.wait(60) == 1, ran.returncode
            with open(f"{folder}/said", encoding="utf-8") as f:
                lines = f.read().splitlines()
            assert len(lines) == 1 and lines[0].startswith("error: stopped"), lines
            assert not os.path.exists(out) and not os.path.exists(out + ".tmp"), os.listdir(folder)


@test
def files_for_llama_cpp(folder):
    """Their contents are tests/data/test_prepare_gguf.py's business."""
    python = os.path.join(os.environ.get("PEN_ROOT", "."), ".venv", "bin", "python3")
    stories = os.path.join(os.environ.get("PEN_ROOT", "."), "..", "shared", "data", "models", "stories260K-hf")
    if subprocess.run([python, "-c", "import gguf, penstock_prepare"], check=False).returncode:
        raise Skip("the package gguf is not installed: run tools/setup")
    if not os.path.exists(stories):
        raise Skip(f"{stories} is not there")
    sizes = []
    for kind in ("F32", "F16", "BF16", "Q8_0"):
        done = succeed("export", stories, "-o", f"{folder}/out", "--overwrite", "--gguf", kind)
        assert f"model-{kind}.gguf: 47 tensors, {kind}" in done.stderr, done.stderr
        with open(f"{folder}/out/model-{kind}.gguf", "rb") as f:
            assert f.read(4) == b"GGUF"
        sizes.append(os.path.getsize(f"{folder}/out/model-{kind}.gguf"))
    assert sizes[0] > sizes[1] == sizes[2] > sizes[3], sizes
    succeed("verify", f"{folder}/out")
    # a model that llama.cpp would compute otherwise: one line, and the export beside it is whole
    os.mkdir(f"{folder}/other")
    for name in os.listdir(stories):
        shutil.copyfile(f"{stories}/{name}", f"{folder}/other/{name}")  # not their modes: they may be read-only
    with open(f"{folder}/other/config.json", encoding="utf-8") as f:
        config = json.load(f)
    with open(f"{folder}/other/config.json", "w", encoding="utf-8") as f:
        json.dump({**config, "hidden_act": "gelu"}, f)
    done = fail(1, "hidden_act is gelu", "export", f"{folder}/other", "-o", f"{folder}/gelu", "--gguf", "F16")
    assert sum(line.startswith("error:") for line in done.stderr.splitlines()) == 1, done.stderr
    assert f"error: {folder}/gelu is written and whole, but no GGUF file in it: " in done.stderr, done.stderr
    succeed("verify", f"{folder}/gelu")
    fail(2, "F32 | F16 | BF16 | Q8_0", "export", stories, "-o", f"{folder}/other", "--gguf", "Q4_0")


main()
