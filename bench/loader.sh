#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The loader beside h5py + torch's DataLoader: same files, same number of workers, one run. Target: at least 1.5 times.
#
#   bench/loader.sh [path of bench_loader] [python with torch, h5py]     writes bench/results/loader.json
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
program=${1:-$here/../build/bin/bench_loader}
python=${2:-python3}
workers=${WORKERS:-2} batch=${BATCH:-4} epochs=${EPOCHS:-3} frames=${FRAMES:-64}
folder=$(mktemp -d)
load=$(cut -d" " -f1 /proc/loadavg)  # above 0.5 other programs took part of the cores
trap 'rm -rf "$folder"' EXIT

"$program" "$folder" --make --frames "$frames"
flags=(--workers "$workers" --batch "$batch" --epochs "$epochs")
peer=$("$python" "$here/peer/loader.py" "$folder" "${flags[@]}")
braid=$("$program" "$folder" "${flags[@]}")
mkdir -p "$here/results"
cpu=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1)
memory=$(sed -n 's/^MemTotal: *//p' /proc/meminfo)
revision=$(git -C "$here" rev-parse --short HEAD 2>/dev/null || echo none)
"$python" - "$here/results/loader.json" <<END
import json, sys
braid, peer = json.loads('''$braid'''), json.loads('''$peer''')
assert abs(braid["checksum"] - peer["checksum"]) < 1e-3, f"the two read different data: {braid} {peer}"
result = {
    "benchmark": "loader",
    "date": "$(date -u +%Y-%m-%dT%H:%M:%SZ)",
    "machine": {"cpu": "$cpu", "cores": $(nproc), "memory": "$memory", "system": "$(uname -sr)",
                "load_before": $load},
    "versions": {"braid": "$revision", **peer.pop("versions")},
    "settings": {"fields": [20, 360, 720], "frames": $frames, "workers": $workers, "batch": $batch, "epochs": $epochs,
                 "cache": "files in the page cache, best epoch"},
    "braid": braid,
    "peer": {"name": "h5py + torch DataLoader", **peer},
    "speedup": round(braid["samples_per_second"] / peer["samples_per_second"], 2),
    "target": 1.5,
}
text = json.dumps(result, indent=2)
open(sys.argv[1], "w").write(text + "\n")
print(text)
END
