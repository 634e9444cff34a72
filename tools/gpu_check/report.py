"""report.md: what the stages found, for people."""
import traceback

from . import shapes
from .common import STAGE_NAMES

GOAL_RESIDENT, GOAL_TAX, GOAL_SIMULATOR = 0.60, 0.10, 0.10
GOAL_TAX_FROM = 1.2  # times T*


def number(value, digits=3):
    return "" if value is None else f"{value:.{digits}g}"


def percent(value):
    return "" if value is None else f"{100 * value:.0f} %"


def gib(value):
    return f"{value / (1 << 30):.1f}" if value else ""


def table(head, rows):
    if not rows:
        return []
    return ["", "| " + " | ".join(head) + " |", "|" + " --- |" * len(head),
            *("| " + " | ".join(map(str, row)) + " |" for row in rows)]


def states(check):
    rows = []
    for stage in STAGE_NAMES:
        for name, result in check.results(stage).items():
            rows.append((stage, name, result["state"], result.get("took_seconds", ""), result.get("why", "")))
    return table(("stage", "item", "state", "s", "why"), rows)


def failures(check, stage):
    return "; ".join(f"{name}: {r['why']}" for name, r in check.results(stage).items() if "why" in r and r["state"] != "absent")


def kernels(check):
    found = check.results("kernels")
    lines = []
    for item in ("small", "large"):
        shares = found.get(item, {}).get("share_of_allowed", {})
        if shares:
            worst = max(shares, key=shares.get)
            lines += ["", f"{item} shapes, seed {found[item]['seed']}: {len(shares)} operations; the widest is {worst} with "
                      f"{shares[worst]:.2f} of what is allowed."]
    rows = [(row["time"], dtype or row["dtype"], f"{1e3 * row['seconds']:.3f}", row["gbytes_per_s"], row["tflops"] or "")
            for item, dtype in (("times", None), ("tf32", "TF32")) for row in found.get(item, {}).get("rows", [])]
    return lines + table(("operation", "dtype", "ms", "GB/s", "TFLOP/s"), rows)


def ceilings(check):
    rows = [(row["name"], number(row["median"], 4), row["unit"], number(row["least"], 4), number(row["most"], 4))
            for row in check.results("step").get("ceilings", {}).get("rows", [])]
    return table(("ceiling", "median", "", "least", "most"), rows)


def tax(found, name):
    """(share, of which place): how much longer than with everything, or with as much as fits, on the device."""
    model, size = name.partition("-")[0], name.rpartition("-")[2]
    for near in ("resident", "state-in-ram"):
        if name == f"{model}-{near}-{size}":
            break
        if base := found.get(f"{model}-{near}-{size}", {}).get("seconds"):
            return found[name]["seconds"] / base - 1, near
    return None, ""


def recomputes(result):
    return not any(", 0 of " in line and "blocks recompute" in line for line in result.get("placement", []))


def goals_of_mfu(found):
    """(run, measured, is it reached) of all runs that the goal is about; so are the next two."""
    for name in ("7b-resident-64k", "7b-state-in-ram-64k"):
        if name in found and (mfu := found[name]["mfu_of_data_sheet"]) is not None:
            again = recomputes(found[name])
            yield name, percent(mfu) + (", recomputing" if again else ""), mfu >= GOAL_RESIDENT and not again


def goals_of_tax(check, found):
    for name, result in found.items():
        share, near = tax(found, name)
        if share is not None and shapes.tokens_of(check, name.rpartition("-")[2]) >= GOAL_TAX_FROM * result["hiding_tokens"]:
            yield name, f"{percent(share)} longer than {near}", share <= GOAL_TAX


def goals_of_simulator(found):
    for name, result in found.items():
        if plan := result.get("simulated"):
            ratio = result["seconds"] / plan["seconds"]
            yield name, f"{number(ratio)} times the simulated", abs(ratio - 1) <= GOAL_SIMULATOR


