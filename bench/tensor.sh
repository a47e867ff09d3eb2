#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# An attention layer and an MLP split over two processes over Gloo, one thread each: braid beside torch.distributed.tensor,
# with and without sequence parallelism, and with overlap, in turn in one run.
#
#   PEER_PYTHON=<python with torch> bench/tensor.sh [build folder] [rounds] [steps]
#
# Writes bench/results/tensor.json.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build}
rounds=${2:-3}
steps=${3:-12}
peer=${PEER_PYTHON:?set PEER_PYTHON to a python that has torch 2.11}
raw=$(mktemp)
trap 'rm -f "$raw" "$raw.out"' EXIT
export OMP_NUM_THREADS=1 MKL_NUM_THREADS=1

free_port() { "$peer" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

one() {  # who mode command...
  local who=$1 mode=$2 port
  shift 2
  port=$(free_port)
  "$@" "$mode" 1 2 "$port" "$steps" &
  "$@" "$mode" 0 2 "$port" "$steps" > "$raw.out"
  wait $!
  printf '{"who": "%s", "run": %s}\n' "$who" "$(tail -1 "$raw.out")" >> "$raw"
}

for round in $(seq "$rounds"); do
  echo "round $round of $rounds" >&2
  for mode in tensor sequence; do
    one braid "$mode" "$build/bin/bench_tensor"
    one peer "$mode" "$peer" bench/peer/tensor.py
  done
  one braid overlap "$build/bin/bench_tensor"
done
mkdir -p bench/results
"$peer" bench/peer/tensor_report.py "$raw" > bench/results/tensor.json
cat bench/results/tensor.json
