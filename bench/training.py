"""Training runs for benches: a model of random weights, random tokens, the machine's
profile, what `penstock plan` makes of them, and the times of a run's steps.
"""

import array
import json
import os
import random
import shutil
import subprocess
import sys

import report

PENSTOCK = os.path.join(report.BUILD, "src", "cli", "penstock")
STATE_FORMATS = ("fp32", "split32", "bf16", "int8")

# The shapes of SmolLM2-135M.
CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
    "hidden_size": 576, "intermediate_size": 1536, "num_attention_heads": 9,
    "num_key_value_heads": 3, "num_hidden_layers": 30, "vocab_size": 49152,
    "max_position_embeddings": 8192, "rms_norm_eps": 1e-05, "rope_theta": 100000.0,
    "tie_word_embeddings": True, "torch_dtype": "bfloat16", "bos_token_id": 1, "eos_token_id": 2,
}


def fail(message):
    print(f"{os.path.basename(sys.argv[0])}: {message}", file=sys.stderr)
    sys.exit(1)


def call(*arguments, **more):
    done = subprocess.run([PENSTOCK, *arguments], capture_output=True, text=True, **more)
    if done.returncode:
        fail(f"penstock {arguments[0]}: {done.stderr.strip().splitlines()[-1]}")
    return done.stdout


def plan(*options):
    """What `penstock plan` says; None where the run does not fit."""
    done = subprocess.run([PENSTOCK, "plan", "-o", "json", *options], capture_output=True, text=True, check=False)
    if done.returncode not in (0, 3):
        fail(f"penstock plan: {done.stderr.strip()}")
    return json.loads(done.stdout) if done.returncode == 0 else None


class Job:
    """A model and tokens in a folder on the drive that is measured."""

    def __init__(self, folder, config, length, sequences):
        self.folder, self.length, self.sequences = folder, length, sequences
        os.makedirs(self.path("drive"), exist_ok=True)
        with open(self.path("config.json"), "w", encoding="utf-8") as f:
            json.dump(config, f)
        if not os.path.exists(self.path("model/config.json")):
            call("init", self.path("config.json"), "--output-dir", self.path("model"))
        self.write_tokens(config["vocab_size"])

    def path(self, name):
        return os.path.join(self.folder, name)

    def write_tokens(self, vocabulary):
        draw = random.Random(1)
        count = self.length * self.sequences + 1
        ids = array.array("I", (draw.randrange(vocabulary) for _ in range(count)))
        with open(self.path("tokens.u32"), "wb") as f:
            ids.tofile(f)

    def remove(self):
        for name in ("run", "drive", "model"):
            shutil.rmtree(self.path(name), ignore_errors=True)
        for name in ("config.json", "tokens.u32", "profile.json"):
            if os.path.exists(self.path(name)):
                os.remove(self.path(name))

    def options(self, batch, accumulation, more):
        return ["--model", self.path("model"), "--data", self.path("tokens.u32"),
                "--max-length", str(self.length), "--per-device-train-batch-size", str(batch),
                "--gradient-accumulation-steps", str(accumulation), *more]

    def measure_machine(self, bench_size, repeats, enter=None):
        """Into the job's profile, new.  enter: as in train."""
        if os.path.exists(self.path("profile.json")):
            os.remove(self.path("profile.json"))
        call("bench", "all", "--profile", self.path("profile.json"), "--nvme-path",
             self.path("drive"), "--bench-size", str(bench_size), "--repeats", str(repeats),
             preexec_fn=enter)

    def plan(self, options, profile=None):
        found = json.loads(call("plan", "--profile", profile or self.path("profile.json"), "-o",
                                "json", *options))
        if not found["fits"]:
            fail(f"the run does not fit: it needs {found['bytes']} bytes by tier")
        return found

    def train(self, options, steps, enter=None, skips_all=False):
        """Lines of the log, and the peak of resident memory in bytes.  enter: called
        in the new process before it is penstock; skips_all: no step is to train
        anything, which penstock says at the end."""
        command = [PENSTOCK, "train", "--output-dir", self.path("run"), "--overwrite",
                   "--max-steps", str(steps), "--learning-rate", "1e-5", "--state-after-run",
                   "discard", *options]
        with open(self.path("train.log"), "w", encoding="utf-8") as log:
            child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                     preexec_fn=enter)
            try:
                _, status, usage = os.wait4(child.pid, 0)
            except BaseException:  # told to end
                child.kill()
                child.wait()
                raise
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            with open(self.path("train.log"), encoding="utf-8") as log:
                last = "".join(log.read().strip().splitlines()[-1:])
            if not (skips_all and "nothing was trained" in last):
                fail(f"penstock train: status {child.returncode}: {last}")
        os.remove(self.path("train.log"))
        with open(self.path("run/log.jsonl"), encoding="utf-8") as log:
            lines = [json.loads(line) for line in log]
        return [line for line in lines if "step_seconds" in line], usage.ru_maxrss * 1024


# The first has no update to apply, in the second rings are still filling.
FIRST_STEADY_STEP = 3


def steady_seconds(lines):
    return [line["step_seconds"] for line in lines if line["step"] >= FIRST_STEADY_STEP]
