#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""An outside LibTorch program finds the installed libbraid with find_package(braid), links and runs.

  package.py SOURCE_DIR BUILD_DIR
"""
import pathlib
import subprocess
import sys
import tempfile

root, build = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])


def run(*command, **options):
    result = subprocess.run([str(word) for word in command], capture_output=True, text=True, **options)
    if result.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\n{result.stdout}{result.stderr}")
    return result.stdout


with tempfile.TemporaryDirectory() as temporary:
    prefix, outside = pathlib.Path(temporary, "prefix"), pathlib.Path(temporary, "build")
    run("cmake", "--install", build, "--prefix", prefix)
    run("cmake", "-S", root / "tests/rules/outside", "-B", outside, "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={prefix}",
        "-DCMAKE_BUILD_TYPE=Release")
    run("cmake", "--build", outside)
    print(run(outside / "outside").strip())
    print(run(prefix / "bin/braid", "--version").strip())
