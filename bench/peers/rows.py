"""The rows of the comparison: which jobs there are, and who does them how."""
import json
import os
import statistics

from contest import OURS, Contender, Job

PEERS = os.path.dirname(os.path.abspath(__file__))

# Huge pages for torch's own allocations: both of its ways and none are tried,
# for none of them wins everywhere.
PAGES = {"": {}, ", huge pages": {"THP_MEM_ALLOC_ENABLE": "1"}}


def last_line(output):
    """What a peer_*.py says; libraries may have said more above it."""
    return json.loads(output.strip().split("\n")[-1])


def our_adamw(build, elems, threads):
    def read(output):
        for line in map(json.loads, output.splitlines()):
            if line["name"] == "bench_adamw.tiles":
                return {"rate": line["value"]}
        raise ValueError("bench_adamw wrote no line bench_adamw.tiles")

    return Contender(OURS, [os.path.join(build, "bench", "bench_adamw"), "--elements", str(elems),
                            "--threads", str(threads), "--repeats", "5"], read)


def peer_adamw(python, how, elems, threads, pages):
    def read(output):
        return {"rate": elems / statistics.median(last_line(output)["seconds"])}

    return Contender(how + pages, [python, os.path.join(PEERS, "peer_adamw.py"), "--how", how,
                                   "--elems", str(elems), "--threads", str(threads)], read,
                     {"OMP_NUM_THREADS": str(threads), **PAGES[pages]})


def adamw(setting):
    for elems in (100_000_000, 500_000_000):
        for threads in (1, 2):
            peers = [peer_adamw(setting.python, how, elems, threads, pages)
                     for how in ("torch-fused", "torch-foreach", "torch-fused-each",
                                 "torch-compiled", "deepspeed", "deepspeed-each")
                     for pages in PAGES]
            yield Job("adamw", {"elements": elems, "threads": threads}, {"rate": "parameters/s"},
                      [our_adamw(setting.build, elems, threads), *peers])


ROWS = {"adamw": adamw}
