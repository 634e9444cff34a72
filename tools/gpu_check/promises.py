"""Stage promises: where bytes lie changes no bit, nor does a second run or a kill; and the CPU is near."""
import array
import hashlib
import json
import os
import random
import shutil

from .common import Failed, Item

LENGTH = 256


def shape(check):
    if check.fake:
        return {"hidden_size": 32, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 2,
                "num_key_value_heads": 1, "vocab_size": 260}
    return {"hidden_size": 512, "intermediate_size": 1408, "num_hidden_layers": 6, "num_attention_heads": 8,
            "num_key_value_heads": 2, "vocab_size": 8192}


def length(check):
    return 16 if check.fake else LENGTH


def write_tokens(path, vocabulary, count, seed=1):
    """Ids that are not all alike: half of them repeat what was eight before."""
    draw = random.Random(seed)
    ids = array.array("H")
    for i in range(count):
        ids.append(ids[i - 8] if i >= 8 and draw.random() < 0.5 else draw.randrange(vocabulary))
    with open(path, "wb") as f:
        ids.tofile(f)
    return path


def make_model(check, name, config):
    """A new model of the work folder, with random weights."""
    folder = os.path.join(check.work, name)
    if not os.path.exists(os.path.join(folder, "config.json")):
        path = folder + ".json"
        with open(path, "w", encoding="utf-8") as f:
            json.dump(config, f)
        check.run([check.penstock, "init", path, "--output-dir", folder, "--overwrite", "--seed", "7"])
    return folder


def base_config(**more):
    return {"model_type": "llama", "hidden_act": "silu", "max_position_embeddings": 65536, "rms_norm_eps": 1e-5,
            "rope_theta": 10000.0, "tie_word_embeddings": False, "torch_dtype": "bfloat16", **more}


class Job:
    """One small model, its tokens, and the options that may change numbers."""

    def __init__(self, check, dtype):
        self.check, self.dtype = check, dtype
        config = base_config(**shape(check))
        self.model = make_model(check, "small", config)
        self.tokens = write_tokens(os.path.join(check.work, "small.u16"), config["vocab_size"],
                                   20 * 4 * length(check))
        self.folder = os.path.join(check.work, "promises-" + dtype)
        shutil.rmtree(self.folder, ignore_errors=True)
        os.makedirs(self.folder)

    def command(self, name, words):
        drive = os.path.join(self.folder, name + ".drive")
        os.makedirs(drive, exist_ok=True)
        return [self.check.penstock, "train", "--model", self.model, "--data", self.tokens, "--output-dir",
                os.path.join(self.folder, name), "--max-steps", "4", "--max-length", length(self.check),
                "--per-device-train-batch-size", "2", "--gradient-accumulation-steps", "2", "--learning-rate",
                "1e-3", "--weight-decay", "0.1", "--dtype", self.dtype, "--backend", "cuda", "--device",
                self.check.options.device, *[drive if word == "DRIVE" else word for word in words]]

    def train(self, name, *words, **more):
        self.check.run(self.command(name, words), 200, **more)
        return self.outcome(name)

    def outcome(self, name):
        """Losses and norms as they were written, and a digest of the weights."""
        folder = os.path.join(self.folder, name)
        with open(os.path.join(folder, "log.jsonl"), encoding="utf-8") as f:
            lines = [json.loads(line) for line in f]
        digest = hashlib.sha256()
        for file in sorted(os.listdir(os.path.join(folder, "model"))):
            if file.endswith(".safetensors"):
                with open(os.path.join(folder, "model", file), "rb") as f:
                    digest.update(f.read())
        return {"losses": [line["loss"] for line in lines], "norms": [line["grad_norm"] for line in lines],
                "weights": digest.hexdigest()}


