#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Every named config of configs/ trains one tiny step; `braid inspect` takes it as it is.

  configs.py SOURCE_DIR BRAID
"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile

import tiny

root, braid = pathlib.Path(sys.argv[1]), sys.argv[2]
ALWAYS = [*tiny.SHORT, "mesh.data=auto"]
SECTIONS = {"seed", "run", "model", "data", "train", "optimizer", "valid", "checkpoint", "report", "mesh", "parallel", "memory", "profile", "launch"}


def names_of(file):
    keys = re.findall(r"^(\w+):", file.read_text(), re.M)
    return [""] if SECTIONS & set(keys) else keys


def call(*arguments):
    return subprocess.run([braid, *arguments], capture_output=True, text=True, cwd=root)


failures, count = [], 0
with tempfile.TemporaryDirectory() as temporary:
    for file in sorted((root / "configs").glob("*.yaml")):
        if not file.read_text().startswith("# braid "):
            failures.append(f"{file.name}: the first line must be the command that runs it")
        for name in names_of(file):
            spec = f"configs/{file.name}" + (f":{name}" if name else "")
            inspected = call("inspect", spec, "--json")
            if inspected.returncode != 0:
                failures.append(f"inspect {spec}: {inspected.stderr}")
                continue
            table = json.loads(inspected.stdout)
            channels = next((row["kind"] for row in table["layers"] if "patch_embed" in row["name"]), "")
            channels = re.search(r"(\d+)\s*->", channels)
            sets = tiny.MODEL[table["model"]] + ALWAYS + [f"run.dir={temporary}/{count}"]
            sets = [s.replace("{channels_in}", channels.group(1) if channels else "0") for s in sets]
            flags = [word for s in sets for word in ("--set", s)]
            trained = call("train", spec, "--quiet", *flags)
            if trained.returncode != 0:
                failures.append(f"train {spec}: {trained.stderr}")
            count += 1
print("\n".join(failures) or f"configs: {count} named configs train a step")
sys.exit(bool(failures) or count == 0)
