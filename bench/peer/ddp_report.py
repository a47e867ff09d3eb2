# SPDX-License-Identifier: BSD-3-Clause
"""Medians of the runs of bench/ddp.sh as one JSON object: python bench/peer/ddp_report.py RAW_LINES"""
import datetime
import json
import os
import platform
import statistics
import sys

from step_report import processor

PAIRS = {"ddp": ("ddp", "ddp"), "zero3": ("zero3", "fsdp2")}  # name: braid's mode, the peer's


def summary(runs):
    steps = [s for run in runs for s in run["seconds"][2:]]  # buckets are made in the first, reordered in the second
    cpu = [s for run in runs for s in run["cpu_seconds"][2:]]
    return {
        "parameters": runs[0]["parameters"],
        "step_seconds": statistics.median(steps),
        "step_seconds_best": min(steps),
        "step_cpu_seconds": statistics.median(cpu),
        "samples_per_second": runs[0]["samples"] / statistics.median(steps),
        "peak_rss_mib": round(statistics.median(max(run["peak_rss"]) for run in runs) / 2**20, 1),
        "steps": len(steps),
        "last_loss": runs[-1]["losses"][-1],
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
        "peer": f"eager PyTorch, DDP (gradient_as_bucket_view) and FSDP2 (fully_shard), fused AdamW, Python {platform.python_version()}",
        "load_average": os.getloadavg()[0],
        "dtype": "fp32",
        "pairs": {},
    }
    for name, (ours, theirs) in PAIRS.items():
        braid, peer = summary(runs["braid", ours]), summary(runs["peer", theirs])
        result["pairs"][name] = {
            "braid": braid,
            "peer": {"mode": theirs, **peer},
            "samples_per_second_ratio": round(braid["samples_per_second"] / peer["samples_per_second"], 3),
            "samples_per_cpu_second_ratio": round(peer["step_cpu_seconds"] / braid["step_cpu_seconds"], 3),
            "peak_rss_ratio": round(braid["peak_rss_mib"] / peer["peak_rss_mib"], 3),
        }
    json.dump(result, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
