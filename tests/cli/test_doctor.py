#!/usr/bin/env python3
"""`penstock doctor` on this machine, and where io_uring or locked memory are denied.

    test_doctor.py PENSTOCK
"""
import ctypes
import json
import os
import resource
import struct
import subprocess
import sys
import tempfile

PENSTOCK = os.path.abspath(sys.argv[1])
TESTS = []
LEVELS = ("OK", "degraded", "missing")
ONCE = ("kernel", "io_uring", "locked memory", "RAM", "huge pages", "NUMA", "CPUs", "GPU", "instructions",
        "bf16 products", "fp32 products")
NOBODY = 65534


class Skip(Exception):
    """The test cannot say anything here; its text says why."""


def test(function):
    TESTS.append(function)
    return function


def doctor(*args, env=None, **more):
    clean = {k: v for k, v in os.environ.items() if not k.endswith("_NUM_THREADS") and k != "PEN_ISA"}
    done = subprocess.run([PENSTOCK, "doctor", "-o", "json", *args], capture_output=True, text=True, timeout=60,
                          env={**clean, **(env or {})}, **more)
    assert done.returncode in (0, 1), f"status {done.returncode}\n{done.stderr}"
    told = json.loads(done.stdout)
    for fact in told["facts"]:
        assert fact["level"] in LEVELS and fact["text"], fact
        assert bool(fact["advice"]) == (fact["level"] != "OK"), fact
    good = all(fact["level"] == "OK" for fact in told["facts"])
    assert told["full_function"] == good and done.returncode == (0 if good else 1), done.stdout
    return told["facts"]


def fact(facts, name, part=""):
    found = [f for f in facts if f["name"] == name and part in f["text"]]
    assert len(found) == 1, f"{name} {part}: {facts}"
    return found[0]


def deny_uring(code):
    """In the child: io_uring_setup (425 everywhere) fails with this errno."""
    load, equal, give = 0x20, 0x15, 0x06
    rows = [(load, 0, 0, 0), (equal, 0, 1, 425), (give, 0, 0, 0x50000 | code), (give, 0, 0, 0x7FFF0000)]
    program = b"".join(struct.pack("=HBBI", *row) for row in rows)
    buffer = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("@HxxxxxxP", len(rows), ctypes.addressof(buffer))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, header, 0, 0):
        os._exit(99)


@test
def every_fact_is_there_once():
    facts = doctor()
    for name in ONCE:
        fact(facts, name)
    gpu = fact(facts, "GPU")["text"]
    assert "the CPU computes" in gpu or gpu.startswith("CUDA device"), gpu
    text = subprocess.run([PENSTOCK, "doctor"], capture_output=True, text=True, timeout=60).stdout
    assert len(text.splitlines()) == len(doctor()), text


@test
def nodes_are_told_with_what_would_be_bound_to_them():
    if len(os.sched_getaffinity(0)) < 2:
        raise Skip("one CPU is no two nodes")
    facts = doctor(env={"HWLOC_SYNTHETIC": "numa:2 core:1 pu:1"})
    if "built without hwloc" in fact(facts, "CPUs")["text"]:
        raise Skip("built without hwloc")
    assert "2 compute (1 + 1) and 2 update threads (1 + 1)" in fact(facts, "CPUs")["text"], facts
    assert ", 2 in use" in fact(facts, "NUMA")["text"], facts
    assert "not bound: one node" in fact(doctor(env={"HWLOC_SYNTHETIC": "core:2"}), "CPUs")["text"]


@test
def a_seccomp_filter_is_told_from_other_refusals():
    if fact(doctor(), "io_uring")["level"] != "OK":
        raise Skip("io_uring is not permitted here anyway")
    for code, name in ((1, "EPERM"), (38, "ENOSYS")):
        try:
            facts = doctor(preexec_fn=lambda code=code: deny_uring(code))
        except AssertionError as failure:
            if "status 99" in str(failure):
                raise Skip("no seccomp filter can be set here") from failure
            raise
        told = fact(facts, "io_uring")
        assert told["level"] == "degraded", told
        assert f"refused ({name}) by a seccomp filter" in told["text"] and "seccomp profile" in told["advice"], told


