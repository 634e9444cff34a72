#!/usr/bin/env python3
"""The program as a user meets it: help, version, dump, slips and exit codes.

    test_main.py PENSTOCK
"""
import os
import re
import subprocess
import sys
import tempfile

PENSTOCK = sys.argv[1]
TESTS = []


class Skip(Exception):
    """The test cannot say anything here; its text says why."""


def test(function):
    TESTS.append(function)
    return function


def run(*args, **more):
    return subprocess.run([PENSTOCK, *args], capture_output=True, text=True, timeout=60, **more)


def check(condition, done):
    assert condition, f"status {done.returncode}\n{done.stdout}\n{done.stderr}"


def verbs():
    done = run("--help")
    check(done.returncode == 0 and done.stderr == "", done)
    return re.findall(r"^  ([a-z]+) {2,}\S", done.stdout.split("verbs:")[1], re.M)


@test
def help_and_version():
    assert verbs(), "no verbs"
    done = run("--version")
    check(done.returncode == 0 and re.fullmatch(r"penstock \d+\.\d+\.\d+\n", done.stdout), done)
    done = run()
    check(done.returncode == 2 and "no verb given" in done.stderr, done)


@test
def every_verb_has_help():
    for verb in verbs():
        for letter in ("--help", "-h"):
            done = run(verb, letter)
            check(done.returncode == 0 and done.stderr == "", done)
            check(f"penstock {verb}: " in done.stdout and "--log-level" in done.stdout, done)


@test
def unknown_verb():
    done = run("trian")
    check(done.returncode == 2 and 'no verb "trian"' in done.stderr, done)


@test
def unknown_option_names_the_nearest():
    for verb in verbs():
        done = run(verb, "--log-levl", "info")
        check(done.returncode == 2, done)
        check("unknown option --log-levl; did you mean --log-level?" in done.stderr, done)
        check(done.stdout == "" and done.stderr.count("\n") == 1, done)


@test
def what_is_missing_is_named():
    for verb in verbs():
        if verb == "doctor":
            continue  # needs nothing
        done = run(verb)
        check(done.returncode == 2 and f"penstock {verb} needs --" in done.stderr, done)


@test
def dumped_config_is_accepted():
    for verb in verbs():
        first = run(verb, "--dump-config")
        check(first.returncode == 0 and first.stderr == "", first)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "run.yaml")
            with open(path, "w") as f:
                f.write(first.stdout)
            second = run(verb, "-c", path, "--dump-config")
        if "built without libyaml" in second.stderr:
            raise Skip("built without libyaml")
        check(second.returncode == 0 and second.stdout == first.stdout, second)


@test
def command_line_wins_over_file():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "run.json")
        with open(path, "w") as f:
            f.write('{"seed": 3, "dtype": "bf16"}')
        done = run("init", "--seed", "4", "-c", path, "--dump-config")
    check("\nseed: 4\n" in done.stdout and "\ndtype: bf16\n" in done.stdout, done)


@test
def unknown_key_has_its_place():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "run.json")
        with open(path, "w") as f:
            f.write('{"sede": 3}')
        done = run("init", "-c", path)
    check(done.returncode == 2 and "run.json: unknown key sede" in done.stderr, done)
    check("did you mean seed?" in done.stderr, done)


@test
def alias_is_told_once():
    done = run("init", "--torch_dtype", "fp32", "--torch-dtype=fp32", "--dump-config")
    check(done.returncode == 0 and done.stderr.count("--torch_dtype is --dtype here") == 1, done)
    check("torch-dtype" not in done.stderr, done)


@test
def log_level_counts():
    done = run("init", "--log-level", "error", "--torch-dtype", "fp32", "--dump-config",
               env={**os.environ, "PEN_LOG": "error"})
    check(done.returncode == 0 and done.stderr == "", done)


@test
def full_output_is_a_failure():
    if not os.path.exists("/dev/full"):
        raise Skip("no /dev/full here")
    with open("/dev/full", "w") as full:
        done = subprocess.run([PENSTOCK, "--help"], stdout=full, stderr=subprocess.PIPE, text=True)
    check(done.returncode == 1 and "standard output" in done.stderr, done)


def main():
    print(f"1..{len(TESTS)}")
    good = True
    for number, function in enumerate(TESTS, 1):
        try:
            function()
            print(f"ok {number} - {function.__name__}")
        except Skip as why:
            print(f"# skipped: {why}\nok {number} # SKIP {function.__name__}")
        except (AssertionError, subprocess.TimeoutExpired) as failure:
            good = False
            print(f"not ok {number} - {function.__name__}")
            print("# " + str(failure).replace("\n", "\n# "))
    sys.exit(not good)


main()
