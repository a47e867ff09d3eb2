#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Checkpoints of 1 GB on two processes: braid beside torch.distributed.checkpoint, same disk, in turn.
#
#   bench/checkpoint.sh [path of bench_checkpoint] [python with torch] [rounds]     writes bench/results/checkpoint.json
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
program=${1:-$here/../build/bin/bench_checkpoint}
python=${2:-python3}
rounds=${3:-3}
folder=$(mktemp -d -p "${BENCH_DIR:-/tmp}")
trap 'rm -rf "$folder"' EXIT
load=$(cut -d" " -f1 /proc/loadavg)  # above 0.5 other programs took part of the cores
export OMP_NUM_THREADS=1

both() {  # name command...: rank 1 beside rank 0, whose JSON is the result
  local name=$1
  shift
  "$@" 1 2 "$folder/$name.store" "$folder/$name" "$rounds" > /dev/null &
  "$@" 0 2 "$folder/$name.store" "$folder/$name" "$rounds"
  wait
  rm -rf "$folder/$name"
  sync
}

peer=$(both peer "$python" "$here/peer/checkpoint.py")
braid=$(both braid "$program")
mkdir -p "$here/results"
cpu=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1)
revision=$(git -C "$here" rev-parse --short HEAD 2>/dev/null || echo none)
"$python" - "$here/results/checkpoint.json" <<END
import json, sys
braid, peer = json.loads('''$braid'''), json.loads('''$peer''')
versions = {"braid": "$revision", "torch": peer.pop("torch")}
for one in (braid, peer):
    for what in ("background_save", "save", "load"):
        one[what + "_GB_per_s"] = round(one["gigabytes"] / one[what + "_s"], 2)
result = {
    "benchmark": "checkpoint",
    "date": "$(date -u +%Y-%m-%dT%H:%M:%SZ)",
    "machine": {"cpu": "$cpu", "cores": $(nproc --all), "system": "$(uname -sr)", "load_before": $load},
    "versions": versions,
    "settings": {"ranks": 2, "tensors": 144, "rounds": $rounds, "files": "synced to disk; read from the page cache",
                 "numbers": "slowest rank, best round"},
    "braid": braid,
    "peer": {"name": "torch.distributed.checkpoint (async_save with a kept host copy, save, load)", **peer},
    "ratio": {what: round(peer[what] / braid[what], 2)
              for what in ("first_blocked_s", "blocked_s", "background_save_s", "save_s", "load_s", "peak_kB_of_rank_0")},
}
text = json.dumps(result, indent=2)
open(sys.argv[1], "w").write(text + "\n")
print(text)
END
