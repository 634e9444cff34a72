"""`penstock plan` against `train --dry-run`, against sums done here, and against
a real run's allocations' order of magnitude; it leaves nothing behind.

    test_plan.py PENSTOCK
"""
import json
import os
import re
import subprocess

from penstock import PENSTOCK, Job, Skip, fail, main, run, same_weights, succeed, test, tier_bytes

PROFILE = {
    "version": 1, "name": "test", "cores": 2, "fp32_flops": 2e11, "fp32_flops_per_core": 1e11,
    "bf16_flops": 4e11, "bf16_flops_per_core": 2e11, "dram_read_bytes_per_s": 2e10,
    "dram_write_bytes_per_s": 1e10, "dram_update_bytes_per_s": 1.5e10, "upload_bytes_per_s": 1e10,
    "download_bytes_per_s": 1e10, "adam_parameters_per_s_per_core": 5e8,
    "drives": [{"read_bytes_per_s": 2e9, "write_bytes_per_s": 1e9, "latency_s": 1e-4, "sync_s": 1e-3}],
}
HOST = ("--host-memory", "4GiB", "--threads", "2")


def write_profile(folder, **changes):
    path = os.path.join(folder, "machine.json")
    with open(path, "w", encoding="utf-8") as f:
        json.dump({**PROFILE, **changes}, f)
    return path


def plan(job, *options, **more):
    return json.loads(succeed("plan", *job.options, *HOST, "-o", "json", *options, **more).stdout)


def files_below(folder):
    return sorted(os.path.join(at, name) for at, _, names in os.walk(folder) for name in names)


def drives(folder):
    state = os.path.join(folder, "state")
    os.makedirs(state, exist_ok=True)
    return "--nvme-path", state, "--offload-optimizer", "nvme"


@test
def the_bytes_are_those_of_train(folder):
    job = Job(folder)
    nvme = drives(folder)
    profile = write_profile(folder)
    before = files_below(folder)
    for options in ((), nvme, ("--host-mode", "discrete"), ("--recompute", "all")):
        said = succeed("train", *job.options, *HOST, *options, "-o", job.path("out"), "--dry-run",
                       "--profile", profile).stderr
        totals = {tier: int(n) for tier, n in re.findall(r"^(\w+) +[\d.]+ \w+  \((\d+) bytes\)", said, re.M)}
        got = plan(job, *options, "--profile", profile)
        assert got["fits"] and totals["host"] > 1 << 20
        for tier, total in totals.items():
            assert got["bytes"][tier] == total, f"{options}: {tier} {got['bytes'][tier]}, train takes {total}"
        listed = sum(row["bytes"] for row in got["allocations"])
        assert listed == sum(got["bytes"].values())
    left = [name for name in files_below(folder) if name not in before and not name.startswith(job.path("out"))]
    assert not left, left


@test
def nothing_is_written(folder):
    job = Job(folder)
    nvme = drives(folder)
    profile = write_profile(folder)
    before = files_below(folder)
    plan(job, *nvme, "--profile", profile, env={**os.environ, "HOME": folder})
    assert files_below(folder) == before


@test
def what_does_not_fit_is_status_3(folder):
    job = Job(folder)
    done = fail(3, ["does not fit", "bytes"], "plan", *job.options, "--host-memory", "26MiB", "-o", "json")
    got = json.loads(done.stdout)
    assert got["fits"] is False and got["bytes"]["host"] > 26 << 20
    room = os.statvfs(folder)
    state = drives(folder)
    done = fail(3, "--nvme-memory allows", "plan", *job.options, *HOST, *state, "--nvme-memory", "1MiB")
    assert room.f_bavail and "optimizer state" in done.stdout


