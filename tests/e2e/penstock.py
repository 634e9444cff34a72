"""What the end-to-end tests share: tiny models, runs of the real program, and
comparisons of what it left, element by element.

    test_NAME.py PENSTOCK [long]

Everything random comes from one seed, printed and taken from PEN_SEED.
"""
import inspect
import json
import math
import os
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import time

PENSTOCK = os.path.abspath(sys.argv[1])
LONG = "long" in sys.argv[2:]
SEED = int(os.environ.get("PEN_SEED", "20261130"))
RANDOM = random.Random(SEED)
TESTS = []
# And what placement may change.
TIMING = ("tokens_per_second", "step_seconds", "bound", "nvme_written_bytes", "speculation", "updates_redone",
          "updates_discarded")
DTYPES = {"F32": "<f", "BF16": "<H", "F16": "<H"}

# Enough layers and tiles (of 65,536 elements) for every ring to turn, small
# enough for a step of milliseconds.
CONFIG = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 512, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 256, "hidden_act": "silu",
    "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
    "tie_word_embeddings": True, "torch_dtype": "float32",
}
TILE = ("--tile-size", "768KiB")  # the smallest: several tiles in a layer
RECIPE = ("--max-length", "32", "--batch-size", "2", "--learning-rate", "1e-2",
          "--weight-decay", "0.1", "--warmup-steps", "3", "--lr-scheduler-type", "cosine")


class Skip(Exception):
    """The test cannot say anything here; its text says why."""


def test(function):
    TESTS.append(function)
    return function


def main():
    print(f"1..{len(TESTS)}\n# PEN_SEED={SEED}", flush=True)
    good = True
    for number, function in enumerate(TESTS, 1):
        folder, begin = tempfile.mkdtemp(prefix="pen-e2e-"), time.monotonic()
        try:
            function(folder) if inspect.signature(function).parameters else function()
            print(f"ok {number} - {function.__name__}")
        except Skip as why:
            print(f"# skipped: {why}\nok {number} # SKIP {function.__name__}")
        except (AssertionError, OSError, subprocess.TimeoutExpired) as failure:
            good = False
            print(f"not ok {number} - {function.__name__}")
            print("# " + f"{type(failure).__name__}: {failure}".replace("\n", "\n# "))
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        print(f"# {time.monotonic() - begin:.1f} s", flush=True)
    sys.exit(not good)


def run(*args, timeout=120, **more):
    """Runs the program; what it said is in .stdout and .stderr.  A build that is slower by design says how many
    times in PEN_PATIENCE (tools/test-sanitize)."""
    timeout *= float(os.environ.get("PEN_PATIENCE", 1))
    return subprocess.run([*more.pop("prefix", ()), PENSTOCK, *map(str, args)], stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=timeout, **more)


def engines():
    """Engines that drive a drive here: not every build and container has io_uring."""
    facts = {fact["name"]: fact for fact in json.loads(run("doctor", "-o", "json").stdout)["facts"]}
    if facts["io_uring"]["level"] == "OK":
        return ("threads", "uring")
    print(f"# io_uring: {facts['io_uring']['text']}: only the threads engine is tried", flush=True)
    return ("threads",)


def succeed(*args, **more):
    done = run(*args, **more)
    assert done.returncode == 0, f"{args}: status {done.returncode}\n{done.stderr}"
    return done


def fail(status, words, *args, **more):
    """Runs what has to end with this status and one line that has these words."""
    done = run(*args, **more)
    last = done.stderr.splitlines()[-1] if done.stderr else ""
    assert done.returncode == status, f"{args}: status {done.returncode}, not {status}\n{done.stderr}"
    for word in [words] if isinstance(words, str) else words:
        assert word in last, f'{args}: "{word}" is not in the last line\n{done.stderr}'
    return done


class Job:
    """A model, its data and the options that may change numbers."""

    def __init__(self, folder, *options, data_bytes=1400, steps=20, **config):
        os.makedirs(folder, exist_ok=True)
        self.folder = folder
        self.model = os.path.join(folder, "start")
        self.data = os.path.join(folder, "data.txt")
        self.options = ["--model", self.model, "--data", self.data, "--max-steps", steps, *RECIPE, *options]
        with open(self.data, "wb") as f:
            f.write(text(data_bytes))
        path = os.path.join(folder, "config.json")
        with open(path, "w", encoding="utf-8") as f:
            json.dump({**CONFIG, **config}, f)
        succeed("init", path, "-o", self.model, "--seed", "7")
        self.reference = None

    def path(self, name):
        return os.path.join(self.folder, name)

    def args(self, output, *options):
        return ["train", *self.options, "--output-dir", output, *options]

    def train(self, output, *options, **more):
        """A run from its beginning to its end; its directory is new."""
        return succeed(*self.args(output, *options), **more)

    def straight(self, *options):
        """The plain run every other one is held against."""
        if not self.reference:
            output = self.path("straight")
            self.train(output, *options)
            self.reference = output
        return self.reference

    def start(self, output, *options):
        """A run in the background; what it says goes to OUTPUT.said."""
        with open(output + ".said", "a", encoding="utf-8") as said:
            return subprocess.Popen([PENSTOCK, *map(str, self.args(output, *options))],
                                    stdin=subprocess.DEVNULL, stdout=said, stderr=said)

    def half_state(self):
        """Options, beside --nvme-path, with which part of the state goes to drives."""
        options = (*TILE, "--tile-slots", "1", "--recompute", "all")
        done = succeed(*self.args(self.path("plan"), "--dry-run", *options))
        return (*options, "--host-memory", str(tier_bytes(done, "host") - (1 << 20)))

    def check(self, output):
        """Log and weights of a finished run equal the plain run's."""
        same_log(output, self.straight())
        same_weights(output, self.straight())


