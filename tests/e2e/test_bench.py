"""`penstock bench`: what it writes, what it refuses to call a drive, and that plan can
use it.  Not how fast anything is.

    test_bench.py PENSTOCK
"""
import csv
import json
import os
import signal
import subprocess
import time

from penstock import Job, PENSTOCK, Skip, fail, main, run, succeed, test, wait_for

SMALL = ("--bench-size", "64MiB", "-r", "2", "-o", "json")
ONE_POINT = ("--request-size", "64KiB", "--io-depth", "2", "--state-bytes", "12", "-r", "1")
DRIVES = []  # there is one: not asked again


def bench(folder, what, *options, **more):
    profile = os.path.join(folder, "made", "machine.json")
    told = json.loads(succeed("bench", what, "--profile", profile, *SMALL, *options, **more).stdout)
    with open(profile, encoding="utf-8") as f:
        assert json.load(f) == told["profile"]
    for row in told["results"]:
        assert 0 < row["least"] <= row["median"] <= row["most"], row
        assert row["runs"] >= 1 and row["unit"].endswith("/s"), row
        assert ("of_ceiling" in row) == bool(row.get("ceiling")), row
    assert told["command"].startswith(f"penstock bench {what} --profile"), told["command"]
    return told


def names(told):
    return [row["name"] for row in told["results"]]


def drive_here(folder):
    """Where a drive can be measured; what refuses one is another test's matter."""
    if DRIVES:
        return
    done = run("bench", "nvme", folder, "--profile", os.path.join(folder, "probe.json"), *SMALL, *ONE_POINT)
    if done.returncode and "no drive can be measured" in done.stderr:
        raise Skip(done.stderr.splitlines()[-1])
    assert done.returncode == 0, done.stderr
    os.remove(os.path.join(folder, "probe.json"))
    DRIVES.append(folder)


@test
def each_part_is_added_to_the_profile(folder):
    told = bench(folder, "memory", "--threads", "1-2")
    for kind in ("read", "written", "copied", "triad", "in place, 3 arrays"):
        for threads in (1, 2):
            assert f"memory {kind}, {threads} threads" in names(told), names(told)
    for threads in (1, 2):  # one of them is the ceiling of the others
        held = [row for row in told["results"] if row["name"].startswith("memory ")
                and row["name"].endswith(f"{threads} threads")
                and row.get("ceiling", "").endswith(f"{threads} threads")]
        assert len(held) == 4 and all(row["of_ceiling"] <= 1 for row in held), held
    first = told["profile"]
    assert {"dram_read_bytes_per_s", "dram_write_bytes_per_s", "upload_bytes_per_s"} <= set(first)
    second = bench(folder, "adam", "--threads", "1")
    assert second["profile"]["dram_read_bytes_per_s"] == first["dram_read_bytes_per_s"]
    assert second["profile"]["adam_parameters_per_s_per_core"] > 0
    assert [row for row in second["results"] if "of_ceiling" in row]
    told = bench(folder, "gemm")
    third = told["profile"]
    assert third["bf16_flops"] > 0 and third["fp32_flops_per_core"] > 0
    if any("512 rows" in name for name in names(told)):  # plain C alone has one size
        assert third["bf16_flops_128_rows"] > 0 and third["fp32_flops_per_core_512_rows"] > 0
    assert third["adam_parameters_per_s_per_core"] == second["profile"]["adam_parameters_per_s_per_core"]
    job = Job(folder)
    time_ = json.loads(succeed("plan", *job.options, "--profile", os.path.join(folder, "made", "machine.json"),
                               "-o", "json", "--host-memory", "4GiB").stdout)["time"]
    assert time_["seconds_per_step"] > 0


@test
def memory_of_each_node_is_measured(folder):
    if len(os.sched_getaffinity(0)) < 2:
        raise Skip("one CPU is no two nodes")
    told = bench(folder, "memory", "--threads", "2", env={**os.environ, "HWLOC_SYNTHETIC": "numa:2 core:1 pu:1"})
    if not any(name.startswith("node") for name in names(told)):
        raise Skip("built without hwloc")
    for node in (0, 1):
        assert f"node {node} memory triad, 1 threads" in names(told), names(told)


