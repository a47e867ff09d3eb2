#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Public headers stay light: lines after the preprocessor (g++ -E -P), a count and never a clock.

  budget.py SOURCE_DIR TORCH_DIR
"""
import concurrent.futures
import os
import pathlib
import subprocess
import sys

root, torch = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
HEAVY = {"nn/layers.h", "nn/moe.h", "braid.h"}  # those may include torch/nn/module.h
LIGHT_LIMIT, HEAVY_LIMIT = 125_000, 262_000


def lines(header):
    flags = ["-std=c++20", "-E", "-P", "-x", "c++", f"-I{root}/include", f"-isystem{torch}/include",
             f"-isystem{torch}/include/torch/csrc/api/include"]
    result = subprocess.run(["g++", *flags, str(header)], capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"{header} does not stand alone:\n{result.stderr}")
    return result.stdout.count("\n")


headers = sorted((root / "include/braid").rglob("*.h"))
with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
    counts = list(pool.map(lines, headers))
bad = []
for header, count in zip(headers, counts):
    name = str(header.relative_to(root / "include/braid"))
    limit = HEAVY_LIMIT if name in HEAVY else LIGHT_LIMIT
    if count > limit:
        bad.append(f"{name}: {count} lines after -E, at most {limit}")
print("\n".join(bad) or f"budget: {len(headers)} headers, heaviest light one "
      f"{max(c for h, c in zip(headers, counts) if str(h.relative_to(root / 'include/braid')) not in HEAVY)} lines")
sys.exit(bool(bad) or not headers)