def goals(check):
    """What was wished for, and whether it is so: of every run that it is about."""
    found = {name: r for name, r in check.results("step").items() if "tokens_per_s" in r}
    all_of_them = {
        f"7 B, 64 k tokens: MFU at least {percent(GOAL_RESIDENT)} without recompute": goals_of_mfu(found),
        f"from {GOAL_TAX_FROM} T* on: offload tax at most {percent(GOAL_TAX)}": goals_of_tax(check, found),
        f"time within {percent(GOAL_SIMULATOR)} of the simulator's": goals_of_simulator(found)}
    rows = []
    for goal, runs in all_of_them.items():
        judged = [(goal, name, measured, "reached" if reached else "MISSED") for name, measured, reached in runs]
        rows += judged or [(goal, "", "", "not measured")]
    return table(("goal", "run", "measured", ""), rows)


def steps(check):
    found = check.results("step")
    rows = []
    for name, r in found.items():
        if "tokens_per_s" not in r:
            continue
        plan, exposed = r.get("simulated") or {}, r.get("exposed_seconds") or {}
        share, near = tax(found, name)
        rows.append((name, number(r["seconds"], 4), number(r["tokens_per_s"], 4), percent(r["mfu_of_data_sheet"]),
                     percent(r["mfu_of_measured_products"]), r["bound_told"],
                     f"{percent(plan['bound_seconds'] / r['seconds'])} ({plan['bound']})" if plan else "",
                     number(r["seconds"] / plan["seconds"], 3) if plan else "",
                     f"{percent(share)} of {near}" if near else "",
                     number(r["hiding_tokens"], 2) if r["hiding_tokens"] else "", number(exposed.get("update"), 2),
                     f"{gib(r['device_bytes'])} / {gib(r['planned_bytes'].get('device'))}",
                     f"{gib(r['host_bytes'])} / {gib(r['planned_bytes'].get('host'))}"))
    notes = ["", "MFU is 6NT over the time, N without the embedding's table and with the head, by the data sheet's and by the "
             "measured bf16 products. T*: tokens from which on the ceilings let everything hide. Exposed: seconds a step in which "
             "the update lane worked and compute did not. Bytes in GiB, peak over planned.",
             f"The tax counts from {GOAL_TAX_FROM} T* tokens a step on."] if rows else []
    return table(("run", "s/step", "tokens/s", "MFU", "of products", "lane", "bound's share", "measured/simulated", "tax", "T*",
                  "exposed s", "device", "host"), rows) + notes


def peers(check):
    rows = []
    for name, result in check.results("peer").items():
        for row in result.get("rows", []):
            ours = check.results("step").get(f"{name.partition('-')[0]}-resident-{row['size']}", {})
            ratio = ours["tokens_per_s"] / row["tokens_per_s"] if "tokens_per_s" in ours and "tokens_per_s" in row else None
            rows.append((name, row["size"], number(row.get("median_seconds"), 4), number(row.get("tokens_per_s"), 4),
                         percent(row.get("mfu_of_data_sheet")), "yes" if row.get("recompute") else "",
                         gib(row.get("device_bytes")), number(ratio, 3), row.get("failed", "")))
    return table(("PyTorch", "tokens", "s/step", "tokens/s", "MFU", "recompute", "device GiB", "ours resident is times as fast", ""),
                 rows)


def text(check):
    device = check.results("build").get("device", {}).get("device", "no device was opened")
    lines = ["# gpu-check", "", device + (" (a rehearsal: nothing here is a measurement)" if check.fake else "")]
    for part in (states, kernels, ceilings, steps, goals, peers):
        try:
            lines += part(check)
        except Exception as why:  # pylint: disable=broad-except  # a table less, and all else is still told
            check.log(traceback.format_exc())
            lines += ["", f"(the part {part.__name__} could not be told: {type(why).__name__}: {why})"]
    return "\n".join(lines) + "\n"


def write(check):
    with open(check.path("report.md"), "w", encoding="utf-8") as f:
        f.write(text(check))