@test
def a_drive_is_measured_and_left_as_it_was(folder):
    drive_here(folder)
    state = os.path.join(folder, "drive")
    os.mkdir(state)
    told = bench(folder, "nvme", "--nvme-path", state, *ONE_POINT)
    (drive,) = told["profile"]["drives"]
    assert drive["path"] == os.path.realpath(state) and os.listdir(state) == []
    for key in ("read_bytes_per_s", "write_bytes_per_s", "mixed_bytes_per_s", "latency_s", "sync_s"):
        assert drive[key] > 0
    assert any("direct I/O" in note and "passed by" in note for note in told["notes"]), told["notes"]
    assert told["drives"]["largest_parameters"] > 0 and told["drives"]["models"] == []
    assert "memory" in told["drives"]["not_simulated"], told["drives"]  # nothing else was measured
    again = bench(folder, "nvme", "--nvme-path", state, *ONE_POINT)["profile"]["drives"]
    assert len(again) == 1, "measured again, the drive is the same one"
    fail(2, "--bench-size", "bench", "nvme", state, "--bench-size", "15MiB")
    assert os.listdir(state) == []


@test
def what_a_drive_means_to_training_is_told(folder):
    drive_here(folder)
    job = Job(folder)
    profile = os.path.join(folder, "machine.json")
    rates = ("dram_read", "dram_write", "dram_update", "upload", "download")
    with open(profile, "w", encoding="utf-8") as f:
        json.dump({"version": 1, "cores": 8, "ram_bytes": 2**37, "bf16_flops": 1e14, "bf16_flops_per_core": 2e13,
                   "fp32_flops": 1e13, "fp32_flops_per_core": 2e12, "adam_parameters_per_s_per_core": 1e9,
                   **{f"{rate}_bytes_per_s": 2e11 for rate in rates}}, f)
    told = json.loads(succeed("bench", "nvme", folder, "--model", job.model, "--tbw", "600TB", "--tokens-per-step",
                              "131072", "--profile", profile, *SMALL, *ONE_POINT).stdout)
    *sizes, own = told["drives"]["models"]
    assert [round(model["parameters"] / 1e9) for model in sizes] == sorted(
        round(model["parameters"] / 1e9) for model in sizes) and len(sizes) == 6, sizes
    assert own["parameters"] < 1e6 and own["fits"], own
    for model in [m for m in (*sizes, own) if m["fits"]]:
        assert 131072 <= model["tokens_per_step"] < 140000, model
        assert 0 <= model["added_seconds"] <= model["step_seconds"], model
        assert abs(model["steps_to_tbw"] * model["written_bytes"] / 600e12 - 1) < 0.01, model
        days = model["steps_to_tbw"] * model["step_seconds"] / 86400
        assert abs(model["days_to_tbw"] / days - 1) < 0.01, model
    fail(2, "--tbw", "bench", "memory", "--tbw", "600TB", "--profile", profile)


@test
def every_form_says_what_a_drive_means(folder):
    drive_here(folder)
    words = ("bench", "nvme", folder, "--profile", os.path.join(folder, "machine.json"), *SMALL[:-2], *ONE_POINT)
    for form in ("text", "md", "csv", "jsonl"):
        done = succeed(*words, "-o", form)
        rows_only = form in ("csv", "jsonl")
        told = done.stderr if rows_only else done.stdout
        assert "the page cache was passed by" in told and "B parameters have room" in told, (form, done)
        assert not rows_only or all(line[0] in '{w"' for line in done.stdout.splitlines()), done.stdout


