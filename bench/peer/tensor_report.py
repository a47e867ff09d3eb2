# SPDX-License-Identifier: BSD-3-Clause
"""Medians of the runs of bench/tensor.sh as one JSON object: python bench/peer/tensor_report.py RAW_LINES"""
import datetime
import json
import os
import platform
import statistics
import sys

from step_report import processor

PAIRS = {"tensor": "tensor", "sequence": "sequence", "overlap": "sequence"}  # braid's mode: the peer's


def summary(runs):
    steps = [s for run in runs for s in run["seconds"][2:]]
    cpu = [s for run in runs for s in run["cpu_seconds"][2:]]
    return {
        "step_seconds": statistics.median(steps),
        "step_seconds_best": min(steps),
        "step_cpu_seconds": statistics.median(cpu),
        "bytes_sent": runs[0]["bytes"],
        "steps": len(steps),
        "torch": runs[0]["version"],
    }


def main():
    runs = {}
    with open(sys.argv[1]) as file:
        for line in file:
            row = json.loads(line)
            runs.setdefault((row["who"], row["run"]["mode"]), []).append(row["run"])
    result = {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "machine": f"{processor()}, {os.cpu_count()} cores; 2 processes of 1 thread, Gloo over loopback",
        "peer": f"torch.distributed.tensor (parallelize_module), eager, Python {platform.python_version()}",
        "load_average": os.getloadavg()[0],
        "block": "attention (8 heads) and MLP of width 512, batch 4 of 256 tokens, fp32, forward and backward",
        "pairs": {},
    }
    for ours, theirs in PAIRS.items():
        braid, peer = summary(runs["braid", ours]), summary(runs["peer", theirs])
        result["pairs"][ours] = {
            "braid": braid,
            "peer": {"mode": theirs, **peer},
            "steps_per_second_ratio": round(peer["step_seconds"] / braid["step_seconds"], 3),
            "steps_per_cpu_second_ratio": round(peer["step_cpu_seconds"] / braid["step_cpu_seconds"], 3),
            "bytes_ratio": round(braid["bytes_sent"] / peer["bytes_sent"], 3),
        }
    json.dump(result, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
