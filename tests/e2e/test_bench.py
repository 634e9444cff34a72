"""`penstock bench`: what it writes, what it refuses to call a drive, and that plan can
use it.  Not how fast anything is.

    test_bench.py PENSTOCK
"""
import csv
import json
import os
import subprocess
import threading
import time

from penstock import Job, Skip, fail, main, run, succeed, test

SMALL = ("--bench-size", "64MiB", "-r", "2", "-o", "json")


def bench(folder, what, *options, **more):
    profile = os.path.join(folder, "made", "machine.json")
    told = json.loads(succeed("bench", what, "--profile", profile, *SMALL, *options, **more).stdout)
    with open(profile, encoding="utf-8") as f:
        assert json.load(f) == told["profile"]
    for row in told["results"]:
        assert 0 < row["least"] <= row["median"] <= row["most"], row
        assert row["runs"] >= 2 and row["unit"].endswith("/s"), row
    return told


def drive_here(folder):
    """Where a drive can be measured; what refuses one is another test's matter."""
    done = run("bench", "nvme", "--nvme-path", folder, "--profile", os.path.join(folder, "probe.json"), *SMALL)
    if done.returncode and "no drive can be measured" in done.stderr:
        raise Skip(done.stderr.splitlines()[-1])
    assert done.returncode == 0, done.stderr
    os.remove(os.path.join(folder, "probe.json"))


@test
def each_part_is_added_to_the_profile(folder):
    first = bench(folder, "memory", "--threads", "1")["profile"]
    assert {"dram_read_bytes_per_s", "dram_write_bytes_per_s", "upload_bytes_per_s"} <= set(first)
    second = bench(folder, "adam", "--threads", "1")
    assert second["profile"]["dram_read_bytes_per_s"] == first["dram_read_bytes_per_s"]
    assert second["profile"]["adam_parameters_per_s_per_core"] > 0
    assert [row for row in second["results"] if "of_ceiling" in row]
    third = bench(folder, "gemm")["profile"]
    assert third["bf16_flops"] > 0 and third["fp32_flops_per_core"] > 0
    assert third["adam_parameters_per_s_per_core"] == second["profile"]["adam_parameters_per_s_per_core"]
    job = Job(folder)
    time_ = json.loads(succeed("plan", *job.options, "--profile", os.path.join(folder, "made", "machine.json"),
                               "-o", "json", "--host-memory", "4GiB").stdout)["time"]
    assert time_["seconds_per_step"] > 0


@test
def a_drive_is_measured_and_left_as_it_was(folder):
    drive_here(folder)
    state = os.path.join(folder, "drive")
    os.mkdir(state)
    told = bench(folder, "nvme", "--nvme-path", state)
    (drive,) = told["profile"]["drives"]
    assert drive["path"] == os.path.realpath(state) and os.listdir(state) == []
    for key in ("read_bytes_per_s", "write_bytes_per_s", "mixed_bytes_per_s", "latency_s", "sync_s"):
        assert drive[key] > 0
    seven = [row for row in told["steps_with_state_on_drives"] if row["parameters"] == 7e9][0]
    assert abs(seven["least_seconds"] * drive["mixed_bytes_per_s"] / (2 * 12 * 7e9) - 1) < 1e-9
    assert seven["written_bytes"] == 12 * 7e9
    again = bench(folder, "nvme", "--nvme-path", state)["profile"]["drives"]
    assert len(again) == 1, "measured again, the drive is the same one"
    fail(2, "less than", "bench", "nvme", "--nvme-path", state, "--bench-size", "8MiB")
    assert os.listdir(state) == []


@test
def what_is_no_drive_is_refused(folder):
    profile = os.path.join(folder, "machine.json")
    fail(2, "--nvme-path", "bench", "nvme", "--profile", profile)
    if not is_tmpfs("/dev/shm"):
        raise Skip("no tmpfs to measure on")
    before = os.listdir("/dev/shm")
    fail(1, ["no drive can be measured", "tmpfs"], "bench", "nvme", "--nvme-path", "/dev/shm", "--profile", profile)
    left = [name for name in os.listdir("/dev/shm") if name.startswith("penstock-bench") and name not in before]
    assert not left and not os.path.exists(profile)


def is_tmpfs(path):
    done = subprocess.run(["stat", "-f", "-c", "%T", path], capture_output=True, text=True)
    return done.stdout.strip() == "tmpfs"


@test
def bytes_in_the_page_cache_are_refused(folder):
    """Somebody reads the file through the cache all the time: then its rates are the cache's."""
    drive_here(folder)
    stop = threading.Event()

    def read():
        while not stop.is_set():
            names = [n for n in os.listdir(folder) if n.startswith("penstock-bench")]
            try:
                with open(os.path.join(folder, names[0]), "rb", buffering=0) as f:
                    f.read(32 << 20)
            except (IndexError, OSError):
                time.sleep(0.001)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        fail(1, "the page cache holds the file", "bench", "nvme", "--nvme-path", folder,
             "--bench-size", "512MiB", "-r", "1", "--profile", os.path.join(folder, "machine.json"))
    finally:
        stop.set()
        reader.join()
    assert os.listdir(folder) == []


@test
def a_stranger_s_profile_is_kept(folder):
    profile = os.path.join(folder, "machine.json")
    with open(profile, "w", encoding="utf-8") as f:
        f.write('{"version": 1, "cores": 2, "colour": "red"}')
    fail(1, ["colour", "move it away"], "bench", "memory", *SMALL[:2], "--profile", profile)
    with open(profile, encoding="utf-8") as f:
        assert "colour" in f.read()


@test
def levels_of_memory_grow_slower(folder):
    options = ("--profile", os.path.join(folder, "machine.json"), "--bench-size", "256MiB", "-r", "3")
    told = json.loads(succeed("bench", "tiers", *options, "-o", "json").stdout)
    rows = told["tiers"]
    assert 1e-10 < told["cycle_seconds"] < 1e-8, told
    assert rows[-1]["name"] == "RAM" and len(rows) <= 5
    for row in rows:
        assert 0 < row["least_seconds"] <= row["latency_seconds"] <= row["most_seconds"], row
        assert abs(row["cycles"] * told["cycle_seconds"] / row["latency_seconds"] - 1) < 1e-9
    if len(rows) > 1:  # by more than any noise
        assert rows[-1]["latency_seconds"] > 3 * rows[0]["latency_seconds"], rows
    assert "cycle = 1 s" in succeed("bench", "tiers", *options).stdout
    assert not os.path.exists(options[1]), "what no plan reads was kept"
    fail(2, "text or json", "bench", "tiers", *options, "-o", "csv")


@test
def every_form_has_the_same_rows(folder):
    def told(form):
        return succeed("bench", "adam", "--profile", os.path.join(folder, "machine.json"), "--bench-size", "64MiB",
                       "-r", "2", "-o", form).stdout.splitlines()

    lines = [json.loads(line) for line in told("jsonl")]
    names = [line["name"] for line in lines]
    assert len(names) >= 2 and all(line["median"] > 0 for line in lines)
    rows = list(csv.DictReader(told("csv")))
    assert [row["what"] for row in rows] == names and all(float(row["median"]) > 0 for row in rows)
    table = [line.split("|")[1].strip() for line in told("md")]
    assert table[0] == "what" and table[2:] == names
    fail(2, "rows of bench", "doctor", "-o", "md")


main()
