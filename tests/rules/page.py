#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Pages opened in a real browser: their scripts run and draw, at desktop and phone width: report.html of a small run and the
page of a plan.

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


def check(page, least, what):
    """At both widths: so many of each mark are drawn, and nothing comes from outside."""
    name = page.name
    if "http://" in page.read_text().replace("http://www.w3.org", "") or "https://" in page.read_text():
        sys.exit(f"page: {name} names something outside of itself")
    for width in (1280, 390):
        drawn = open_page(page, width, "--dump-dom").stdout
        for mark, count in least.items():
            if drawn.count(mark) < count:
                sys.exit(f"page: only {drawn.count(mark)} of {mark} in {name} at {width} pixels")
        picture = page.with_suffix(f".{width}.png")
        open_page(page, width, f"--screenshot={picture}")
        if picture.stat().st_size < 10_000:
            sys.exit(f"page: the picture of {name} at {width} pixels is nearly empty")
        print(f"page: {what} at {width} pixels")


with tempfile.TemporaryDirectory() as temporary:
    plan = pathlib.Path(temporary, "plan.html")
    subprocess.run([braid, "plan", "configs/gpt.yaml:tiny", "--cluster", "dgx_a100", "--gpus", "4", "--html", str(plan)], cwd=root,
                   check=True, stdout=subprocess.DEVNULL)
    check(plan, {'class="plan-dot': 3, 'class="bar"': 6, 'class="lane"': 2, "<tr": 4}, "memory, trade-off and timeline of a plan")
    run = pathlib.Path(temporary, "run")
    subprocess.run([braid, "train", "configs/gpt.yaml:tiny", "--quiet", "--set", f"run.dir={run}"], cwd=root, check=True)
    check(run / "report.html", {"<path": 3}, "curves of a run")
