# SPDX-License-Identifier: BSD-3-Clause
"""What bench/peers keeps and shows: FLOPs of a step, the results file, the table, the plot. No packages needed."""
import datetime
import json
import os
import platform
import re

PEAK = {"H200": 989.5, "H100": 989.5, "A100": 312.0}  # dense bf16 TFLOP/s by the vendor's data sheets
TITLES = {"vit_d384": "ViT d384", "vit_d1536": "ViT d1536", "swinir": "SwinIR", "gpt": "GPT-2 124M", "llama_8l": "Llama-3-8B, 8 layers",
          "gpt_xl": "GPT-2 1.5B", "llama_8b": "Llama-3-8B"}
CONVENTION = ("FLOPs of a step: 6 a weight of a product and token (embedding look-ups have none, heads do); attention counts the full square "
              "also under causal masks, backward 2.5x forward for ViT and GPT-2 124M, 2x for the others (12LHS: 6N+12LHS in all)")


def step_flops(config):
    """FLOPs of a step by CONVENTION."""
    m, batch = config["model"], config["train"]["global_batch"]
    width = m["width"]
    if m["name"] == "vit":
        patch = m["patch"] ** 2 * (m["channels_in"] + m["channels_out"])
        tokens = m["image"][0] * m["image"][1] // m["patch"] ** 2
        weights, pairs, factor = 12 * m["depth"] * width ** 2 + patch * width, m["depth"] * tokens, 3.5
    elif m["name"] == "swinir":
        blocks, hidden, features = sum(m["depths"]), width * m["mlp_ratio"], m["features"]
        tokens = m["image"][0] * m["image"][1]
        weights = blocks * (4 * width ** 2 + 2 * width * hidden) + 9 * (len(m["depths"]) + 1) * width ** 2
        weights += 9 * (m["channels"] * width + width * features + 4 * features ** 2 + m["scale"] ** 2 * features * m["channels"])
        pairs, factor = blocks * m["window"] ** 2, 3
    else:
        tokens = m["sequence"]
        if m["name"] == "gpt":
            block = 12 * width ** 2
        else:
            block = 2 * width ** 2 + 2 * width * width // m["heads"] * m["kv_heads"] + 3 * width * m["hidden"]
        weights, pairs = m["layers"] * block + width * m["vocabulary"], m["layers"] * tokens
        factor = 3.5 if m["name"] == "gpt" and width < 1024 else 3
    return batch * tokens * (6 * weights + factor * 4 * pairs * width)


def processor():
    try:
        with open("/proc/cpuinfo") as file:
            return next((line.split(":")[1].strip() for line in file if line.startswith("model name")), platform.machine())
    except OSError:
        return platform.machine()


def read(path):
    if path and os.path.exists(path):
        with open(path) as file:
            return json.load(file)
    return {}


def write(path, results):
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path, "w") as file:
        json.dump(results, file, indent=1)
        file.write("\n")


