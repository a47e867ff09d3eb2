# SPDX-License-Identifier: BSD-3-Clause
"""Medians of the runs of bench/ddp.sh as one JSON object: python bench/peers/ddp_report.py RAW_LINES"""
import platform
import statistics

from pair_report import head, print_pairs, times

PAIRS = {"ddp": ("ddp", "ddp"), "zero3": ("zero3", "fsdp2")}  # name: braid's mode, the peer's


def summary(runs):
    measured = times(runs)
    return {
        "parameters": runs[0]["parameters"],
        **measured,
        "samples_per_second": runs[0]["samples"] / measured["step_seconds"],
        "peak_rss_mib": round(statistics.median(max(run["peak_rss"]) for run in runs) / 2**20, 1),
        "last_loss": runs[-1]["losses"][-1],
    }


def ratios(braid, peer):
    return {
        "samples_per_second_ratio": round(braid["samples_per_second"] / peer["samples_per_second"], 3),
        "samples_per_cpu_second_ratio": round(peer["step_cpu_seconds"] / braid["step_cpu_seconds"], 3),
        "peak_rss_ratio": round(braid["peak_rss_mib"] / peer["peak_rss_mib"], 3),
    }


if __name__ == "__main__":
    python = platform.python_version()
    print_pairs(
        head(f"eager PyTorch, DDP (gradient_as_bucket_view) and FSDP2 (fully_shard), fused AdamW, Python {python}",
             dtype="fp32"),
        PAIRS, summary, ratios)
