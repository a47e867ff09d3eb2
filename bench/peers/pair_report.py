# SPDX-License-Identifier: BSD-3-Clause
"""What the reports of two processes beside a peer share (bench/pair.sh writes their raw lines)."""
import datetime
import json
import os
import statistics
import sys

from results import processor


def read_runs(path):
    """Runs by (who, mode)."""
    runs = {}
    with open(path) as file:
        for line in file:
            row = json.loads(line)
            runs.setdefault((row["who"], row["run"]["mode"]), []).append(row["run"])
    return runs


def times(runs):
    steps = [s for run in runs for s in run["seconds"][2:]]  # buckets are made in the first, reordered in the second
    cpu = [s for run in runs for s in run["cpu_seconds"][2:]]
    return {
        "step_seconds": statistics.median(steps),
        "step_seconds_best": min(steps),
        "step_cpu_seconds": statistics.median(cpu),
        "steps": len(steps),
        "torch": runs[0]["version"],
    }


def head(peer, **more):
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "machine": f"{processor()}, {os.cpu_count()} cores; 2 processes of 1 thread, Gloo over loopback",
        "peer": peer,
        "load_average": os.getloadavg()[0],
        **more,
    }


def print_pairs(result, modes, summary, ratios):
    """modes: name -> (braid's mode, the peer's); ratios(braid, peer) of two summaries."""
    runs = read_runs(sys.argv[1])
    result["pairs"] = {}
    for name, (ours, theirs) in modes.items():
        braid, peer = summary(runs["braid", ours]), summary(runs["peer", theirs])
        result["pairs"][name] = {"braid": braid, "peer": {"mode": theirs, **peer}, **ratios(braid, peer)}
    json.dump(result, sys.stdout, indent=1)
    print()
