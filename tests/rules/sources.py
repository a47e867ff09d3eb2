#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Rules that a reader of one file can check: licence line, length, environment reads, macros in bodies."""
import pathlib
import re
import subprocess
import sys

root = pathlib.Path(sys.argv[1])
listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=root, capture_output=True, text=True)
names = listed.stdout.split() if listed.returncode == 0 else [
    str(p.relative_to(root)) for d in ("src", "include", "tests", "examples", "bench") for p in (root / d).rglob("*")]
code = [n for n in names if n.endswith((".h", ".cpp", ".cu", ".cuh")) and (root / n).exists()]

GETENV = re.compile(r"\b(secure_)?getenv\s*\(")
bad = []
for name in code:
    lines = (root / name).read_text().splitlines()
    limit = 300 if name.startswith("tests/") else 400
    if not lines or "SPDX-License-Identifier: BSD-3-Clause" not in lines[0]:
        bad.append(f"{name}:1: the first line must be // SPDX-License-Identifier: BSD-3-Clause")
    if len(lines) > limit:
        bad.append(f"{name}: {len(lines)} lines, at most {limit}")
    for number, line in enumerate(lines, 1):
        if GETENV.search(line) and name != "src/launch/environment.cpp" and name.startswith(("src/", "include/")):
            bad.append(f"{name}:{number}: the environment is read in src/launch/environment.cpp alone")
        if name.startswith("src/") and name.endswith(".cpp") and re.match(r"\s*#if(n?def)?\b", line):
            bad.append(f"{name}:{number}: a missing backend is another file, not an #if")
print("\n".join(bad) or f"sources: {len(code)} files keep the rules")
sys.exit(bool(bad) or not code)
