"""Stage step: the machine's ceilings, then steps of two model sizes wherever their bytes may lie."""
import json
import os
import shutil

from . import shapes
from .common import Absent, Cut, Failed, Item
from .promises import make_model, write_tokens
from .shapes import TIMED, WARM_UP
from .watch import Watch, exposed

# Where the bytes of a run lie.  "resident" has state and gradients on the device, too.
PLACES = {
    "resident": ("--offload-optimizer", "none", "--offload-params", "none"),
    "state-in-ram": ("--offload-optimizer", "cpu", "--offload-params", "none"),
    "ram": ("--offload-optimizer", "cpu", "--offload-params", "cpu"),
    "disk": ("--offload-optimizer", "nvme", "--offload-params", "cpu", "--durability", "none", "--nvme-path", "DRIVE"),
}
RUNS = [("1.5b", "resident"), ("1.5b", "state-in-ram"), ("1.5b", "ram"), ("7b", "resident"), ("7b", "state-in-ram"),
        ("7b", "ram"), ("1.5b", "disk")]
TRACED = "16k"  # with a timeline, for which a run must end by itself
# About, of a run, loading included: most of 7b is to fill and pin RAM, of the disk runs to move 18 GB each way a step.
SECONDS = {"1.5b": 45, "7b": 150}
SECONDS_OF_DISK = 200
DOES_NOT_FIT = 3  # penstock's exit code


def drive(check):
    folder = os.path.join(check.work, "drive")
    os.makedirs(folder, exist_ok=True)
    return folder


def ceilings(check):
    profile = check.path("machine.json")
    if os.path.exists(profile):
        os.remove(profile)
    size, repeats = ("2MiB", "1") if check.fake else ("2GiB", "5")
    whats = ["memory", "adam", "device"] if check.fake else ["memory", "gemm", "adam", "device", "nvme"]
    rows = []
    for what in whats:
        where = ["--nvme-path", drive(check), "--request-size", "1MiB", "--io-depth", "8"] if what == "nvme" else []
        try:
            done = check.run([check.penstock, "bench", what, "--bench-size", size, "--repeats", repeats, "--device",
                              check.options.device, *where, "--profile", profile, "-o", "json"], 200)
        except Failed as why:
            if what != "nvme":  # a drive that cannot be measured takes nothing from the rest
                raise
            rows.append({"name": f"drive: {why}", "median": None, "unit": "", "least": None, "most": None})
            continue
        rows += json.loads(done.output[done.output.index("{"):done.output.rindex("}") + 1])["results"]
    if os.path.exists(check.path("machine.json")):
        return {"rows": rows}
    raise Failed("bench wrote no profile")


def model(name):
    def do(check):
        folder = make_model(check, name, shapes.config(check, name))
        done = check.run([check.penstock, "inspect", folder, "-o", "json"], 60)
        told = json.loads(done.output[done.output.index("{"):])["parameters"]
        ours = shapes.parameters(check, name)[0]
        if told != ours:
            raise Failed(f"{told} parameters, where {ours} were reckoned")
        return {"parameters": told, "multiplying": shapes.parameters(check, name)[1]}
    return do


def options_of(check, name, place, size):
    batch, micros = shapes.STEPS[size]
    words = ["--model", make_model(check, name, shapes.config(check, name)), "--max-length", shapes.length(check),
             "--per-device-train-batch-size", batch, "--gradient-accumulation-steps", micros, "--dtype", "bf16",
             "--profile", check.path("machine.json")]
    if check.options.host_memory:
        words += ["--host-memory", check.options.host_memory]
    return words + [drive(check) if word == "DRIVE" else word for word in PLACES[place]]


def simulated(check, words):
    """What the simulator says of this very step; None where it cannot."""
    try:
        done = check.run([check.penstock, "plan", *words, "-o", "json"], 60)
        time = json.loads(done.output[done.output.index("{"):done.output.rindex("}") + 1])["time"]
    except (Cut, Failed, ValueError, KeyError) as why:
        check.log(f"no plan: {why}")
        return None
    least = max(time["resources"], key=lambda resource: resource["least_seconds"])
    return {"seconds": time["seconds_per_step"], "binds": time["binds"], "bound_seconds": least["least_seconds"],
            "bound": least["name"], "critical_seconds": time["critical_seconds"]}


