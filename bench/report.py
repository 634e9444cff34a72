"""Results of benches as JSON lines, the form that bench/README.md gives, for
scripts.  Programs in C write the same with bench/report.h.
"""

import json
import os
import shlex
import statistics
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.environ.get("PEN_BUILD", os.path.join(ROOT, "build"))


def machine(libraries=None):
    """This machine and build; `libraries` {name: version} join those we use."""
    program = os.path.join(BUILD, "bench", "fingerprint")
    found = json.loads(subprocess.run([program], check=True, capture_output=True).stdout)
    found["libraries"].update(libraries or {})
    return found


def more_is_better(unit):
    return unit.endswith("/s")


def spread(values):
    return {"min": min(values), "median": statistics.median(values), "max": max(values),
            "n": len(values)}


def result(name, parameters, unit, values, fingerprint, ceiling=None, command=None):
    """One line as a dictionary.  ceiling: (name, values), value i measured next to
    values[i]."""
    line = {"name": name, "parameters": parameters, "unit": unit,
            "value": statistics.median(values), "spread": spread(values)}
    if ceiling:
        limit_name, limits = ceiling
        if len(limits) != len(values):
            raise ValueError(f"{name}: {len(values)} values beside {len(limits)} of {limit_name}")
        percents = [100 * (v / c if more_is_better(unit) else c / v)
                    for v, c in zip(values, limits)]
        line["ceiling"] = {"name": limit_name, "value": statistics.median(limits),
                           "spread": spread(limits)}
        line["percent"] = statistics.median(percents)
        line["percent_spread"] = {"min": min(percents), "max": max(percents)}
    line["command"] = command or shlex.join([os.path.basename(sys.argv[0]), *sys.argv[1:]])
    line["machine"] = fingerprint
    return line


def write(line, file=None):
    print(json.dumps(line), file=file, flush=True)


def read(path):
    """The lines of a file; ValueError says which one is none."""
    lines = []
    with open(path, encoding="utf-8") as f:
        for number, text in enumerate(f, 1):
            if not text.strip():
                continue
            try:
                line = json.loads(text)
                missing = {"name", "parameters", "unit", "value", "spread", "command",
                           "machine"} - line.keys()
            except (json.JSONDecodeError, AttributeError) as error:
                raise ValueError(f"{path}:{number}: no JSON object: {error}") from error
            if missing:
                raise ValueError(f"{path}:{number}: no {', '.join(sorted(missing))}")
            lines.append(line)
    return lines