PLACEMENTS = {
    "a second time": (),
    "weights and activations in RAM": ("--offload-params", "cpu", "--offload-activations", "cpu"),
    "state on a drive": ("--offload-optimizer", "nvme", "--nvme-path", "DRIVE"),
    "all on a drive": ("--offload-optimizer", "nvme", "--offload-params", "nvme", "--offload-gradients", "nvme",
                       "--offload-activations", "nvme", "--nvme-path", "DRIVE"),
    "recomputed, one slot of each": ("--recompute", "all", "--recompute-logits", "all", "--weight-slots", "1",
                                     "--gradient-slots", "1", "--offload-params", "cpu"),
    "micro-batches in one group": ("--group-size", "2"),
    "micro-batches one by one": ("--group-size", "1"),
}


def same_everywhere(dtype):
    def do(check):
        job = Job(check, dtype)
        first = job.train("first")
        differ = [name for name, words in PLACEMENTS.items()
                  if job.train(name.replace(" ", "-").replace(",", ""), *words) != first]
        if differ:
            raise Failed("not the bits of the first run: " + "; ".join(differ))
        return {"losses": first["losses"], "weights": first["weights"], "placements": list(PLACEMENTS)}
    return do


def near_the_host(dtype, share):
    def do(check):
        job = Job(check, dtype)
        device = job.train("device")
        host = job.train("host", "--backend", "host")
        worst = max(abs(a - b) / abs(b) for a, b in zip(device["losses"], host["losses"]))
        if not worst <= share:
            raise Failed(f"losses differ from the host's by {worst:.2e}: {device['losses']}, {host['losses']}")
        return {"greatest_difference": worst, "allowed": share}
    return do


def killed_and_resumed(check):
    job = Job(check, "bf16")
    words = ("--offload-optimizer", "nvme", "--nvme-path", "DRIVE")
    straight = job.train("straight", *words)
    log = os.path.join(job.folder, "killed", "log.jsonl")

    def two_steps_done(child):
        if os.path.exists(log) and os.path.getsize(log):
            with open(log, "rb") as f:
                return f.read().count(b"\n") >= 2
        return False

    check.run(job.command("killed", words), 200, while_it_runs=two_steps_done)
    resumed = job.train("killed", *words, "--resume")
    if resumed != straight:
        raise Failed(f"not the bits of the straight run: {resumed['losses']}, {straight['losses']}")
    return {"losses": resumed["losses"]}


def same_text(check):
    """Ids drawn from the device's logits are the host's, wherever weights lie: fp32 differs in the last bits alone."""
    model = make_model(check, "text", base_config(**{**shape(check), "vocab_size": 256}))  # ids are bytes
    drive = os.path.join(check.work, "text.drive")
    words = ["generate", "--model", model, "--dtype", "fp32", "--prompt", "where bytes lie", "--max-new-tokens", "60",
             "--seed", "3", "-o", "json", "--device", check.options.device]
    ids = {}
    for name, more in (("host", ("--backend", "host")), ("device", ("--backend", "cuda")),
                       ("RAM", ("--backend", "cuda", "--offload-params", "cpu", "--weight-slots", "1")),
                       ("drive", ("--backend", "cuda", "--offload-params", "nvme", "--nvme-path", drive))):
        keep = words if "cuda" in more else words[:-2]
        done = check.run([check.penstock, *keep, *more], 200)
        ids[name] = json.loads(done.output[done.output.index("{"):done.output.rindex("}") + 1])["ids"]
    if differ := [name for name in ids if ids[name] != ids["host"]]:
        raise Failed(f"other tokens than the host's from {', '.join(differ)}: {ids}")
    return {"ids": ids["host"]}


ITEMS = [Item("bf16-bits", 90, "every placement and a second run in bf16, bit for bit", same_everywhere("bf16")),
         Item("fp32-bits", 90, "the same in fp32", same_everywhere("fp32")),
         Item("bf16-near", 60, "losses of the device and of the CPU, bf16", near_the_host("bf16", 5e-3)),
         Item("fp32-near", 60, "the same in fp32", near_the_host("fp32", 1e-5)),
         Item("text", 60, "generated tokens of the device and of the CPU, fp32", same_text),
         Item("resume", 60, "killed and resumed as straight through", killed_and_resumed)]