@test
def the_step_is_bound_by_what_is_slow(folder):
    job = Job(folder)
    state = drives(folder)
    slow = [{"read_bytes_per_s": 2e6, "write_bytes_per_s": 1e6}]
    got = plan(job, *state, "--profile", write_profile(folder, drives=slow))
    time, written = got["time"], got["drives"]["written_bytes_per_step"]
    assert written > 1e6
    least = written / 1e6 + written / 2e6  # one drive, as many bytes read, taking turns
    assert least <= time["seconds_per_step"] * (1 + 1e-9), time
    assert time["seconds_per_step"] < 1.05 * least, (time["seconds_per_step"], least)
    assert time["binds"] == "drive 1 reads and writes", time["binds"]
    assert 1.9 < time["speedup_if_twice"]["drives"] <= 2.0001
    assert time["speedup_if_twice"]["memory"] < 1.05
    assert abs(got["tokens_per_step"] / time["seconds_per_step"] / time["tokens_per_second"] - 1) < 1e-12
    quick = [{"read_bytes_per_s": 2e12, "write_bytes_per_s": 1e12}]
    got = plan(job, *state, "--profile", write_profile(folder, drives=quick, fp32_flops=1e6))
    assert got["time"]["binds"] == "cores" and got["time"]["speedup_if_twice"]["drives"] < 1.01


@test
def equal_plans_are_equal(folder):
    job = Job(folder)
    options = (*drives(folder), "--profile", write_profile(folder))
    assert plan(job, *options) == plan(job, *options)


@test
def wear_is_a_share_of_the_rated_life(folder):
    job = Job(folder)
    profile = write_profile(folder)
    got = plan(job, *drives(folder), "--profile", profile, "--tbw", "1TB")["drives"]
    written = got["written_bytes_per_step"]
    assert got["written_bytes_per_1000_steps"] == 1000 * written
    assert abs(got["tbw_share_per_1000_steps"] - 1000 * written / 1e12) < 1e-12
    assert abs(got["steps_to_tbw"] * written / 1e12 - 1) < 1e-9
    text = succeed("plan", *job.options, *HOST, *drives(folder), "--profile", profile, "--tbw", "1TB").stdout
    assert "this run of 20 steps" in text and "per 1000 steps" in text


@test
def a_config_alone_can_be_planned(folder):
    job = Job(folder)
    config = job.path("config.json")
    profile = write_profile(folder)
    options = ("--max-length", "32", "--batch-size", "2", "-o", "json", "--profile", profile, *HOST)
    by_config = json.loads(succeed("plan", "--model", config, *options).stdout)
    by_weights = json.loads(succeed("plan", "--model", job.model, *options).stdout)
    for key in ("parameters", "tokens_per_step", "tiles", "bytes", "time"):
        assert by_config[key] == by_weights[key], key
    assert by_config["tokens_per_step"] == 64


@test
def the_profile_is_asked_for(folder):
    job = Job(folder)
    env = {**os.environ, "HOME": folder, "XDG_CONFIG_HOME": ""}
    got = succeed("plan", *job.options, *HOST, env=env).stdout
    assert "penstock bench all" in got and "tokens/s" not in got
    assert "time" not in plan(job, env=env)
    fail(1, "nowhere.json", "plan", *job.options, *HOST, "--profile", job.path("nowhere.json"), env=env)
    os.makedirs(job.path(".config/penstock"))
    os.rename(write_profile(folder), job.path(".config/penstock/machine.json"))
    assert "time" in plan(job, env=env)


@test
def a_profile_that_lacks_something_leaves_the_time_open(folder):
    """As after `penstock bench memory` alone: bytes are told, and what to measure."""
    job = Job(folder)
    for bench, place, lacks in (("nvme", drives(folder), {"drives": []}), ("adam", (), {"adam_parameters_per_s_per_core": 0})):
        options = (*job.options, *HOST, *place, "--profile", write_profile(folder, **lacks))
        done = succeed("plan", *options)
        assert re.search(rf"^time +not known: .*penstock bench {bench}", done.stdout, re.M), done.stdout
        assert done.stderr.count("by the fixed rule") == 1, done.stderr
        assert "time" not in plan(job, *place, "--profile", write_profile(folder, **lacks))
        swept = succeed("plan", *options, "--sweep", "ram=1GiB,2GiB")
        assert "no profile" in swept.stdout and swept.stderr.count(f"penstock bench {bench}") == 1, swept.stderr
        fail(2, f"penstock bench {bench}", "plan", *options, "--trace", job.path("timeline.json"))