@test
def little_locked_memory_is_told():
    def lower():
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (65536, 65536))
        if os.geteuid() == 0:
            os.setgid(NOBODY)
            os.setuid(NOBODY)
    try:
        told = fact(doctor("--host-memory", "64KiB", preexec_fn=lower), "locked memory")
    except (OSError, subprocess.SubprocessError) as failure:
        raise Skip(f"root's rights cannot be given up: {failure}") from failure
    assert told["level"] == "degraded" and "64.0 KiB soft, 64.0 KiB hard" in told["text"], told
    assert "128 KiB" in told["text"] and "memlock" in told["advice"], told
    told = fact(doctor("--host-memory", "32KiB", preexec_fn=lower), "locked memory")
    assert told["level"] == "OK", told


@test
def more_ram_than_there_is_is_missing():
    assert fact(doctor("--host-memory", "900TiB"), "RAM")["level"] == "missing"
    assert fact(doctor("--host-memory", "1MiB"), "RAM")["level"] == "OK"


@test
def drives_are_tried_and_left_as_they_were():
    with tempfile.TemporaryDirectory() as folder:
        facts = doctor("--nvme-path", f"{folder},{folder}/absent")
        assert os.listdir(folder) == []
        assert folder in fact(facts, "file system")["text"]
        assert fact(facts, "direct I/O", "/absent")["level"] == "missing"
        assert len([f for f in facts if f["name"] == "direct I/O"]) == 2
    if not os.path.ismount("/dev/shm"):
        raise Skip("no tmpfs to look at")
    assert fact(doctor("--nvme-path", "/dev/shm"), "file system", "tmpfs")["level"] == "degraded"


@test
def what_steers_others_is_told():
    facts = doctor(env={"OMP_NUM_THREADS": "1", "OPENBLAS_CORETYPE": "Haswell"})
    assert fact(facts, "environment", "OMP_NUM_THREADS=1")["level"] == "OK"
    assert fact(facts, "environment", "OPENBLAS_CORETYPE")["level"] == "degraded"
    told = fact(doctor(env={"PEN_ISA": "scalar"}), "instructions")
    assert told["level"] == "degraded" and "scalar kernels" in told["text"], told
    assert fact(doctor(env={"PEN_ISA": "avx1024"}), "instructions")["level"] == "missing"


def gpu_facts(**answers):
    folder = os.environ["FAKE_NVML_FOLDER"]
    return doctor(env={"LD_LIBRARY_PATH": folder, **{f"FAKE_NVML_{key}": str(value) for key, value in answers.items()}})


@test
def a_gpu_is_told_by_its_driver():
    facts = gpu_facts()
    assert fact(facts, "NVML")["text"] == "driver 580.00, 1 device"
    for name, words in (("GPU link", "Fake 4090: PCIe 4.0 x16 now, 4.0 x16 at most"),
                        ("GPU power", "Fake 4090: limited to 450 W, 450 W by default, 600 W at most"),
                        ("GPU heat", "Fake 4090: 50 degrees C, slows down above 93")):
        told = fact(facts, name)
        assert told["level"] == "OK" and told["text"] == words, told


@test
def what_holds_a_gpu_back_is_told():
    for answers, name, words in (
            ({"WIDTH": 8}, "GPU link", "4.0 x8 now, 4.0 x16 at most"),
            ({"LIMIT": 300}, "GPU power", "limited to 300 W, 450 W by default"),
            ({"SLOW": 0x80}, "GPU power", "power supply slows it down"),
            ({"CELSIUS": 90}, "GPU heat", "90 degrees C, slows down above 93"),
            ({"SLOW": 0x20}, "GPU heat", "heat slows it down now"),
            ({"SLOW": 0x40}, "GPU heat", "heat slows it down now")):
        told = fact(gpu_facts(**answers), name)
        assert told["level"] == "degraded" and words in told["text"] and told["advice"], (answers, told)
    at_rest = fact(gpu_facts(GENERATION=1), "GPU link")
    assert at_rest["level"] == "OK" and "look again under load" in at_rest["text"], at_rest
    facts = gpu_facts(START=9)  # a library without a driver
    assert not [f for f in facts if f["name"] in ("GPU link", "GPU power", "GPU heat")], facts


def main():
    good = True
    print(f"1..{len(TESTS)}")
    for number, function in enumerate(TESTS, 1):
        try:
            function()
            print(f"ok {number} - {function.__name__}")
        except Skip as why:
            print(f"# skipped: {why}\nok {number} # SKIP {function.__name__}")
        except AssertionError as failure:
            good = False
            print(f"not ok {number} - {function.__name__}")
            print("# " + str(failure).replace("\n", "\n# "))
    sys.exit(not good)


main()