def hiding_tokens(check, name, place):
    """T*: tokens of a step from which on the ceilings allow all that moves to be hidden; weights go
    up twice and gradients come down, AdamW reads and writes 28 bytes, a drive 12 each way."""
    m = shapes.profile(check)
    per_flop = m["device_bf16_flops"] / 6
    needs = {"state-in-ram": [(2, "upload_bytes_per_s"), (2, "download_bytes_per_s"), (28, "dram_update_bytes_per_s")],
             "ram": [(4, "upload_bytes_per_s"), (2, "download_bytes_per_s"), (28, "dram_update_bytes_per_s")]}
    if place == "disk":
        d = (m["drives"] or [{}])[0]
        seconds = 24 / d["mixed_bytes_per_s"] if d.get("mixed_bytes_per_s") else 0
        seconds = max([seconds] + [b / m[key] for b, key in needs["ram"]])
    else:
        seconds = max([b / m[key] for b, key in needs.get(place, [])], default=0)
    everything, multiplying = shapes.parameters(check, name)
    return seconds * per_flop * everything / multiplying


def check_losses(check, name, size, losses):
    """The same steps elsewhere have these very losses."""
    for other, result in check.results("step").items():
        if other.startswith(name + "-") and other.endswith("-" + size) and result.get("losses", losses) != losses:
            raise Failed(f"losses are not those of {other}: {losses}, {result['losses']}")


def run(name, place, size):
    def do(check):
        if not os.path.exists(check.path("machine.json")):
            raise Failed("the item ceilings comes first")
        output, trace = os.path.join(check.work, "run"), os.path.join(check.work, "trace.json")
        shutil.rmtree(output, ignore_errors=True)
        shutil.rmtree(drive(check), ignore_errors=True)
        words = options_of(check, name, place, size)
        steps, traced = WARM_UP + TIMED, size == TRACED
        tokens = write_tokens(os.path.join(check.work, f"{size}.u16"),
                              min(shapes.config(check, name)["vocab_size"], 65536),
                              steps * shapes.tokens_of(check, size) + 1)
        watch = Watch(output, 0 if traced else steps, check.options.device)
        done = check.run([check.penstock, "train", *words, "--data", tokens, "--output-dir", output, "--max-steps",
                          steps, "--learning-rate", "1e-5", "--backend", "cuda", "--device", check.options.device,
                          "--state-after-run", "discard", *(("--trace", trace) if traced else ())], 400,
                         ok=(0, DOES_NOT_FIT), while_it_runs=watch)
        if done.status == DOES_NOT_FIT:
            raise Absent(done.output.strip().splitlines()[-1][:300])
        seconds = [line["step_seconds"] for line in watch.lines()[WARM_UP:]]
        losses = [line["loss"] for line in watch.lines()]
        check_losses(check, name, size, losses)
        result = {"seconds": shapes.median(seconds), "all_seconds": seconds, "losses": losses,
                  "tokens_per_s": shapes.tokens_of(check, size) / shapes.median(seconds),
                  "bound_told": watch.lines()[-1].get("bound"),
                  "placement": [l for l in done.output.splitlines() if l.startswith("placement:")],
                  "planned_bytes": shapes.planned_bytes(done.output), "host_bytes": watch.host_bytes,
                  "device_bytes": watch.device_bytes, "hiding_tokens": hiding_tokens(check, name, place),
                  **shapes.utilisation(check, name, size, shapes.median(seconds))}
        if traced:
            result["exposed_seconds"] = exposed(trace, seconds)
        result["simulated"] = simulated(check, words)
        shutil.rmtree(output, ignore_errors=True)
        return result
    return do


def seconds_of(name, place):
    return SECONDS_OF_DISK if place == "disk" else SECONDS[name]


ITEMS = [Item("ceilings", 90, "rates of link, memories, products, AdamW and drive", ceilings),
         Item("model-1.5b", 20, "a 1.5 B model with random weights", model("1.5b")),
         Item("model-7b", 60, "a 7 B model with random weights", model("7b"))]
for NAME, PLACE in RUNS:
    for SIZE in shapes.STEPS:
        ITEMS.append(Item(f"{NAME}-{PLACE}-{SIZE}", seconds_of(NAME, PLACE),
                          f"steps of {SIZE} tokens of {NAME}, {PLACE}", run(NAME, PLACE, SIZE)))