@test
def the_timeline_has_every_lane(folder):
    job = Job(folder)
    trace = job.path("timeline.json")
    got = plan(job, *drives(folder), "--profile", write_profile(folder), "--trace", trace)
    with open(trace, encoding="utf-8") as f:
        events = [e for e in json.load(f)["traceEvents"] if e["ph"] == "X"]
    end = max(e["ts"] + e["dur"] for e in events) - min(e["ts"] for e in events)
    assert abs(end / 1e6 / got["time"]["seconds_per_step"] - 1) < 0.01
    assert {"forward", "backward", "read tile", "write tile", "update"} <= {e["name"] for e in events}
    done = run("plan", *job.options, *HOST, "--trace", trace, env={**os.environ, "HOME": folder})
    assert done.returncode == 2 and "--trace needs a machine profile" in done.stderr


def shape(folder, **changes):
    """A model of 1.2 billion parameters, without weights."""
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 2048, "intermediate_size": 8192,
              "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
              "max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "rope_theta": 5e5, "tie_word_embeddings": True,
              "torch_dtype": "bfloat16", **changes}
    path = os.path.join(folder, "config.json")
    with open(path, "w", encoding="utf-8") as f:
        json.dump(config, f)
    return path


GPU = ("--gpu", "rtx4090", "--cores", "16", "--memory-bandwidth", "65GB/s", "--max-length", "1024", "-b", "8")
WORKSTATION = (*GPU, "--offload-gradients", "cpu")  # and so the state not on the device
DRIVE = ("--drive-read", "7GB/s", "--drive-write", "5GB/s")


def plan_shape(folder, *options):
    return json.loads(succeed("plan", "--model", shape(folder), "--profile", write_profile(folder, drives=[]), *options,
                              "-o", "json").stdout)


@test
def a_machine_can_be_described(folder):
    many = plan_shape(folder, *WORKSTATION, "--ram", "64GiB", "--gradient-accumulation-steps", "4")
    assert many["fits"] and many["time"]["binds"] == "device" and many["bytes"]["nvme"] == 0
    # 32 x 1,024 tokens of at least 6 operations a parameter on a GPU of 165.2 TFLOP/s.
    least = 32 * 1024 * 6 * 1.2e9 / 165.2e12
    assert least < many["time"]["seconds_per_step"] < 1.6 * least, (least, many["time"])
    assert many["bytes"]["device"] < 24 << 30
    # Of 8,192 tokens AdamW's 28 bytes a parameter take longer.
    ram = plan_shape(folder, *WORKSTATION, "--ram", "64GiB")
    assert ram["time"]["binds"] == "memory" and ram["time"]["seconds_per_step"] > 28 * 1.2e9 / 65e9
    disk = plan_shape(folder, *WORKSTATION, "--ram", "12GiB", *DRIVE)
    assert disk["fits"] and disk["bytes"]["host"] <= 12 << 30 and disk["bytes"]["nvme"] > 12e9
    assert disk["time"]["seconds_per_step"] > ram["time"]["seconds_per_step"]
    more = {c["what"]: c["speedup"] for c in disk["changes"]}
    assert more["a drive more"] > 1.3 and list(more.values()) == sorted(more.values(), reverse=True), more
    two = plan_shape(folder, *WORKSTATION, "--ram", "12GiB", *DRIVE, "--drives", "2")
    gain = disk["time"]["seconds_per_step"] / two["time"]["seconds_per_step"]
    assert abs(gain / more["a drive more"] - 1) < 1e-6, (gain, more)


@test
def a_device_with_room_keeps_state(folder):
    """Less RAM, and no update that waits for it."""
    away = plan_shape(folder, *WORKSTATION, "--ram", "64GiB")
    near = plan_shape(folder, *GPU, "--ram", "64GiB")
    assert near["bytes"]["host"] < away["bytes"]["host"] - 5e9 and near["bytes"]["device"] < 24 << 30, near["bytes"]
    assert near["time"]["seconds_per_step"] < away["time"]["seconds_per_step"] / 1.1, (near["time"], away["time"])
    fail(3, "of device memory", "plan", "--model", shape(folder), *GPU, "--profile", write_profile(folder, drives=[]),
         "--ram", "64GiB", "--device-memory", "12GiB", "--offload-optimizer", "none")
    fail(2, "leave out --offload-params", "plan", "--model", shape(folder), *GPU, "--profile",
         write_profile(folder, drives=[]), "--offload-optimizer", "none", "--offload-params", "cpu")


