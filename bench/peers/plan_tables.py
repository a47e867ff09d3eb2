#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What bench/plan_gpu.sh wrote, as clusters/h200.yaml, bench/results/*.json and the tables of docs.

  bench/peers/plan_tables.py FOLDER     parts that are not there are left as they are; says which limits are missed
"""
import datetime
import json
import os
import re
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
DAY = datetime.date.today().isoformat()
MACHINE = "one NVIDIA H200, 16 CPU cores"
VERSIONS = {"torch": "2.11.0+cu130"}
NAMES = {"vit_wide": "vit 1536"}


def objects(path):
    """All JSON objects of a file, one after the other, also over several lines."""
    with open(path) as file:
        text = file.read()
    decoder, at, found = json.JSONDecoder(), 0, []
    while at < len(text):
        start = text.find("{", at)
        if start < 0:
            break
        value, at = decoder.raw_decode(text, start)
        found.append(value)
    return found


def read(name):
    with open(os.path.join(ROOT, name)) as file:
        return file.read()


def write(name, text):
    with open(os.path.join(ROOT, name), "w") as file:
        file.write(text)
    print("written:", name)


def write_results(name, head, cases):
    lines = [" " + json.dumps(case) for case in cases]
    text = json.dumps(head, indent=1)[:-2] + ',\n "cases": [\n' + ",\n".join(" " + x for x in lines) + "\n ]\n}\n"
    json.loads(text)
    write("bench/results/" + name, text)


def replaced(text, pattern, new):
    changed, count = re.subn(pattern, lambda match: new, text, count=1)
    if count == 0:
        print("not found in docs:", pattern)
    return changed


def with_table(text, first_line, rows):
    """The rows of the table that begins with this line."""
    lines = text.split("\n")
    start = next(i for i, line in enumerate(lines) if line.startswith(first_line)) + 2
    end = start
    while lines[end].startswith("|"):
        end += 1
    return "\n".join(lines[:start] + rows + lines[end:])


def sizes_of(source):
    """1,702 of "braid bench kernels; ..., 1702 of 1702 sizes in 118 s"."""
    match = re.search(r"(\d+) of (\d+) sizes in (\d+) s", source)
    return match.groups() if match else ("?", "?", "?")


def cluster(folder):
    path = os.path.join(folder, "h200.yaml")
    if not os.path.exists(path):
        return None
    with open(path) as file:
        text = file.read()
    done, all_sizes, seconds = sizes_of(text)
    if done != all_sizes:
        print(f"MISSED: only {done} of {all_sizes} sizes were measured")
    count = f"{int(done):,}" if done.isdigit() else done
    body = text[text.index("\ngpus_per_node"):]
    head = f"""# One NVIDIA H200 SXM: the machine that braid's own numbers were measured on.
