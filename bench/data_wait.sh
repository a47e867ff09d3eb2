#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# How much of a step of the weather ViT one GPU waits for HDF5 files: the config's real size, files in the
# page cache. The same step on a batch that lies on the GPU (bench_train) stands beside it.
#
#   bench/data_wait.sh [build folder] [steps] [folder for data]
#
# Writes bench/results/data_wait.json: share of the steps' time spent waiting for readers, and seconds a step
# with files (mean of whole epochs) and without (median).
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build}
steps=${2:-60}
work=${3:-$(mktemp -d)}
[[ $# -ge 3 ]] || trap 'rm -rf "$work"' EXIT
braid=$build/bin/braid
[[ -d $work/era5/train ]] || "$braid" data make weather "$work/era5" --frames 96 --years 1 --valid-years 0 --test-years 0 >&2
cat "$work"/era5/train/*.h5 > /dev/null  # into the page cache

one() {  # name sets...
  local name=$1 sets=()
  shift
  rm -rf "${work:?}/$name"
  for set in run.dir="$work/$name" train.steps="$steps" train.whole_epochs=false train.precision=bf16 \
    checkpoint.at_end=false checkpoint.every=1000000 report.every=10 'data.valid=""' 'data.test=""' "$@"; do
    sets+=(--set "$set")
  done
  "$braid" train configs/vit.yaml:base "${sets[@]}" >&2
}
one files data.train="$work/era5/train" data.means="$work/era5/stats/global_means.npy" \
  data.stds="$work/era5/stats/global_stds.npy" data.workers=12 data.queue=3
"$build/bin/bench_train" configs/vit.yaml:base --set train.precision=bf16 --steps 20 > "$work/resident.json"

mkdir -p bench/results
python3 - "$work" "$steps" > bench/results/data_wait.json <<'PY'
import datetime, json, os, platform, statistics, sys
work, steps = sys.argv[1], int(sys.argv[2])
def read(name):
    rows = [json.loads(line) for line in open(f"{work}/{name}/log.jsonl")]
    run = next(row for row in rows if row["type"] == "run")
    late = [row for row in rows if row["type"] == "step"][steps // 2:]
    epochs = [row for row in rows if row["type"] == "epoch"][1:-1]  # whole ones: until the GPU is done
    each = sum(row["seconds"] for row in epochs) / sum(row["steps"] for row in epochs)
    waits = [row["data_wait"] for row in late]
    return run["device"], {"steps": len(late), "seconds_a_step": each,
                           "data_wait_share": sum(waits) / len(waits) / each, "longest_wait": max(waits)}
device, files = read("files")
resident = json.load(open(f"{work}/resident.json"))["ms"] / 1e3
print(json.dumps({"bench": "data_wait", "date": datetime.date.today().isoformat(), "device": device,
                  "cores": os.cpu_count(), "machine": platform.machine(), "files": files,
                  "resident_seconds_a_step": resident, "slower": files["seconds_a_step"] / resident - 1, "wanted_share": 0.02}, indent=2))
PY
cat bench/results/data_wait.json
