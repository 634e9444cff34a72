#!/usr/bin/env python3
"""The CUDA backend end to end, without a device: the real program loads the
plugin's own files on a fake runtime (fake.h), kernels run by the SIMT engine.

    test_backend.py PENSTOCK FAKE_DIR REAL_PLUGIN|none [TEST]...

What makes it red: an array of the compute lane touched by the host (a fault at
the line where the CPU has protection keys), a copy of memory that is not pinned,
a wait too few, a number that depends on where bytes lie.
"""
import json
import os
import shutil
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../e2e"))
from penstock import TESTS, Job, Skip, fail, log, main, run, same_log, same_weights, succeed, test, text, tier_bytes

FAKE, REAL = sys.argv[2], sys.argv[3]
CUDA = ("--backend", "cuda")
SMALL = {"hidden_size": 32, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 2,
         "num_key_value_heads": 1}
GEMMA2 = {"model_type": "gemma2", "head_dim": 24, "query_pre_attn_scalar": 20, "sliding_window": 9,
          "attn_logit_softcapping": 5.0, "final_logit_softcapping": 20.0}
GPT2 = {"model_type": "gpt2", "n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 64, "torch_dtype": "bfloat16"}
OPTIONS = ("--max-length", "16", "--gradient-accumulation-steps", "3", "--host-memory", "2GiB")
STEPS = 3


def fake(**settings):
    """An environment in which the stand-in is found, set as fake.h says."""
    return {**os.environ, "PEN_PLUGIN_DIR": FAKE, "PEN_FAKE_STRICT": "1",
            **{f"PEN_FAKE_{name.upper()}": str(value) for name, value in settings.items()}}


def job(folder, *options, **config):
    return Job(folder, *OPTIONS, *options, steps=STEPS, data_bytes=400, **{**SMALL, **config})


def losses(output):
    return [line["loss"] for line in log(output)], [line["grad_norm"] for line in log(output)]


def near(got, want, share, what):
    for a, b in zip(got, want):
        assert abs(a - b) <= share * abs(b), f"{what}: {a}, the host has {b}"
    assert len(got) == len(want)


PLACEMENTS = {
    "all on the device": (),
    "state in RAM": ("--offload-optimizer", "cpu"),
    "state on the device, sums too": ("--offload-optimizer", "none", "--group-size", "1"),
    "weights and activations in RAM": ("--offload-params", "cpu", "--offload-activations", "cpu"),
    "all on a drive": ("--offload-optimizer", "nvme", "--offload-params", "nvme", "--offload-gradients", "nvme",
                       "--offload-activations", "nvme", "--recompute", "all", "--nvme-path", "NVME"),
    "one slot of each, groups of 2": ("--offload-params", "cpu", "--weight-slots", "1", "--gradient-slots", "1",
                                      "--group-size", "2", "--offload-optimizer", "nvme", "--nvme-path", "NVME"),
    "less device memory": ("--device-memory", "LESS", "--group-size", "3"),
}


def resolve(a_job, words, folder):
    if "LESS" in words:
        done = succeed(*a_job.args(f"{folder}/plan", "--dry-run", *CUDA, "--group-size", "3"), env=fake())
        words = [str(tier_bytes(done, "device") - 30000) if word == "LESS" else word for word in words]
    os.makedirs(f"{folder}/nvme", exist_ok=True)
    return [f"{folder}/nvme" if word == "NVME" else word for word in words]


def numbers(folder, dtype, share, places=tuple(PLACEMENTS), **config):
    """Losses and norms near the host's; bits the same wherever bytes lie."""
    a_job = job(folder, "--dtype", dtype, **config)
    a_job.train(f"{folder}/host", "--backend", "host")
    want = losses(f"{folder}/host")
    a_job.train(f"{folder}/cuda", *CUDA, env=fake())
    got = losses(f"{folder}/cuda")
    near(got[0], want[0], share, "loss")
    near(got[1], want[1], 10 * share, "norm")
    for number, name in enumerate(places):
        output = f"{folder}/run{number}"
        a_job.train(output, *CUDA, *resolve(a_job, PLACEMENTS[name], output + ".d"), env=fake(jitter=number + 1))
        same_log(output, f"{folder}/cuda")
        same_weights(output, f"{folder}/cuda")


@test
def fp32_as_on_the_host_and_the_same_everywhere(folder):
    """fp32 sums in another order: a few units of 2^-24 times what a sum cancels, after three updates."""
    numbers(folder, "fp32", 2e-6)


@test
def bf16_as_on_the_host_and_the_same_everywhere(folder):
    """Where orders differ a bf16 rounds to its neighbour, 2^-8: of single activations; averaged over targets,
    a loss moves by less."""
    numbers(folder, "bf16", 2e-3, tie_word_embeddings=False, torch_dtype="bfloat16")


@test
def experts_as_on_the_host_and_the_same_everywhere(folder):
    """What is routed is known only once the device has said so."""
    numbers(folder, "fp32", 2e-6, model_type="mixtral", num_local_experts=5, output_router_logits=True,
            router_aux_loss_coef=0.1)


@test
def compact_state_has_the_same_bits_everywhere(folder):
    """Updated by the device that keeps it, and by the CPU; moved from one to the other on resume."""
    stopped = ("--lr-scheduler-type", "constant", "--warmup-steps", "0", "--save-steps", "1")
    ends = {}
    for name in ("fp32", "split32", "bf16", "int8"):
        a_job = job(f"{folder}/{name}", "--dtype", "bf16", "--state-format", name, *stopped)
        drive = f"{folder}/{name}-drive"
        a_job.train(f"{folder}/{name}-near", *CUDA, "--offload-optimizer", "none", env=fake(jitter=1))
        ends[name] = losses(f"{folder}/{name}-near")
        for place in (("--offload-optimizer", "cpu"), ("--offload-optimizer", "nvme", "--nvme-path", drive)):
            a_job.train(f"{folder}/{name}-away", *CUDA, *place, "--overwrite", env=fake())
            same_log(f"{folder}/{name}-away", f"{folder}/{name}-near")
            same_weights(f"{folder}/{name}-away", f"{folder}/{name}-near")
        for first, then in (("none", "cpu"), ("cpu", "none")):
            output = f"{folder}/{name}-{first}"
            a_job.train(output, *CUDA, "--offload-optimizer", first, "--max-steps", "1", env=fake())
            succeed(*a_job.args(output, "--resume", "--offload-optimizer", then), env=fake())
            same_weights(output, f"{folder}/{name}-near")
    assert ends["fp32"] == ends["split32"] and ends["bf16"] != ends["fp32"] != ends["int8"], ends


@test
def caps_and_windows_as_on_the_host(folder):
    numbers(folder, "fp32", 2e-6, ("all on a drive", "less device memory"), **GEMMA2)


@test
def biases_as_on_the_host(folder):
    """Added as a product is written, or where the library cannot do that in a pass of their own, which rounds twice."""
    for name, config in (("gpt2", GPT2), ("qwen2", {"model_type": "qwen2"})):
        for epilogues in (1, 0):
            os.environ["PEN_FAKE_EPILOGUES"] = str(epilogues)
            numbers(f"{folder}/{name}{epilogues}", "bf16", 2e-3, ("all on a drive",), **config)
    os.environ.pop("PEN_FAKE_EPILOGUES")


@test
def text_as_on_the_host(folder):
    """Logits differ in their last bits, the tokens drawn from them do not; wherever weights lie."""
    for name, config in (("llama", {}), ("gemma2", GEMMA2)):
        a_job = job(f"{folder}/{name}", num_hidden_layers=4, **config)
        words = ("generate", "--model", a_job.model, "--dtype", "fp32", "-o", "json", "--prompt", "abcdefghijkl",
                 "--host-memory", "2GiB", "--max-new-tokens", "40", "--seed", "3", "--temperature", "2")
        want = json.loads(succeed(*words, "--backend", "host").stdout)
        assert len(want["ids"]) == 52, want
        drive = f"{folder}/{name}-drive"
        for number, place in enumerate(((), ("--offload-params", "cpu", "--weight-slots", "1"),
                                        ("--offload-params", "nvme", "--nvme-path", drive))):
            done = succeed(*words, *CUDA, *place, env=fake(jitter=number + 1))
            assert "computing on CUDA device 0" in done.stderr, done.stderr
            assert json.loads(done.stdout) == want, (name, place, done.stdout, want)
        done = fail(3, "device memory", *words[:-6], *CUDA, "--max-new-tokens", "100000", "--device-memory", "40MiB",
                    env=fake())
        assert "keys and values of a document" in done.stderr, done.stderr
    fail(2, "--device-memory needs --backend cuda", *words, "--device-memory", "1GiB", env=fake())


@test
def samples_change_nothing_of_a_run(folder):
    """And the last one is what the finished model says."""
    a_job = job(folder)
    ask = ("--samples-every", "1", "--sample-prompt", "abc", "--max-new-tokens", "12")
    a_job.train(f"{folder}/plain", *CUDA, env=fake())
    a_job.train(f"{folder}/told", *CUDA, *ask, env=fake(jitter=1))
    same_weights(f"{folder}/told", f"{folder}/plain")
    samples = [line for line in log(f"{folder}/told") if "sample_ids" in line]
    assert [line["step"] for line in samples] == [1, 2, 3], samples
    done = succeed("generate", "--model", f"{folder}/told/model", "-o", "json", "--greedy", "--prompt", "abc",
                   "--max-new-tokens", "12", *CUDA, env=fake())
    assert samples[-1]["sample_ids"] == json.loads(done.stdout)["ids"], (samples, done.stdout)


@test
def resumed_as_straight_and_only_there(folder):
    a_job = job(folder)
    a_job.train(f"{folder}/straight", *CUDA, "--save-steps", "2", env=fake())
    output = f"{folder}/resumed"
    succeed(*a_job.args(output, *CUDA, "--save-steps", "2", "--overwrite"), env=fake())
    shutil.rmtree(f"{output}/model")
    for words, status, said in ((("--resume", "--backend", "host"), 1, "cublas"),
                                (("--resume", "--backend", "auto"), 1, "there is no penstock-cuda.so")):
        env = fake() if "host" in words else {**os.environ, "PEN_PLUGIN_DIR": folder}
        fail(status, said, *a_job.args(output, *words), env=env)
    succeed(*a_job.args(output, "--resume"), env=fake())
    same_weights(output, f"{folder}/straight")


def crc32c(data):
    crc = 0xffffffff
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
    return crc ^ 0xffffffff


@test
def products_keep_their_algorithm(folder):
    """What the library thought the fastest at the first start is what a run goes on with; what it has no
    more is told.  The fake's algorithms sum in different orders."""
    a_job = job(folder, "--save-steps", "1")
    ends = []
    for number in range(3):
        a_job.train(f"{folder}/straight{number}", *CUDA, env=fake(algorithm=number))
        ends.append(losses(f"{folder}/straight{number}"))
    assert ends[0] != ends[1] != ends[2] != ends[0], ends
    output = f"{folder}/run"
    stopped = ("--max-steps", "1", "--lr-scheduler-type", "constant", "--warmup-steps", "0")
    for number, others in ((0, (1, 2)), (1, (0, 2))):
        for other in others:
            a_job.train(f"{folder}/{number}", *stopped, *CUDA, "--overwrite", env=fake(algorithm=number))
            a_job.train(f"{folder}/{number}-straight", *stopped, "--max-steps", "3", *CUDA, "--overwrite",
                        env=fake(algorithm=number))
            succeed(*a_job.args(f"{folder}/{number}", *stopped, "--max-steps", "3", "--resume"),
                    env=fake(algorithm=other))
            same_weights(f"{folder}/{number}", f"{folder}/{number}-straight")
    a_job.train(output, *stopped, *CUDA, env=fake())
    products = f"{output}/products.txt"
    with open(products, encoding="ascii") as f:
        told = f.read()
    assert told.startswith("penstock products 1, ") and len(told.splitlines()) > 10, told
    resume = (*a_job.args(output, *stopped, "--max-steps", "2", "--resume"),)
    fail(1, ("products.txt: line 2: ", "does not offer the algorithm"), *resume, env=fake(without=0, algorithm=1))
    strange = told.split("\n", 1)[1].replace("= ", "=x ", 1)
    whole = f"penstock products 1, {strange.count(chr(10))} lines, crc32c {crc32c(strange.encode()):08x}\n{strange}"
    for damaged, words in ((whole, "is no algorithm of a product"), (told[:-30], "checksum is wrong"), (told.replace(" 0000b1a5", " 0000b1a6", 1), "checksum"),
                           ("", "line 1 is not"), (told.replace("products 1", "products 2"), "line 1 is not"),
                           (None, "is missing")):
        os.remove(products)
        if damaged is not None:
            with open(products, "w", encoding="ascii") as f:
                f.write(damaged)
        else:
            fail(1, words, *resume, env=fake())
            break
        fail(1, words, *resume, env=fake())
    with open(products, "w", encoding="ascii") as f:
        f.write(told)
    succeed(*resume, env=fake())


@test
def tf32_if_asked(folder):
    """The fake rounds what is multiplied to 2^-11 of it, and the run keeps that; fp32_as_... shows that nothing
    does unasked.  Refused where it would do nothing."""
    words = ("--dtype", "fp32", "--save-steps", "1", "--lr-scheduler-type", "constant", "--warmup-steps", "0")
    a_job = job(folder, *words)
    a_job.train(f"{folder}/plain", *CUDA, env=fake())
    a_job.train(f"{folder}/tf32", *CUDA, "--tf32", env=fake())
    want, got = losses(f"{folder}/plain"), losses(f"{folder}/tf32")
    near(got[0], want[0], 1e-3, "loss")
    assert all(abs(a - b) > 2e-5 * b for a, b in zip(got[1], want[1])), (got, want)
    a_job.train(f"{folder}/away", *CUDA, "--tf32", "--offload-params", "cpu", env=fake(jitter=1))
    same_weights(f"{folder}/away", f"{folder}/tf32")
    output = f"{folder}/resumed"
    a_job.train(output, *CUDA, "--tf32", "--max-steps", "1", env=fake())
    fail(1, "--tf32 false differs from what this run was started with (true)",
         *a_job.args(output, "--resume", "--no-tf32"), env=fake())
    succeed(*a_job.args(output, "--resume"), env=fake())
    same_weights(output, f"{folder}/tf32")
    fail(1, "--tf32 true differs from what this run was started with (false)",
         *a_job.args(f"{folder}/plain", "--resume", "--tf32", "--max-steps", "4"), env=fake())
    bf16 = job(f"{folder}/bf16", torch_dtype="bfloat16")
    for said, refused, devices, *options in (
            ("--tf32 and --dtype bf16 contradict", a_job, 1, *CUDA, "--dtype", "bf16"),
            ("--tf32 and --backend host contradict", a_job, 1, "--backend", "host"),
            ("products in fp32, and these are in bf16", bf16, 1, *CUDA),
            ("the CPU computes here", a_job, 0, "--backend", "auto")):
        fail(2, said, *refused.args(f"{folder}/no", "--tf32", *options), env=fake(devices=devices))


@test
def evaluation(folder):
    a_job = job(folder)
    words = ("eval", "--model", a_job.model, "--data", a_job.data, "--max-length", "16", "-o", "json")
    want = json.loads(succeed(*words, "--backend", "host").stdout)["loss"]
    got = json.loads(succeed(*words, *CUDA, env=fake()).stdout)["loss"]
    near([got], [want], 1e-6, "loss")


@test
def what_is_missing_is_told(folder):
    """One line, and the CPU with auto; exit code 1 where CUDA was asked for."""
    a_job = job(folder)
    empty, broken, missing = (f"{folder}/{name}" for name in ("empty", "broken", "missing"))
    for name in (empty, broken, missing):
        os.makedirs(name)
    with open(f"{broken}/penstock-cuda.so", "wb") as f:
        f.write(b"not a library")
    cases = [({"PEN_PLUGIN_DIR": empty}, "there is no penstock-cuda.so"),
             ({"PEN_PLUGIN_DIR": broken}, "cannot load"),
             (fake(devices=0), "no CUDA device"),
             (fake(driver=0), "no NVIDIA driver"),
             (fake(driver=11080), "knows CUDA 11.8, this needs 13.0"),
             (fake(capability=75), "compute capability 7.5")]
    if REAL != "none":  # the real plugin: its libraries there, no driver; and one of them missing
        with open(REAL, "rb") as f:
            blob = f.read()
        with open(f"{missing}/penstock-cuda.so", "wb") as f:
            f.write(blob.replace(b"libcublasLt.so", b"libcubxxxxx.so"))
        cases.append(({"PEN_PLUGIN_DIR": missing}, "libcubxxxxx.so"))
        if not os.path.exists("/dev/nvidiactl"):
            cases.append(({"PEN_PLUGIN_DIR": os.path.dirname(REAL)}, "no NVIDIA driver"))
    else:
        print("# the real plugin was not built: its own fall-backs are not tried")
    if not os.path.exists("/dev/nvidiactl"):
        cases.append(({"PEN_PLUGIN_DIR": None}, ("no NVIDIA driver",)))
    for number, (change, words) in enumerate(cases):
        env = {name: value for name, value in {**os.environ, **change}.items() if value is not None}
        fail(1, words, *a_job.args(f"{folder}/refused", *CUDA), env=env)
        assert not os.path.exists(f"{folder}/refused")
        done = a_job.train(f"{folder}/auto{number}", "--max-steps", "1", env=env)
        lines = [line for line in done.stderr.splitlines() if "computing on the CPU" in line]
        assert len(lines) == 1, done.stderr
        for word in [words] if isinstance(words, str) else words:
            assert word in lines[0], lines[0]
        facts = {fact["name"]: fact for fact in json.loads(run("doctor", "-o", "json", env=env).stdout)["facts"]}
        assert "the CPU computes" in facts["GPU"]["text"] + facts["GPU"]["advice"], facts["GPU"]


@test
def the_link_is_measured(folder):
    options = ("--bench-size", "1MiB", "-r", "2", "--profile", f"{folder}/machine.json", "-o", "json")
    told = json.loads(succeed("bench", "link", *options, env=fake(strict=0)).stdout)
    rows = {row["name"]: row for row in told["results"]}
    copies = ("copy to the device", "copy from the device", "copies both ways at once")
    for name in copies:
        assert rows[name]["median"] > 0, rows
        assert rows[f"{name}, pageable memory"]["ceiling"].endswith("pinned memory"), rows
    assert "copy of 4096 bytes to the device, each waited for" in rows
    assert told["profile"]["upload_bytes_per_s"] == rows[copies[0]]["median"]
    assert told["profile"]["download_bytes_per_s"] == rows[copies[1]]["median"]
    fail(1, "there is no penstock-cuda.so", "bench", "link", *options, env={**os.environ, "PEN_PLUGIN_DIR": folder})
    fail(2, "there are 2 CUDA devices", "bench", "link", *options, "--device", "2", env=fake(devices=2))
    fail(2, "drop", "bench", "link", folder, *options, env=fake())


@test
def auto_takes_the_device(folder):
    a_job = job(folder)
    done = a_job.train(f"{folder}/auto", "--max-steps", "1", env=fake())
    assert "computing on CUDA device 0, Fake GPU 0" in done.stderr, done.stderr
    facts = {fact["name"]: fact for fact in json.loads(run("doctor", "-o", "json", env=fake()).stdout)["facts"]}
    assert facts["GPU"]["text"].startswith("CUDA device 0, Fake GPU 0"), facts["GPU"]
    fail(2, "there are 2 CUDA devices", *a_job.args(f"{folder}/x", *CUDA, "--device", "2"), env=fake(devices=2))
    done = a_job.train(f"{folder}/second", "--max-steps", "1", *CUDA, "--device", "1", env=fake(devices=2))
    assert "computing on CUDA device 1, Fake GPU 1" in done.stderr, done.stderr
    done = a_job.train(f"{folder}/host", "--max-steps", "1", "--gemm", "reference", env=fake())
    assert "CUDA" not in done.stderr, done.stderr
    fail(1, "onednn", *a_job.args(f"{folder}/x", *CUDA, "--gemm", "onednn"), env=fake())


def refused_in_turn(words, folder):
    """Every allocation of a device refused once: exit code 3, nothing said as a result, no file left in `folder`."""
    n = 0
    while True:
        n += 1
        done = run(*words, env=fake(oom=n))
        if done.returncode == 0:
            break
        assert done.returncode == 3, f"allocation {n}: status {done.returncode}\n{done.stderr}"
        last = done.stderr.splitlines()[-1]
        assert "CUDA" in last or "cuBLAS" in last or "device memory" in last, last
        left = [file for _, _, files in os.walk(folder) for file in files]
        assert done.stdout == "" and not left, f"allocation {n}: {done.stdout} {left}"
    print(f"# {words[0]}: {n - 1} allocations were refused in turn")
    assert n > 100, n  # three streams, their events, cuBLAS, the arena
    return done


@test
def no_memory_at_any_time_is_exit_code_3(folder):
    a_job = job(folder, "--max-steps", "1")
    left = f"{folder}/left"
    os.makedirs(left)
    refused_in_turn(a_job.args(f"{left}/run", *CUDA), left)
    shutil.rmtree(f"{left}/run")
    drive = ("--host-memory", "2GiB", "--offload-params", "nvme", "--nvme-path", f"{left}/drive")
    refused_in_turn(("generate", "--model", a_job.model, "--prompt", "abc", "--max-new-tokens", "2", *drive, *CUDA), left)
    refused_in_turn(("eval", "--model", a_job.model, "--data", a_job.data, "--max-length", "16", "--dump-logits",
                     f"{left}/logits.safetensors", *drive, *CUDA), left)
    assert "logits.safetensors" in os.listdir(left), os.listdir(left)


@test
def too_little_device_memory(folder):
    a_job = job(folder, "--max-steps", "1")
    args = a_job.args(f"{folder}/run", *CUDA)
    fail(3, "device memory", *args, env=fake(memory=36 << 20))
    fail(3, ("--device-memory 8.00 GiB", "are free"), *args, "--device-memory", "8GiB", env=fake())
    fail(3, "workspace", *args, "--device-memory", "32MiB", env=fake())
    assert not os.path.exists(f"{folder}/run")


@test
def less_memory_pinned(folder):
    a_job = job(folder)
    a_job.train(f"{folder}/all", *CUDA, env=fake())
    done = a_job.train(f"{folder}/none", *CUDA, env=fake(pin=0, strict=0))
    assert "pins only 0 B of" in done.stderr, done.stderr
    same_log(f"{folder}/none", f"{folder}/all")
    same_weights(f"{folder}/none", f"{folder}/all")


@test
def a_failing_device_is_told_with_its_place(folder):
    a_job = job(folder)
    done = fail(1, (" of block ", " on lane ", "illegal memory access"), *a_job.args(f"{folder}/run", *CUDA),
                env=fake(fault=150))
    print("# " + done.stderr.splitlines()[-1])


if sys.argv[4:]:
    TESTS[:] = [function for function in TESTS if function.__name__ in sys.argv[4:]]
    assert len(TESTS) == len(sys.argv[4:]), sys.argv[4:]
main()