# - memory, context, launch, view_launch, copy_bandwidth, gemm_share, stream_share, hot and curves: braid bench kernels --device cuda
#   on that machine (16 CPU cores, torch 2.11.0+cu130), {count} sizes in {seconds} s, of random values; nothing is fitted on steps of
#   models that are not tiny.
# - bandwidth and peaks: NVIDIA H200 data sheet, dense. older_share: mma instructions reach 62.9 % of the peak of Hopper's own
#   (Luo et al. 2024, 2402.13499).
name: h200
title: one NVIDIA H200 SXM 141 GB
source: NVIDIA H200 data sheet; braid bench kernels, {done} sizes; 2402.13499"""
    write("clusters/h200.yaml", head + body)
    return count


def named(case):
    for short, full in NAMES.items():
        case = case.replace(short, full)
    return case


def times(folder, count):
    rows = objects(os.path.join(folder, "plan_time.jsonl"))
    for row in rows:
        if "failed" in row:
            print("MISSED: case failed:", row["case"], row["failed"])
    cases = [row for row in rows if "measured" in row]
    errors = [abs(row["error_percent"]) for row in cases]
    mean, worst = sum(errors) / len(errors), max(errors)
    print(f"steps: mean {mean:.2f} %, worst {worst:.2f} % of {len(cases)} cases")
    if mean > 5 or worst > 10 or len(cases) < 12:
        print("MISSED: mean <= 5 %, worst <= 10 %, 12 cases and more")
    sizes = f" ({count} sizes of single kernels, launch costs of tiny models)" if count else ""
    write_results("h200_plan_time.json", {
        "date": DAY, "machine": MACHINE, "versions": VERSIONS,
        "method": "bench_plan_time CLUSTER --steps 8: median of 8 synchronised steps, replayed as CUDA graphs, after the first ones; "
                  "predicted by a dry run with the curves that `braid bench kernels` had measured just before on the same GPU" + sizes +
                  ": nothing is fitted on any of these cases",
        "mean_error_percent": round(mean, 2), "worst_error_percent": round(worst, 2)},
        [{"case": row["case"], "predicted_seconds": round(row["predicted"], 5), "measured_seconds": round(row["measured"], 5),
          "error_percent": round(row["error_percent"], 2)} for row in cases])
    text = read("docs/predictions.md")
    text = with_table(text, "| case, batch |", [
        f"| {named(row['case'])} | {1e3 * row['predicted']:.1f} | {1e3 * row['measured']:.1f} | {row['error_percent']:+.1f} % |"
        for row in cases])
    text = replaced(text, r"The error of a step is \*\*[\d.]+ %\*\* in the mean and [\d.]+ % at worst",
                    f"The error of a step is **{mean:.1f} %** in the mean and {worst:.1f} % at worst")
    text = replaced(text, r"synchronised steps of \d+ cases", f"synchronised steps of {len(cases)} cases")
    if count:
        text = replaced(text, r"single kernels of [\d,]+ sizes", f"single kernels of {count} sizes")
    write("docs/predictions.md", text)


def memory(folder):
    cases = [row for row in objects(os.path.join(folder, "plan_memory.jsonl")) if row.get("measured")]
    write_results("h200_plan_memory.json", {
        "date": DAY, "machine": MACHINE, "versions": VERSIONS,
        "method": "bench_plan_memory: a process a case; requested and reserved bytes at the peak of first step, later steps, checkpoint "
                  "and evaluation"},
        [{"case": row["case"],
          "requested": {key: row["requested"][key] for key in ("plan", "real", "difference")},
          "reserved": {key: row["reserved"][key] for key in ("plan", "real", "percent")}} for row in cases])
    exact = [row for row in cases if row["requested"]["difference"] == 0]
    worst = max(abs(row["reserved"]["percent"]) for row in cases)
    print(f"bytes: {len(exact)} of {len(cases)} cases exact, reserved within {worst:.2f} %")
    for row in cases:
        if row["requested"]["difference"] != 0:
            print("  to explain:", row["case"], f"{row['requested']['difference']:+,} of {row['requested']['real']:,}")
    if worst > 2 or len(cases) < 12:
        print("MISSED: reserved within 2 %, 12 cases and more")
    text = with_table(read("docs/predictions.md"), "| case | requested, planned |", [
        f"| {row['case']} | {row['requested']['plan']:,} | "
        + ("0" if row["requested"]["difference"] == 0 else f"{row['requested']['difference']:+,}")
        + f" | {row['reserved']['plan']:,} | {row['reserved']['percent']:+.2f} % |" for row in cases])
    text = replaced(text, r"asks the caching allocator of \d+", f"asks the caching allocator of {len(cases)}")
    write("docs/predictions.md", text)


PHASES = ("backward", "first_step", "step", "evaluation")


def is_exact(case):
    return all(case[phase]["difference"] == 0 and case[phase].get("left_difference", 0) == 0 for phase in PHASES)


def instrument_bytes(folder):
    rows = objects(os.path.join(folder, "cuda_memory.jsonl"))
    slim = []
    for row in rows:
        case = {"case": row["case"]}
        for phase in PHASES:
            case[phase] = {key: row[phase][key] for key in ("dry", "requested", "difference", "left_difference")}
        if row["scratch"]:
            case["scratch"] = row["scratch"]
        slim.append(case)
    choices = (" recompute ", " offload ")
    plain = [row for row in slim if not any(word in row["case"] for word in choices)]
    head = {"benchmark": "cuda_memory", "date": DAY, "machine": "NVIDIA H200", "versions": VERSIONS,
            "what": "peak bytes over what is alive at the beginning: dry run against requested_bytes of the CUDA caching allocator"}
    write_results("h200_memory.json", head, plain)
    write_results("h200_memory_saved.json", dict(head, what=head["what"] + "; also with recompute and offload"), slim)
    for name, cases in (("plain", plain), ("all", slim)):
        print(f"dry against requested, {name}: {sum(map(is_exact, cases))} of {len(cases)} cases equal to the byte")
    for row in slim:
        if not is_exact(row):
            most = max((abs(row[phase]["difference"]), phase) for phase in PHASES)
            print("  to explain:", row["case"], f"{most[0]:,} in {most[1]}", (row.get("scratch") or [""])[0])
    text = read("docs/memory.md")
    text = replaced(text, r"\d+ cases are equal\s+to the byte in all four phases",
                    f"{sum(map(is_exact, plain))} cases are equal to the byte in all four phases")
    text = replaced(text, r"\d+ of \d+ cases equal to the byte at every peak",
                    f"{sum(map(is_exact, slim))} of {len(slim)} cases equal to the byte at every peak")
    write("docs/memory.md", text)


def instruments(folder):
    run = objects(os.path.join(folder, "instruments.json"))[0]
    run["date"] = DAY
    results = json.loads(read("bench/results/instruments.json"))
    results["runs"] = [run] + [old for old in results["runs"] if "H200" not in old["device"]]
    results["date"] = DAY
    write("bench/results/instruments.json", json.dumps(results, indent=1) + "\n")
    for model in ("vit_step", "gpt_step"):
        ratios = {key: value for key, value in run[model].items() if "ratio" in key}
        print("instruments:", model, ratios)
        if run[model]["ledger_ratio_of_medians"] > 1.05:
            print("MISSED: the ledger costs at most 5 %")


def main(folder):
    count = cluster(folder)
    for name, part in (("plan_time.jsonl", lambda: times(folder, count)), ("plan_memory.jsonl", lambda: memory(folder)),
                       ("cuda_memory.jsonl", lambda: instrument_bytes(folder)), ("instruments.json", lambda: instruments(folder))):
        path = os.path.join(folder, name)
        if os.path.exists(path) and os.path.getsize(path) > 0:
            part()
        else:
            print("not there:", name)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
