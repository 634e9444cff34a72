"""What the stages share: items whose results are kept, and programs run with a limit."""
import dataclasses
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import traceback
from typing import Callable

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
UNFINISHED = 75
STAGE_NAMES = ("build", "kernels", "promises", "step", "peer")
KEPT_LINES = 200  # of what a program said, in the log


class Failed(Exception):
    """An item did not go well; the text says how."""


class Cut(Exception):
    """The time of the stage was over; nothing is said of the item."""


class Absent(Exception):
    """An item cannot be done here, which is nobody's fault; the text says why."""


@dataclasses.dataclass
class Item:
    name: str
    seconds: int  # about; less is not begun with
    what: str
    do: Callable  # check -> {key: value}


@dataclasses.dataclass
class Done:
    status: int
    output: str
    seconds: float
    cut: bool = False  # ended since its time was over


def say(text):
    print(text, file=sys.stderr, flush=True)


class Check:
    """Folders, the build that is used, and how programs are run."""

    def __init__(self, options):
        self.options = options
        self.fake = bool(options.fake)
        self.out = os.path.abspath(options.out)
        self.work = os.path.abspath(options.work)
        self.build = os.path.abspath(options.fake) if self.fake else os.path.join(ROOT, "build-gpu")
        for folder in (self.out, self.work):
            os.makedirs(folder, exist_ok=True)
        for name in STAGE_NAMES:  # what the earlier machine knows and this one does not yet
            there = os.path.join(options.earlier or "", name + ".json")
            if options.earlier and os.path.exists(there) and not os.path.exists(self.path(name + ".json")):
                shutil.copy(there, self.path(name + ".json"))
        self.deadline = 0.0

    def path(self, name):
        return os.path.join(self.out, name)

    @property
    def penstock(self):
        return os.path.join(self.build, "src", "cli", "penstock")

    @property
    def check_device(self):
        return os.path.join(self.build, "tests", "gpu", "device", "check_device")

    def environment(self):
        env = dict(os.environ)
        if self.fake:
            env["PEN_PLUGIN_DIR"] = os.path.join(self.build, "tests", "gpu", "fake")
            return env
        env["PEN_PLUGIN_DIR"] = os.path.join(self.build, "src", "cli")
        libraries = [os.path.join(self.build, "cuda", "lib64"), *cuda_folders("lib64")]
        env["LD_LIBRARY_PATH"] = ":".join([*libraries, *filter(None, [env.get("LD_LIBRARY_PATH")])])
        return env

    def begin_time(self):
        self.deadline = time.monotonic() + 60 * self.options.minutes

    def remaining(self):
        return self.deadline - time.monotonic()

    def results(self, stage):
        try:
            with open(self.path(stage + ".json"), encoding="utf-8") as f:
                return json.load(f)
        except (OSError, ValueError):
            return {}

    def save(self, stage, results):
        path = self.path(stage + ".json")
        with open(path + ".new", "w", encoding="utf-8") as f:
            json.dump(results, f, indent=1)
        os.replace(path + ".new", path)

    def log(self, text):
        with open(self.path("log.txt"), "a", encoding="utf-8") as f:
            f.write(text + "\n")

    def run(self, command, seconds=1e9, ok=(0,), env=None, while_it_runs=None, cwd=None, keep=False):
        """Runs it, at most so long and never beyond the stage's end; `while_it_runs(child)` is
        called twice a second, and ends it by returning true.  keep: what it said counts even
        where its time was over."""
        command = [str(word) for word in command]
        self.log(f"\n$ {' '.join(command)}")
        left = self.remaining()
        if left <= 0:
            raise Cut(f"the stage's time was over before {os.path.basename(command[0])} began")
        limit = min(seconds, left)
        begin = time.monotonic()
        log_path = os.path.join(self.work, "output.txt")
        ended = False
        with open(log_path, "w+b") as output:
            child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                                     env={**self.environment(), **(env or {})}, cwd=cwd, start_new_session=True)
            try:
                while child.poll() is None:
                    ended = bool(while_it_runs and while_it_runs(child))
                    if ended or time.monotonic() - begin > limit:
                        break
                    try:
                        child.wait(0.5 if time.monotonic() - begin > 2 else 0.05)
                    except subprocess.TimeoutExpired:
                        pass
            finally:
                if child.poll() is None:
                    os.killpg(child.pid, signal.SIGKILL)
                child.wait()
            output.seek(0)
            text = output.read().decode(errors="replace")
        took = time.monotonic() - begin
        self.log("\n".join(text.splitlines()[-KEPT_LINES:]) + f"\n-> {child.returncode} after {took:.1f} s")
        if ended:
            return Done(0, text, took)
        if took > limit and child.returncode == -signal.SIGKILL:
            if keep:
                return Done(child.returncode, text, took, True)
            if left < seconds:
                raise Cut(f"the stage's time was over {limit:.0f} s after {os.path.basename(command[0])} began")
            raise Failed(f"{os.path.basename(command[0])} did not end within {limit:.0f} s")
        if child.returncode not in ok:
            raise Failed(f"{os.path.basename(command[0])}: status {child.returncode}: {telling_line(text)}")
        return Done(child.returncode, text, took)


