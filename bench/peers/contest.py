"""Contenders at the same job, process after process in turn, and what comes of it.

In each round every contender of a job runs once, as a process of its own; its
value is the median of its own repetitions.  A peer that the first round leaves
far behind the best of them runs no more.  Results are lines of bench/report.py, one for each contender and measure, and for people a table of
ratios, pair by pair within the rounds.
"""
import dataclasses
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from typing import Callable

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import report  # noqa: E402

OURS = "penstock"
FAR_BEHIND = 0.85  # of the best peer, by the job's first measure


class Failed(Exception):
    """A contender's process did not do its job; the text says how."""


@dataclasses.dataclass
class Contender:
    name: str
    command: list
    read: Callable  # standard output -> {measure: value}
    environment: dict = dataclasses.field(default_factory=dict)
    cap_bytes: int = 0  # of private memory; what needs more fails.  0: none


@dataclasses.dataclass
class Job:
    name: str
    parameters: dict
    units: dict  # measure -> unit
    contenders: Callable  # -> [Contender]; called when the job is held, for it may make inputs
    # measure -> how far from ours it may lie where the job was the same
    same: dict = dataclasses.field(default_factory=dict)


def say(text):
    print(text, file=sys.stderr, flush=True)


def execute(contender, prefix):
    """Runs it once: its measures, and peak_bytes of the largest of its processes."""
    def limit():
        # where memory ends, this one shall go and nobody else
        with open("/proc/self/oom_score_adj", "w", encoding="ascii") as f:
            f.write("1000")
        if contender.cap_bytes:
            resource.setrlimit(resource.RLIMIT_DATA, (contender.cap_bytes,) * 2)

    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        # wait4 and not communicate: only it tells this child's peak from others'
        child = subprocess.Popen([*prefix, *contender.command], stdin=subprocess.DEVNULL,
                                 stdout=output, stderr=errors, preexec_fn=limit,
                                 env={**os.environ, **contender.environment})
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        errors.seek(0)
        if child.returncode:
            last = errors.read().strip().split("\n")[-1]
            raise Failed(f"{contender.name}: status {child.returncode}: {last}")
        try:
            measures = contender.read(output.read())
        except (ValueError, KeyError, OSError) as error:
            raise Failed(f"{contender.name}: its results cannot be read: {error!r}") from error
        return {**measures, "peak_bytes": usage.ru_maxrss * 1024}


def check_same(job, found, name, measures):
    """Whoever computed something else than we did has not done the job."""
    for measure, within in job.same.items():
        ours = found.get(OURS, {}).get(measure)
        if ours and not abs(measures[measure] - ours[0]) <= within:
            raise Failed(f"{name}: another job: its {measure} is {measures[measure]:.6g}, "
                         f"ours {ours[0]:.6g}")


def run_round(job, contenders, prefix, found):
    """Each once; enters what they did into found.  Returns who did the job."""
    did = []
    for contender in contenders:
        try:
            measures = execute(contender, prefix)
            check_same(job, found, contender.name, measures)
        except Failed as failure:
            say(f"  {failure}")  # which may be a finding of its own
            found.pop(contender.name, None)
            continue
        did.append(contender)
        values = found.setdefault(contender.name, {})
        for measure, value in measures.items():
            values.setdefault(measure, []).append(value)
        say(f"  {contender.name}: " +
            "  ".join(f"{m} {shown(v)}" for m, v in measures.items()))
    return did


def near_the_best(job, contenders, found):
    """We, and the peers that could be the best of them."""
    measure, unit = next(iter(job.units.items()))
    value = {c.name: found[c.name][measure][0] for c in contenders if c.name != OURS}

    def speed(name):
        return value[name] if report.more_is_better(unit) else 1 / value[name]

    best = max(map(speed, value), default=0)
    return [c for c in contenders if c.name == OURS or speed(c.name) >= FAR_BEHIND * best]


def compete(job, contenders, rounds, prefix):
    """{contender: {measure: [value a round]}}; who fails once is out."""
    found = {}
    contenders = run_round(job, contenders, prefix, found)
    for _ in range(1, rounds):
        contenders = run_round(job, near_the_best(job, contenders, found), prefix, found)
    return found


def shown(value):
    return f"{value:.6g}"


def advantage(ours, theirs, unit):
    """How many times better ours is, round by round."""
    if report.more_is_better(unit):
        return [a / b for a, b in zip(ours, theirs)]
    return [b / a for a, b in zip(ours, theirs)]


def tell(job, found):
    """The table for people: medians, and ours over each peer's."""
    say(f"{job.name} " + " ".join(f"{k}={v}" for k, v in job.parameters.items()))
    for measure, unit in job.units.items():
        for name, measures in found.items():
            values = measures[measure]
            text = (f"  {name:34} {shown(statistics.median(values)):>12} {unit} "
                    f"({shown(min(values))} to {shown(max(values))})")
            if name != OURS and OURS in found:
                # pairs: a peer that was left behind has fewer values
                times = advantage(found[OURS][measure], values, unit)
                text += (f"  {OURS} is {statistics.median(times):.2f} times better "
                         f"({min(times):.2f} to {max(times):.2f})")
            say(text)


def hold(job, rounds, prefix, fingerprint, by=None):
    """Runs the job and writes its lines.  by: names of the only peers to run."""
    say(f"{job.name} " + " ".join(f"{k}={v}" for k, v in job.parameters.items()))
    contenders = [c for c in job.contenders() if not by or c.name in (OURS, *by)]
    found = compete(job, contenders, rounds, prefix)
    for name, measures in found.items():
        for measure, unit in job.units.items():
            report.write(report.result(f"peers.{job.name}.{measure}",
                                       {**job.parameters, "by": name}, unit,
                                       measures[measure], fingerprint), sys.stdout)
    tell(job, found)
    return found