def tier_bytes(done, tier):
    """Total of a tier in the plan that a run printed."""
    return int(re.search(rf"^{tier} .*\((\d+) bytes\)", done.stderr, re.M).group(1))


def wait_for(condition, process, seconds=60):
    """Polls until the condition holds (True) or the process has ended (False)."""
    end = time.monotonic() + seconds
    while process.poll() is None:
        if condition():
            return True
        assert time.monotonic() < end, "nothing came to wait for"
        time.sleep(0.0005)
    return False


def text(n_bytes, seed=1):
    """Words of a small language: something to learn, the same everywhere."""
    draw = random.Random(seed)
    words = ["".join(draw.choice("abcdefghijklmnop") for _ in range(draw.randint(2, 7))) for _ in range(40)]
    out = ""
    while len(out) < n_bytes:
        out += draw.choice(words) + draw.choice("  \n.,")
    return out[:n_bytes].encode()


def log(output):
    """Lines of log.jsonl without what depends on time."""
    with open(os.path.join(output, "log.jsonl"), encoding="utf-8") as f:
        lines = [json.loads(line) for line in f]
    return [{key: value for key, value in line.items() if key not in TIMING} for line in lines]


def same_log(output, reference):
    got, want = log(output), log(reference)
    for a, b in zip(got, want):
        assert a == b, f"{output}: log differs\ngot  {a}\nwant {b}"
    assert len(got) == len(want), f"{output}: {len(got)} lines in the log, not {len(want)}"


def tensors(path):
    """name -> (dtype, shape, bytes) of a safetensors file, or of a directory's."""
    if os.path.isdir(path):
        found = {}
        for name in sorted(os.listdir(path)):
            if name.endswith(".safetensors"):
                found.update(tensors(os.path.join(path, name)))
        assert found, f"no weights in {path}"
        return found
    with open(path, "rb") as f:
        blob = f.read()
    (n,) = struct.unpack("<Q", blob[:8])
    header, body = json.loads(blob[8:8 + n]), blob[8 + n:]
    return {name: (entry["dtype"], entry["shape"], body[slice(*entry["data_offsets"])])
            for name, entry in header.items() if name != "__metadata__"}


def write_tensors(path, contents):
    header, body = {}, b""
    for name, (dtype, shape, blob) in contents.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(body), len(body) + len(blob)]}
        body += blob
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(head)) + head + body)


def nan_row(model, byte):
    """Makes the embedding of one byte NaN; training data rarely has it."""
    path = os.path.join(model, "model.safetensors")
    contents = tensors(path)
    dtype, shape, blob = contents["model.embed_tokens.weight"]
    row = {"F32": struct.pack("<f", math.nan), "BF16": struct.pack("<H", 0x7fc0)}[dtype] * shape[1]
    width = len(row)
    contents["model.embed_tokens.weight"] = (dtype, shape, blob[:byte * width] + row + blob[(byte + 1) * width:])
    write_tensors(path, contents)


def same_tensors(got, want, where):
    assert list(got) == list(want), f"{where}: tensors are {sorted(got)}, not {sorted(want)}"
    for name in want:
        assert got[name][:2] == want[name][:2], f"{where}: {name} is {got[name][:2]}, not {want[name][:2]}"
        a, b = got[name][2], want[name][2]
        if a == b:
            continue
        form = DTYPES[want[name][0]]
        pairs = list(zip(struct.iter_unpack(form, a), struct.iter_unpack(form, b)))
        differ = [i for i, (x, y) in enumerate(pairs) if struct.pack(form, *x) != struct.pack(form, *y)]
        at = differ[0]
        raise AssertionError(f"{where}: {len(differ)} of {len(pairs)} elements of {name} differ, first "
                             f"[{at}]: {pairs[at][0][0]!r}, not {pairs[at][1][0]!r}")


def same_weights(output, reference):
    same_tensors(tensors(os.path.join(output, "model")), tensors(os.path.join(reference, "model")), output)