def head(device):
    return {"date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            "machine": f"{device}; {processor()}, {os.cpu_count()} cores", "convention": CONVENTION}


def kept(run, config):
    """The numbers of a run that go into the results."""
    result = {key: run[key] for key in ("rate", "ms", "units", "parameters", "precision", "set", "first_step", "first_loss", "peak_allocated",
                                        "peak_requested", "peak_reserved", "peak_allocated_warm_up", "peak_rss", "graph",
                                        "version") if key in run}
    result["ms_best"], result["ms_worst"], result["steps"] = 1e3 * min(run["seconds"]), 1e3 * max(run["seconds"]), len(run["seconds"])
    result["tflops"] = step_flops(config) / run["ms"] / 1e9
    peak = next((value for name, value in PEAK.items() if name in run["device"]), None)
    if peak:
        result["mfu"] = result["tflops"] / peak
    return result


def counterpart(rows, who, other):
    """The row of `other` that a row is compared with: of as many layers."""
    layers = re.search(r" \d+ layers$", who)
    return rows.get(other + (layers.group() if layers else ""), {})


def ratio(mine, theirs, key):
    return f"{mine[key] / theirs[key]:.3f}x" if mine.get(key) and theirs.get(key) else "-"


def gigabytes(row, key):
    return f"{row[key] / 1e9:.2f}" if key in row else "-"


HEADINGS = ("model", "who", "rate /s", "x compile", "x eager", "TFLOP/s", "MFU", "GB alloc", "GB reserv", "first s", "x compile")


def cells(model, who, rows):
    """A row of the table, as texts."""
    row, title = rows[who], TITLES.get(model, model)
    if "error" in row:
        return (title, who, row["error"])
    compiled, eager = (counterpart(rows, who, other) for other in ("compile", "eager"))
    return (title, who, f"{row['rate']:,.1f}", ratio(row, compiled, "rate"), ratio(row, eager, "rate"), f"{row['tflops']:.4g}",
            f"{row['mfu']:.3f}" if "mfu" in row else "-", gigabytes(row, "peak_allocated" if "peak_allocated" in row else "peak_rss"),
            gigabytes(row, "peak_reserved"), f"{row['first_step']:.1f}" if "first_step" in row else "-",
            ratio(compiled, row, "first_step"))


def table(results, markdown=False):
    """Lines, a model after the other."""
    lines = [HEADINGS] + [cells(model, who, rows) for model, rows in results.get("models", {}).items() for who in rows]
    if markdown:
        return ["| " + " | ".join(line) + " |" for line in (lines[0], ("---",) * len(HEADINGS), *lines[1:])]
    widths = (-21, -18, 11, 10, 9, 9, 6, 9, 9, 8, 9)
    return [" ".join(f"{cell:<{-w}}" if w < 0 else f"{cell:>{w}}" for cell, w in zip(line, widths)) for line in lines]


COLOURS = {"eager": "#b0b7c3", "compile": "#5b8def", "braid": "#e2703a"}


def bars(results, top, title, value, shown):
    """A panel of bars, a group a model: the rows of SVG and its height."""
    rows, x, height = [], 60, 130
    groups = {model: {who: value(rows_of, who) for who in rows_of if value(rows_of, who)} for model, rows_of in results["models"].items()}
    most = max((v for group in groups.values() for v in group.values()), default=1)
    rows.append(f'<text x="10" y="{top + 14}" font-weight="bold">{title}</text>')
    for model, group in groups.items():
        start = x
        for who, v in group.items():
            tall = height * v / most
            y = top + 35 + height - tall
            colour = COLOURS.get(who.split()[0], "#e8a87c")
            rows.append(f'<rect x="{x}" y="{y:.1f}" width="34" height="{tall:.1f}" fill="{colour}"><title>{model} {who}</title></rect>')
            rows.append(f'<text x="{x + 17}" y="{y - 3:.1f}" text-anchor="middle" font-size="10">{shown(v)}</text>')
            x += 38
        rows.append(f'<text x="{(start + x - 4) / 2}" y="{top + height + 50}" text-anchor="middle">{TITLES.get(model, model)}</text>')
        x += 34
    return rows, x


def plot(results, path):
    """Rates over torch.compile's (eager's if that is missing), memory, time to the first step, as SVG."""
    def speed(rows, who):
        base = rows.get("compile", rows.get("eager", {})).get("rate")
        return rows[who].get("rate", 0) / base if base else 0

    def memory(rows, who):
        return rows[who].get("peak_allocated", rows[who].get("peak_rss", 0)) / 1e9

    panels = [("steps a second over torch.compile's", speed, "{:.2f}".format), ("peak memory of the steps, GB", memory, "{:.3g}".format),
              ("seconds from process start to the end of the first step", lambda rows, who: rows[who].get("first_step", 0), "{:.3g}".format)]
    body, width = [], 0
    for i, (title, value, shown) in enumerate(panels):
        rows, right = bars(results, 40 + 210 * i, title, value, shown)
        body += rows
        width = max(width, right)
    for i, (who, colour) in enumerate(COLOURS.items()):
        body.append(f'<rect x="{60 + 90 * i}" y="12" width="12" height="12" fill="{colour}"/><text x="{78 + 90 * i}" y="22">{who}</text>')
    with open(path, "w") as file:
        file.write(f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{50 + 210 * len(panels)}" font-family="sans-serif" '
                   f'font-size="12"><rect width="100%" height="100%" fill="white"/>\n' + "\n".join(body) + "\n</svg>\n")
