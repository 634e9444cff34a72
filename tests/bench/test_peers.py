#!/usr/bin/env python3
"""bench/peers without any peer: slips, and the contest between programs made up here."""
import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile

ROOT = os.environ["PEN_ROOT"]
PEERS = os.path.join(ROOT, "bench", "peers")
sys.path.insert(0, PEERS)
import contest  # noqa: E402
import rows  # noqa: E402

MIB = 1 << 20
TESTS = []


def test(function):
    TESTS.append(function)
    return function


def refused(program, *args, status, text, **environment):
    done = subprocess.run([os.path.join(PEERS, program), *args], capture_output=True, text=True,
                          timeout=60, env={**os.environ, **environment})
    assert done.returncode == status and text in done.stderr, (done, text)
    return done


@test
def no_environment_is_one_line():
    done = refused("run", status=1, text="bench/peers/setup", PEN_PEERS_VENV="/nonexistent")
    assert done.stderr.count("\n") == 1 and "/nonexistent" in done.stderr, done.stderr


@test
def no_build_is_one_line():
    with tempfile.TemporaryDirectory() as venv:
        os.makedirs(os.path.join(venv, "bin"))
        os.symlink(sys.executable, os.path.join(venv, "bin", "python3"))
        done = refused("run", status=1, text="no build in /nonexistent", PEN_PEERS_VENV=venv,
                       PEN_BUILD="/nonexistent")
    assert done.stderr.count("\n") == 1, done.stderr


@test
def slips():
    refused("run", "--row", "speed", status=2, text="invalid choice: 'speed'")
    refused("run", "--rounds", "0", status=2, text="--rounds must be at least 1")
    refused("run", "--where", "threads", status=2, text="--where takes NAME=VALUE, not threads")
    refused("setup", "a", "b", status=2, text="usage: bench/peers/setup")
    refused("setup", "--help", status=2, text="usage: bench/peers/setup")


def contender(name, code, **more):
    return contest.Contender(name, [sys.executable, "-c", code],
                             lambda text: {"rate": float(text)}, **more)


def hold(*contenders, rounds=3, same=None, by=None):
    """The lines that a contest writes, by contender, and what it says."""
    job = contest.Job("t", {"n": 1}, {"rate": "steps/s", "peak_bytes": "bytes"}, lambda: contenders,
                      same or {})
    with contextlib.redirect_stdout(io.StringIO()) as lines, \
            contextlib.redirect_stderr(io.StringIO()) as said:
        contest.hold(job, rounds, [], {}, by)
    by = {}
    for line in map(json.loads, lines.getvalue().splitlines()):
        by.setdefault(line["parameters"]["by"], {})[line["name"]] = line
    return by, said.getvalue()


@test
def one_after_the_other():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "order")
        code = "f = open({!r}, 'a+'); f.write({!r}); f.seek(0); print(len(f.read()))"
        by, said = hold(contender("penstock", code.format(path, "p")),
                        contender("peer", code.format(path, "q")))
        with open(path, encoding="utf-8") as f:
            assert f.read() == "pqpqpq"
    assert by["penstock"]["peers.t.rate"]["spread"] == {"min": 1, "median": 3, "max": 5, "n": 3}
    assert by["peer"]["peers.t.rate"]["value"] == 4
    # 1/2, 3/4, 5/6
    assert "penstock is 0.75 times better (0.50 to 0.83)" in said, said


@test
def others_are_left_out():
    by, _ = hold(*(contender(name, "print(1)") for name in ("penstock", "a", "b")), by=["b"], rounds=1)
    assert list(by) == ["penstock", "b"], by


@test
def peak_is_each_ones_own():
    large = f"a = bytearray({64 * MIB}); print(1)"
    by, said = hold(contender("penstock", "print(1)"), contender("large", large),
                    contender("small", "print(1)"), rounds=1)
    peak = {name: line["peers.t.peak_bytes"]["value"] for name, line in by.items()}
    assert peak["large"] >= 64 * MIB > peak["small"], peak
    times = peak["large"] / peak["penstock"]  # less is better
    assert f"penstock is {times:.2f} times better" in said, said


@test
def who_fails_is_out():
    by, said = hold(contender("penstock", "print(2)"), contender("mute", "pass"),
                    contender("broken", "raise SystemExit('no luck')"))
    assert list(by) == ["penstock"], by
    assert "broken: status 1: no luck" in said and "mute: its results cannot be read" in said, said


@test
def who_needs_more_than_the_cap_fails():
    code = f"a = bytearray({256 * MIB}); print(1)"
    by, said = hold(contender("capped", code, cap_bytes=128 * MIB), contender("free", code), rounds=1)
    assert list(by) == ["free"] and "MemoryError" in said, said


@test
def who_is_far_behind_runs_once():
    by, said = hold(contender("penstock", "print(1)"), contender("best", "print(10)"),
                    contender("near", "print(9)"), contender("far", "print(8)"))
    n = {name: line["peers.t.rate"]["spread"]["n"] for name, line in by.items()}
    assert n == {"penstock": 3, "best": 3, "near": 3, "far": 1}, n
    assert "penstock is 0.12 times better (0.12 to 0.12)" in said, said


@test
def who_does_another_job_is_out():
    by, said = hold(contender("penstock", "print(2)"), contender("near", "print(2.25)"),
                    contender("other", "print(2.75)"), rounds=1, same={"rate": 0.5})
    assert list(by) == ["penstock", "near"] and "other: another job: its rate is 2.75, ours 2" in said, said


class Tiny(rows.Setting):
    """A model and tokens that need neither network nor peers."""

    def small(self):
        config = os.path.join(self.work, "config.json")
        with open(config, "w", encoding="utf-8") as f:
            json.dump({"model_type": "llama", "hidden_act": "silu", "hidden_size": 64,
                       "intermediate_size": 128, "num_attention_heads": 2,
                       "num_key_value_heads": 1, "num_hidden_layers": 2, "vocab_size": 256,
                       "max_position_embeddings": 64, "rms_norm_eps": 1e-5,
                       "tie_word_embeddings": True, "bos_token_id": 1, "eos_token_id": 2}, f)
        return self.make("model", self.penstock, "init", "--model-config", config, "--dtype", "bf16",
                         "--output-dir", os.path.join(self.work, "model"))

    def tokens(self, count):
        path = os.path.join(self.work, "tokens.u16")
        with open(path, "wb") as f:
            f.write(bytes(b for i in range(count + 1) for b in (i * 7 % 256, 0)))
        return path


@test
def our_side_of_a_step():
    with tempfile.TemporaryDirectory() as folder:
        steps = rows.Steps(Tiny(os.environ["PEN_BUILD"], "/nonexistent", folder), "smollm2", 2, 32,
                           recompute=True)
        for ours in (steps.ours(), steps.ours(dtype="fp32", options=rows.in_memory("1GiB", folder)),
                     steps.ours(dtype="fp32", options=rows.OWN_AVX2, environment=rows.ONLY_AVX2)):
            found = contest.execute(ours, [])
            assert found["rate"] > 0 and 5 < found["loss"] < 6, found  # ln 256 = 5.55


def main():
    failed = 0
    print(f"1..{len(TESTS)}")
    for number, function in enumerate(TESTS, 1):
        try:
            function()
            print(f"ok {number} - {function.__name__}")
        except Exception as error:  # each is one test's failure
            failed += 1
            print(f"not ok {number} - {function.__name__}")
            print("\n".join(f"# {line}" for line in str(error).splitlines()))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
