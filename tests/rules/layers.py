#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A module includes what stands before it in the order of the house, never a neighbour in the same braces."""
import pathlib
import re
import sys

ORDER = [
    {"core"},
    {"kernels", "memory", "data", "report", "comm"},
    {"launch", "optim", "parallel"},
    {"nn", "checkpoint"},
    {"train"},
    {"plan"},
    {"cli"},
]
RANK = {module: rank for rank, modules in enumerate(ORDER) for module in modules}
INCLUDE = re.compile(r'#include\s+["<](?:braid/)?(\w+)/[\w./]+[">]')

root = pathlib.Path(sys.argv[1])
bad = []
count = 0
for folder in (root / "include/braid", root / "src"):
    for file in sorted(folder.rglob("*")):
        module = file.relative_to(folder).parts[0]
        if file.suffix not in {".h", ".cpp", ".cu", ".cuh"} or module not in RANK:
            continue
        count += 1
        for number, line in enumerate(file.read_text().splitlines(), 1):
            match = INCLUDE.match(line)
            seen = match.group(1) if match else None
            if seen in RANK and seen != module and RANK[seen] >= RANK[module]:
                bad.append(f"{file.relative_to(root)}:{number}: {module} may not include {seen}")
print("\n".join(bad) or f"layers: {count} files keep the order")
sys.exit(bool(bad) or count == 0)
