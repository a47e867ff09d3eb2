#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""report.html of a small run, opened in a real browser: its script runs and draws the curves, at desktop and phone width.

  page.py SOURCE_DIR BRAID
"""
import pathlib
import shutil
import subprocess
import sys
import tempfile

root, braid = pathlib.Path(sys.argv[1]), sys.argv[2]
browser = shutil.which("chromium") or shutil.which("google-chrome")
if browser is None:
    print("page: skipped, there is no chromium")
    sys.exit(77)


def open_page(page, width, *flags):
    return subprocess.run([browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
                           "--virtual-time-budget=3000", f"--window-size={width},900", *flags, page.as_uri()],
                          capture_output=True, text=True, timeout=120)


with tempfile.TemporaryDirectory() as temporary:
    run = pathlib.Path(temporary, "run")
    subprocess.run([braid, "train", "configs/gpt.yaml:tiny", "--quiet", "--set", f"run.dir={run}"], cwd=root, check=True)
    page = run / "report.html"
    if "http://" in page.read_text().replace("http://www.w3.org", "") or "https://" in page.read_text():
        sys.exit("page: report.html names something outside of itself")
    for width in (1280, 390):
        drawn = open_page(page, width, "--dump-dom").stdout
        curves = drawn.count("<path") + drawn.count("<polyline") + drawn.count("<canvas")
        if curves < 3:
            sys.exit(f"page: only {curves} curves are drawn at {width} pixels")
        picture = run / f"{width}.png"
        open_page(page, width, f"--screenshot={picture}")
        if picture.stat().st_size < 10_000:
            sys.exit(f"page: the picture at {width} pixels is nearly empty")
        print(f"page: {curves} curves at {width} pixels")
