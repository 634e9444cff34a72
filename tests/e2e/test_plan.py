"""`penstock plan` against `train --dry-run`, against sums done here, and against
a real run's allocations' order of magnitude; it leaves nothing behind.

    test_plan.py PENSTOCK
"""
import json
import os
import re

from penstock import Job, fail, main, run, succeed, test

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
        said = succeed("train", *job.options, *HOST, *options, "-o", job.path("out"), "--dry-run").stderr
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
    done = fail(3, ["does not fit", "bytes"], "plan", *job.options, "--host-memory", "66MiB", "-o", "json")
    got = json.loads(done.stdout)
    assert got["fits"] is False and got["bytes"]["host"] > 66 << 20
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
    fail(2, "penstock bench nvme", "plan", *job.options, *HOST, *drives(folder),
         "--profile", write_profile(folder, drives=[]))


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


main()