@test
def drives_are_measured_alone_and_together(folder):
    drive_here(folder)
    for name in "ab":
        os.mkdir(os.path.join(folder, name))
    both = f"{folder}/a,{folder}/b"
    told = json.loads(succeed("bench", "nvme", both, "--profile", os.path.join(folder, "machine.json"),
                              *SMALL, *ONE_POINT).stdout)
    for way in ("read", "written", "read and written"):
        alone = [row["median"] for row in told["results"]
                 if row["name"].split(" ", 1)[1].startswith(f"{way}, ")]
        (row,) = [row for row in told["results"] if row["name"] == f"2 drives together, {way}"]
        assert abs(row["of_ceiling"] * sum(alone) / row["median"] - 1) < 1e-6, (row, alone)
    assert any("one drive's work" in note for note in told["notes"]), told["notes"]
    assert len(told["profile"]["drives"]) == 2
    fail(2, "the same directory", "bench", "nvme", f"{folder}/a,{folder}/../{os.path.basename(folder)}/a",
         *SMALL, *ONE_POINT, "--profile", os.path.join(folder, "machine.json"))


@test
def sizes_and_depths_are_swept(folder):
    drive_here(folder)
    told = json.loads(succeed("bench", "nvme", folder, "--profile", os.path.join(folder, "machine.json"), *SMALL,
                              "--request-size", "64KiB-256KiB*4", "--io-depth", "1,3", "--state-bytes", "12,3",
                              "-r", "1").stdout)
    points = [row for row in told["results"] if " sweep, " in row["name"]]
    assert [row["name"].split("sweep, ")[1] for row in points] == [
        "64.0 KiB x 1", "64.0 KiB x 3", "256 KiB x 1", "256 KiB x 3"], points
    assert max(row["of_ceiling"] for row in points) == 1
    assert len([row for row in told["results"] if " read and written, " in row["name"]]) == 2
    assert any("% of the peak" in note for note in told["notes"])
    for words in (("--request-size", "100KiB"), ("--request-size", "4KiB"), ("--io-depth", "0"), ("--io-depth", "4-1"),
                  ("--state-bytes", "65"), ("--soak-idle", "-1"), ("--max-write", "1GiB")):
        fail(2, words[0], "bench", "nvme", folder, *words)
    fail(2, ["memory", "drop"], "bench", "memory", folder)
    fail(2, "--soak", "bench", "all", folder, "--soak")


@test
def a_soak_writes_no_more_than_it_may(folder):
    drive_here(folder)
    told = json.loads(succeed("bench", "nvme", folder, "--profile", os.path.join(folder, "machine.json"), *SMALL,
                              *ONE_POINT, "--soak", "--soak-idle", "0", "--max-write", "1GiB").stdout)
    assert [row for row in told["results"] if "soak, level 1, from 0 B on" in row["name"]], names(told)
    levels = [note for note in told["notes"] if "level" in note]
    assert levels, told["notes"]


