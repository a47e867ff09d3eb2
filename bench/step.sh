#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# A CPU training step of ViT and GPT, and the start-up of a tiny GPT: braid and eager PyTorch in turn,
# with the same sizes, dtype and threads.
#
#   PEER_PYTHON=<python with torch> bench/step.sh [build folder] [rounds]
#
# Writes bench/results/step.json. Peer and braid alternate, so that a busy machine slows both.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build}
rounds=${2:-5}
peer=${PEER_PYTHON:?set PEER_PYTHON to a python that has torch 2.11}
raw=$(mktemp)
trap 'rm -f "$raw"' EXIT
export OMP_NUM_THREADS=2 MKL_NUM_THREADS=2
# Threads that spin for each other would measure the other guests of a shared machine; same for both.
export OMP_WAIT_POLICY=passive

one() {  # who model steps command...
  local who=$1 model=$2 steps=$3
  shift 3
  printf '{"who": "%s", "run": %s}\n' "$who" "$("$@" "$model" "$steps" "$(date +%s.%N)")" >> "$raw"
}

for round in $(seq "$rounds"); do
  for work in "vit 8" "gpt 6" "tiny 3"; do
    read -r model steps <<< "$work"
    echo "round $round of $rounds: $model" >&2
    one braid "$model" "$steps" "$build/bin/bench_step"
    one peer "$model" "$steps" "$peer" bench/peer/step.py
  done
done
mkdir -p bench/results
"$peer" bench/peer/step_report.py "$raw" > bench/results/step.json
cat bench/results/step.json