@test
def what_would_make_it_fit(folder):
    options = ("plan", "--model", shape(folder), *WORKSTATION, "--profile", write_profile(folder, drives=[]))
    done = fail(3, "does not fit", *options, "--ram", "12GiB", "-o", "json")
    changes = [c["what"] for c in json.loads(done.stdout)["changes"]]
    assert re.fullmatch(r"a drive with [\d.]+ GiB for state \(--nvme-path DIR\)", changes[0]), changes
    (more,) = [c for c in changes if re.fullmatch(r"[\d.]+ \wiB more RAM", c)]
    missing = float(more.split()[0])
    succeed(*options, "--ram", f"{12 + missing + 1.5}GiB")
    assert "fits with" in fail(3, "does not fit", *options, "--ram", "12GiB").stdout


UNITS = {"MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


def follow(way, host):
    """Options for what a line of advice says, and the RAM with it."""
    options = []
    for part in way.split(" and "):
        if part.startswith("--"):
            options += part.split()
        elif part.startswith("a drive"):
            options += DRIVE
        elif part.startswith("a GPU"):
            options += ["--gpu", re.search(r"--gpu (\S+)\)", part).group(1)]
        else:
            number, unit = re.fullmatch(r"([\d.]+) (\wiB) more RAM", part).groups()
            host += int(float(number) * UNITS[unit] * 1.005)  # three digits are printed
    return options, host


@test
def every_way_makes_it_fit(folder):
    """Each line, followed, is a plan that fits; the cheapest come first; and nothing is left that a line says is too much."""
    profile = ("--profile", write_profile(folder, drives=[]))
    for gpu, host, more in (("rtx3060", 8 << 30, ("--max-length", "8192", "-b", "16")),
                            ("rtx3080", 12 << 30, ("--max-length", "4096", "-b", "4")),
                            (None, 6 << 30, ("--max-length", "1024", "-b", "8"))):
        base = ["plan", "--model", shape(folder), "--cores", "8", *profile]
        device = ["--gpu", gpu] if gpu else []
        done = fail(3, "does not fit", *base, *device, *more, "--host-memory", host, "-o", "json")
        ways = [c["what"] for c in json.loads(done.stdout)["changes"]]
        assert ways and not any("GPU" in way for way in ways[:1]), ways
        for way in ways:
            options, ram = follow(way, host)
            replaced = device if "--gpu" not in options else []
            succeed(*base, *replaced, *more, *options, "--host-memory", ram)
            if "more RAM" in way:
                fail(3, "does not fit", *base, *replaced, *more, *options, "--host-memory", host + (ram - host) * 7 // 10)


@test
def the_search_is_never_slower_than_the_rule(folder):
    said = succeed("train", *Job(folder).options, *HOST, *drives(folder), "-o", os.path.join(folder, "out"), "--dry-run",
                   "--profile", write_profile(folder)).stderr
    tried, best, rule = re.search(r"fastest of (\d+) simulated, ([\d.e-]+) s a step; the fixed rule's takes ([\d.e-]+) s",
                                  said).groups()
    assert int(tried) > 5 and float(best) <= float(rule)
    slow = ("--ram", "12GiB", *DRIVE, "--gradient-accumulation-steps", "4")
    chosen = plan_shape(folder, *WORKSTATION, *slow)
    for options in (("--group-size", "1"), ("--recompute", "all"), ("--tile-slots", "2")):
        fixed = plan_shape(folder, *WORKSTATION, *slow, *options)
        assert chosen["time"]["seconds_per_step"] <= fixed["time"]["seconds_per_step"] * 1.006, options


@test
def a_sweep_is_a_plan_for_each_value(folder):
    options = (*WORKSTATION, *DRIVE, "--ram", "16GiB")
    figure = os.path.join(folder, "ram.svg")
    got = plan_shape(folder, *options, "--sweep", "ram=1GiB,16GiB,64GiB", "--plot", figure)
    assert got["option"] == "ram" and [p["fits"] for p in got["points"]] == [False, True, True]
    one = plan_shape(folder, *options)
    assert got["points"][1]["seconds_per_step"] == one["time"]["seconds_per_step"]
    assert got["points"][2]["tokens_per_second"] > got["points"][1]["tokens_per_second"]
    with open(figure, encoding="utf-8") as f:
        text = f.read()
    assert text.startswith("<svg") and text.rstrip().endswith("</svg>") and "64GiB" in text and "does not fit" in text
    page = os.path.join(folder, "ram.html")
    plan_shape(folder, *options, "--sweep", "ram=1GiB,16GiB,64GiB", "--plot", page)
    with open(page, encoding="utf-8") as f:
        assert f.read() == "<!DOCTYPE html>\n<meta charset='utf-8'>\n<title>penstock plan</title>\n" + text
    config = ("plan", "--model", shape(folder), *WORKSTATION)
    fail(2, "no option --rams", *config, "--sweep", "rams=1,2")
    fail(2, "ram=32GiB,64GiB", *config, "--sweep", "ram")
    fail(2, "1,,2", *config, "--sweep", "cores=1,,2")
    fail(2, "a size such as", *config, "--sweep", "ram=much")
    fail(2, "--sweep NAME", *config, "--plot", figure)
    fail(2, ".svg or .html", *config, "--sweep", "ram=8GiB", "--plot", os.path.join(folder, "a.png"))
    fail(2, "-o yaml writes one plan", *config, "--sweep", "ram=8GiB", "-o", "yaml")


@test
def a_plan_is_a_file_of_options(folder):
    job = Job(folder)
    profile = write_profile(folder)
    options = (*job.options, *HOST, *drives(folder), "--profile", profile)
    path = job.path("plan.yaml")
    with open(path, "w", encoding="utf-8") as f:
        f.write(succeed("plan", *options, "-o", "yaml").stdout)
    said = succeed("train", "-c", path, "-o", job.path("out"), "--dry-run").stderr
    asked = succeed("train", *options, "-o", job.path("out"), "--dry-run").stderr
    table = re.compile(r"^ +[\d.]+ \w+  .*$|^\w+ +[\d.]+ \w+  \(\d+ bytes\)$", re.M)
    assert table.findall(said) == table.findall(asked) and len(table.findall(said)) > 10


@test
def what_would_make_it_fit_together(folder):
    """Neither a drive nor a smaller batch helps alone."""
    options = ("plan", "--model", shape(folder), "--gpu", "rtx3060", "--cores", "8", "--ram", "8GiB", "--max-length", "8192",
               "-b", "16", "--profile", write_profile(folder, drives=[]))
    done = fail(3, "does not fit", *options, "-o", "json")
    changes = [c["what"] for c in json.loads(done.stdout)["changes"]]
    first = changes[0].split(" and ")
    assert first[0].startswith("a drive with ") and first[1].startswith("--per-device-train-batch-size "), changes
    succeed(*options[:-2], *first[1].split(), *DRIVE, "--profile", write_profile(folder))


@test
def threads_are_chosen(folder):
    """An optimizer that waits for memory leaves cores to products."""
    options = ("--ram", "64GiB", "--cores", "16", "--max-length", "1024", "-b", "1")
    chosen = plan_shape(folder, *options)
    assert chosen["update_threads"] < chosen["threads"] == 16, (chosen["threads"], chosen["update_threads"])
    fixed = plan_shape(folder, *options, "--update-threads", "16")
    assert fixed["update_threads"] == 16
    assert chosen["time"]["seconds_per_step"] < 0.97 * fixed["time"]["seconds_per_step"], (chosen["time"], fixed["time"])
    text = succeed("plan", "--model", shape(folder), "--profile", write_profile(folder, drives=[]), *options, "-o", "yaml").stdout
    assert f"update-threads: {chosen['update_threads']}\n" in text, text


@test
def a_run_takes_the_threads_that_were_chosen(folder):
    job = Job(folder)
    profile = ("--profile", write_profile(folder, dram_update_bytes_per_s=4e8, fp32_flops=6e9, fp32_flops_per_core=3e9))
    said = succeed("train", *job.options, *HOST, *profile, "-o", job.path("out")).stderr
    assert plan(job, *profile)["update_threads"] == 1 and " and 1 update threads" in said, said
    succeed("train", *job.options, *HOST, "--update-threads", "2", *profile, "-o", job.path("plain"))
    same_weights(job.path("out"), job.path("plain"))


@test
def the_tile_stays_with_the_run(folder):
    """Found once; on resume state is not moved for another one."""
    job = Job(folder, intermediate_size=8192)
    options = (*job.options, *HOST, *drives(folder), "--profile", write_profile(folder), "-o", job.path("out"))
    succeed("train", *options, "--tile-size", "768KiB", "--max-steps", "2")
    with open(job.path("out/run.json"), encoding="utf-8") as f:
        before = json.load(f)
    assert before["tile_elems"] == 65536 and before["stores"][-1]["generation"] == 0, before
    succeed("train", *options, "--max-steps", "4", "--resume")
    with open(job.path("out/run.json"), encoding="utf-8") as f:
        after = json.load(f)
    assert after["tile_elems"] == 65536 and after["stores"] == before["stores"], after
    succeed("train", *options, "--max-steps", "6", "--resume", "--tile-size", "1536KiB")
    with open(job.path("out/run.json"), encoding="utf-8") as f:
        moved = json.load(f)
    assert moved["tile_elems"] == 131072 and moved["stores"][-1]["generation"] == 1, moved


@test
def a_tile_is_chosen(folder):
    """Where a drive's latency is long, larger pieces hide more of it."""
    slow = [{"read_bytes_per_s": 2e9, "write_bytes_per_s": 1e9, "latency_s": 0.02, "sync_s": 1e-3}]
    options = ("plan", "--model", shape(folder), "--max-length", "1024", "-b", "1", "--ram", "12GiB", "--drives", "1",
               "--profile", write_profile(folder, drives=slow), "-o", "json")
    chosen, fixed = (json.loads(succeed(*options, *more).stdout) for more in ((), ("--tile-size", "12MiB")))
    assert chosen["tile_bytes"] > fixed["tile_bytes"] == 12 << 20, (chosen["tile_bytes"], fixed["tile_bytes"])
    assert chosen["time"]["seconds_per_step"] < fixed["time"]["seconds_per_step"] * 0.995


@test
def device_memory_is_used_to_the_block(folder):
    """What is asked for is what the rule takes, to one block's weights; a search may find less faster."""
    # The slots of a ring, not only the bytes at home, change by whole blocks.  Gradients in
    # RAM keep state there: with state a block's share is eight times its weights.
    config = shape(folder, vocab_size=16384)
    options = ("plan", "--model", config, "--host-mode", "discrete", "--offload-gradients", "cpu", "--host-memory", "64GiB",
               "--max-length", "64", "-b", "1", "--threads", "2", "-o", "json")
    block = 2 * (2 * 2048 * 2048 + 2 * 2048 * 512 + 3 * 2048 * 8192 + 2 * 2048) + (1 << 20)
    everything = json.loads(succeed(*options).stdout)["bytes"]["device"]
    seen = set()
    for tenths in range(4, 10):
        wish = everything * tenths // 10
        got = json.loads(succeed(*options, "--device-memory", wish).stdout)["bytes"]["device"]
        assert wish - 2 * block <= got <= wish, f"{got} bytes of {wish}, a block has {block}"
        seen.add(got)
    assert len(seen) == 6, seen


@test
def a_cgroup_s_limit_is_a_limit(folder):
    """Before anything is taken: the table and status 3, not a signal."""
    job = Job(folder, intermediate_size=8192)
    fixed = ("--recompute", "none", "--recompute-logits", "none", "--group-size", "1", "--weight-slots", "3",
             "--gradient-slots", "2", "--tile-slots", "4")
    args = [PENSTOCK, *map(str, job.args(job.path("out"), *fixed))]
    need = tier_bytes(succeed(*args[1:], "--dry-run"), "host")
    for base, file in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")):
        group = os.path.join(base, f"pen-test-{os.getpid()}")
        try:
            os.mkdir(group)
        except OSError:
            continue
        try:
            with open(os.path.join(group, file), "w", encoding="ascii") as f:
                f.write(str(need - (4 << 20)))
        except OSError:
            os.rmdir(group)
            continue

        def enter(group=group):
            with open(os.path.join(group, "cgroup.procs"), "w", encoding="ascii") as f:
                f.write(str(os.getpid()))
        try:
            done = subprocess.run(args, capture_output=True, text=True, preexec_fn=enter, timeout=120, check=False)
        finally:
            os.rmdir(group)
        assert done.returncode == 3 and "does not fit" in done.stderr and "host " in done.stderr, done
        assert not os.path.exists(job.path("out"))
        return
    raise Skip("no memory cgroup can be made here")


def log_of(output):
    with open(os.path.join(output, "log.jsonl"), encoding="utf-8") as f:
        return [json.loads(line) for line in f]


@test
def micro_batches_are_cut_to_fit(folder):
    """By the first start alone, and only where nobody said how large they are."""
    job = Job(folder, intermediate_size=2048)
    env = {**os.environ, "HOME": folder, "XDG_CONFIG_HOME": ""}
    basic = ("train", "--model", job.model, "--data", job.data, "--max-length", "64", "--save-steps", "2",
             "--recompute", "none", "--recompute-logits", "none", "--gemm", "reference", "--threads", "1")
    dry = (*basic, "--max-steps", "4", "-o", job.path("dry"), "--dry-run")
    bytes_of = {n: tier_bytes(succeed(*dry, "-b", n, "--gradient-accumulation-steps", 8 // n, "--host-memory", "4GiB",
                                      env=env), "host") for n in (8, 4, 2)}
    assert bytes_of[8] > bytes_of[4] > bytes_of[2], bytes_of
    tight = ("--host-memory", str(bytes_of[2] + (64 << 10)))
    output = job.path("cut")
    said = succeed(*basic, *tight, "--max-steps", "2", "-o", output, env=env).stderr
    assert "micro-batches: of 2 sequences instead of 8, 4 of them a step" in said, said
    fail(3, "does not fit", *dry, *tight, "-b", "8", env=env)
    # As if it had been asked for.
    succeed(*basic, "-b", "2", "--gradient-accumulation-steps", "4", "--max-steps", "2", "-o", job.path("asked"), env=env)
    same_weights(output, job.path("asked"))
    # On resume it stays, whatever there is now.
    with open(os.path.join(output, "run.json"), encoding="utf-8") as f:
        assert '"per_device_train_batch_size": 2' in f.read()
    said = succeed(*basic, "--max-steps", "4", "--resume", "-o", output, env=env).stderr
    assert "up to 2 x 4 sequences" in said and "instead of" not in said, said
    assert [line["step"] for line in log_of(output) if "loss" in line] == [1, 2, 3, 4]
    fail(1, "--per-device-train-batch-size", *basic, "--max-steps", "6", "--resume", "-b", "8", "-o", output, env=env)


@test
def micro_batches_are_cut_for_speed(folder):
    """Where the smaller cut keeps state off a slow drive; and a plan as a file says so."""
    options = ("plan", "--model", shape(folder, num_hidden_layers=4, vocab_size=8192), "--max-length", "1024", "--ram", "5GiB", "--cores", "2",
               "--drives", "1", "--profile",
               write_profile(folder, drives=[{"read_bytes_per_s": 3e8, "write_bytes_per_s": 3e8}]))
    got, whole = (json.loads(succeed(*options, *more, "-o", "json").stdout) for more in ((), ("-b", "8")))
    assert whole["micro_batch_sequences"] == 8 and got["micro_batch_sequences"] < 8, got["micro_batch_sequences"]
    assert got["micro_batches"] * got["micro_batch_sequences"] == 8
    assert got["tokens_per_step"] == whole["tokens_per_step"] == 8192
    assert got["time"]["seconds_per_step"] < 0.95 * whole["time"]["seconds_per_step"]
    said = succeed(*options, "-o", "yaml").stdout
    assert f"per-device-train-batch-size: {got['micro_batch_sequences']}\n" in said, said


@test
def slips_in_a_description(folder):
    options = ("plan", "--model", shape(folder), "--profile", write_profile(folder))
    fail(2, ["rtx9000", "rtx4090"], *options, "--gpu", "rtx9000")
    fail(2, "4x16", *options, "--gpu", "l4", "--pcie", "4")
    fail(2, "--gpu NAME", *options, "--pcie", "4x16")
    fail(2, "bytes a second such as", *options, "--drive-read", "fast")
    fail(2, "contradict", *options, "--drives", "2", *drives(folder))
    fail(2, "text or json", "inspect", shape(folder), "-o", "yaml")


main()