@test
def nothing_is_left_whoever_ends_it(folder):
    drive_here(folder)
    state = os.path.join(folder, "drive")
    os.mkdir(state)
    for number, said in ((signal.SIGINT, "stopped"), (signal.SIGKILL, "")):
        process = subprocess.Popen([PENSTOCK, "bench", "nvme", state, "--bench-size", "256MiB", "--profile",
                                    os.path.join(folder, "machine.json")],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        # open, and without a name before it is measured
        assert wait_for(lambda: file_of(process) and not os.listdir(state), process)
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
        assert process.returncode in (1, -number) and said in errors, (process.returncode, errors)
        assert os.listdir(state) == []
    assert not os.path.exists(os.path.join(folder, "machine.json"))


@test
def a_failing_drive_leaves_nothing(folder):
    for fault in ("eio=5", "enospc=0", "enospc=1", "enospc=40", "einval=20"):
        done = run("bench", "nvme", folder, "--io-engine", f"fault:threads,{fault}", "--profile",
                   os.path.join(folder, "machine.json"), *SMALL, *ONE_POINT)
        assert done.returncode == 1 and len(done.stderr.splitlines()) == 1, done
        assert os.listdir(folder) == [], fault


def file_of(process):
    """The file that is measured on, which has no name, through the process that has it open."""
    for number in os.listdir(f"/proc/{process.pid}/fd"):
        path = f"/proc/{process.pid}/fd/{number}"
        try:
            if "penstock-bench" in os.readlink(path) and os.readlink(path).endswith(" (deleted)"):
                return path
        except OSError:
            pass
    return None


@test
def what_is_no_drive_is_refused(folder):
    profile = os.path.join(folder, "machine.json")
    fail(2, "--nvme-path", "bench", "nvme", "--profile", profile)
    with open(profile, "w", encoding="utf-8"):  # a file where its folder should be: told before anything is measured
        fail(1, "give --profile FILE", "bench", "memory", "--profile", os.path.join(profile, "made", "machine.json"))
    os.remove(profile)
    for engine in ("ram", "null"):
        fail(1, "no drive can be measured", "bench", "nvme", folder, "--io-engine", engine,
             "--profile", profile, *SMALL)
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
    """Somebody reads the file through the cache: then its rates are the cache's."""
    drive_here(folder)
    process = subprocess.Popen([PENSTOCK, "bench", "nvme", folder, "--bench-size", "512MiB", "-r", "1", "--profile",
                                os.path.join(folder, "machine.json")],
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    while process.poll() is None:
        try:
            with open(file_of(process) or "", "rb", buffering=0) as f:
                f.read(32 << 20)
        except OSError:
            time.sleep(0.001)
    errors = process.stderr.read()
    assert process.returncode == 1 and "the page cache holds the file" in errors, errors
    assert os.listdir(folder) == []


@test
def a_step_is_a_real_one(folder):
    job = Job(folder)
    temporary, state = os.path.join(folder, "tmp"), os.path.join(folder, "state")
    for name in (temporary, state):
        os.mkdir(name)
    options = ("--profile", os.path.join(folder, "machine.json"), "-r", "2", "-o", "json", "--tokens-per-step", "64")
    env = {**os.environ, "TMPDIR": temporary}
    for where, words in (("in RAM", ()), ("on drives", (state,))):
        told = json.loads(succeed("bench", "step", *words, "--model", job.model, *options, env=env).stdout)
        (row,) = told["results"]
        assert row["name"] == f"training step of 64 tokens, state {where}" and row["unit"] == "tokens/s", row
        lane = row["ceiling"].split()[1]
        assert 0 < row["of_ceiling"] <= 1.01 and f"the {lane} lane binds" in told["notes"][0], told
        assert os.listdir(temporary) == [], "something is left"
        assert not any(files for _, _, files in os.walk(state)), list(os.walk(state))
    fail(1, ["cannot", "absent"], "bench", "step", "--model", f"{folder}/absent", *options, env=env)
    fail(1, "penstock train", "bench", "step", state, "--model", job.model, *options, "--io-engine",
         "fault:threads,eio=3", env=env)
    assert os.listdir(temporary) == []


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
    assert told["command"].startswith("penstock bench tiers")
    text = succeed("bench", "tiers", *options).stdout
    assert text.startswith("penstock bench tiers --profile") and "cycle = 1 s" in text, text
    done = succeed("bench", "tiers", *options, "-o", "csv")
    assert [row["what"].split(",")[0] for row in csv.DictReader(done.stdout.splitlines())] == [
        row["name"] for row in rows] and done.stderr.count("if one cycle were one second") == len(rows), done
    assert not os.path.exists(options[1]), "what no plan reads was kept"


@test
def every_form_has_the_same_rows(folder):
    def told(form):
        return succeed("bench", "adam", "--profile", os.path.join(folder, "machine.json"), "--bench-size", "64MiB",
                       "-r", "2", "-o", form).stdout.splitlines()

    lines = [json.loads(line) for line in told("jsonl")]
    said = [line["name"] for line in lines]
    assert len(said) >= 2 and all(line["median"] > 0 for line in lines)
    rows = list(csv.DictReader(told("csv")))
    assert [row["what"] for row in rows] == said and all(float(row["median"]) > 0 for row in rows)
    assert all(row["command"].startswith("penstock bench adam --profile") for row in (*lines, *rows)), (lines, rows)
    command, _, *table = told("md")
    assert command.strip().startswith("penstock bench adam --profile"), command
    table = [line.split("|")[1].strip() for line in table]
    assert table[0] == "what" and table[2:] == said
    fail(2, "rows of bench", "doctor", "-o", "md")


main()