def telling_line(text):
    """The first error, as compilers and meson have it, or the last line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()] or ["(it said nothing)"]
    errors = [line for line in lines if re.search(r"\b(fatal )?error\b:", line, re.IGNORECASE)]
    return (errors or lines[-1:])[0][:300]


def cuda_folders(name):
    """Folders of that name of the CUDA toolkits that are here."""
    roots = [os.environ.get("CUDA_PATH"), os.environ.get("CUDA_HOME"), "/usr/local/cuda"]
    nvcc = shutil.which("nvcc")
    if nvcc:
        roots.append(os.path.dirname(os.path.dirname(os.path.realpath(nvcc))))
    found = [os.path.join(root, name) for root in roots if root]
    return [folder for i, folder in enumerate(found) if os.path.isdir(folder) and folder not in found[:i]]


def outcome_of(check, item):
    """What the item found, or why not; whatever goes wrong in it, the items after it are done."""
    try:
        return {"state": "ok", **(item.do(check) or {})}
    except Absent as why:
        return {"state": "absent", "why": str(why)}
    except Cut as why:
        return {"state": "cut", "why": str(why)}
    except Failed as why:
        return {"state": "failed", "why": str(why)}
    except Exception as why:  # pylint: disable=broad-except  # results that cannot be read are a finding too
        check.log(traceback.format_exc())
        return {"state": "failed", "why": f"{type(why).__name__}: {why}"}


def run_stage(check, stage, items, after_each):
    """Does what has not gone well yet; returns "ok", "failed" or "unfinished"."""
    results = check.results(stage)
    unfinished = False
    for item in items:
        if results.get(item.name, {}).get("state") == "ok" and not check.options.again:
            say(f"{stage} {item.name}: kept")
            continue
        if not check.fake and check.remaining() < item.seconds:
            say(f"{stage} {item.name}: not begun, {check.remaining():.0f} s are left of this stage's time")
            unfinished = True
            continue
        say(f"{stage} {item.name}: {item.what}")
        begin = time.monotonic()
        result = outcome_of(check, item)
        unfinished |= result["state"] == "cut"
        result["took_seconds"] = round(time.monotonic() - begin, 1)
        results[item.name] = result
        check.save(stage, results)
        after_each(check)
        say(f"{stage} {item.name}: {result['state']}" + (f": {result['why']}" if "why" in result else "") +
            f" ({result['took_seconds']} s)")
    failed = any(results.get(item.name, {}).get("state") == "failed" for item in items)
    return "failed" if failed else "unfinished" if unfinished else "ok"
