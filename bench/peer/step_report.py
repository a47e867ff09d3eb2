# SPDX-License-Identifier: BSD-3-Clause
"""Medians of the runs of bench/step.sh as one JSON object: python bench/peer/step_report.py RAW_LINES"""
import datetime
import json
import os
import platform
import statistics
import sys


def summary(runs):
    steps = [s for run in runs for s in run["seconds"][1:]]  # the first step warms up
    cpu = [s for run in runs for s in run["cpu_seconds"][1:]]
    return {
        "parameters": runs[0]["parameters"],
        "step_seconds": statistics.median(steps),
        "step_seconds_best": min(steps),
        "step_cpu_seconds": statistics.median(cpu),
        "steps": len(steps),
        "start_to_first_step_seconds": statistics.median(run["first_step"] for run in runs),
        "peak_rss_mib": round(statistics.median(run["peak_rss"] for run in runs) / 2**20, 1),
        "torch": runs[0]["version"],
    }


def processor():
    with open("/proc/cpuinfo") as file:
        return next((line.split(":")[1].strip() for line in file if line.startswith("model name")), platform.machine())


def main():
    runs = {}
    with open(sys.argv[1]) as file:
        for line in file:
            row = json.loads(line)
            runs.setdefault(row["run"]["model"], {}).setdefault(row["who"], []).append(row["run"])
    result = {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "machine": f"{processor()}, {os.cpu_count()} cores, 2 threads used, OMP_WAIT_POLICY=passive",
        "peer": f"eager PyTorch, fused AdamW, Python {platform.python_version()}",
        "load_average": os.getloadavg()[0],
        "dtype": "fp32",
        "models": {},
    }
    for model, sides in runs.items():
        entry = {who: summary(rows) for who, rows in sides.items()}
        braid, peer = entry["braid"], entry["peer"]
        entry["ratios"] = {  # above 1: braid is better
            "step": round(peer["step_seconds"] / braid["step_seconds"], 3),
            "step_cpu": round(peer["step_cpu_seconds"] / braid["step_cpu_seconds"], 3),
            "peak_rss": round(peer["peak_rss_mib"] / braid["peak_rss_mib"], 3),
            "start_to_first_step": round(peer["start_to_first_step_seconds"] / braid["start_to_first_step_seconds"], 2),
        }
        result["models"][model] = entry
    json.dump(result, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
