# SPDX-License-Identifier: BSD-3-Clause
"""Medians of the runs of bench/tensor.sh as one JSON object: python bench/peers/tensor_report.py RAW_LINES"""
import platform

from pair_report import head, print_pairs, times

PAIRS = {  # name: braid's mode, the peer's
    "tensor": ("tensor", "tensor"),
    "sequence": ("sequence", "sequence"),
    "overlap": ("overlap", "sequence"),
}


def summary(runs):
    return {**times(runs), "bytes_sent": runs[0]["bytes"]}


def ratios(braid, peer):
    return {
        "steps_per_second_ratio": round(peer["step_seconds"] / braid["step_seconds"], 3),
        "steps_per_cpu_second_ratio": round(peer["step_cpu_seconds"] / braid["step_cpu_seconds"], 3),
        "bytes_ratio": round(braid["bytes_sent"] / peer["bytes_sent"], 3),
    }


if __name__ == "__main__":
    print_pairs(
        head(f"torch.distributed.tensor (parallelize_module), eager, Python {platform.python_version()}",
             block="attention (8 heads) and MLP of width 512, batch 4 of 256 tokens, fp32, forward and backward"),
        PAIRS, summary, ratios)
