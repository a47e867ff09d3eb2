#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# A GPT of about 50 M parameters on two processes over Gloo, one thread each: braid's Replicate beside PyTorch's DDP,
# braid's ZeRO-3 beside FSDP2, in turn in one run.
#
#   PEER_PYTHON=<python with torch> bench/ddp.sh [build folder] [rounds] [steps]
#
# Writes bench/results/ddp.json.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build}
rounds=${2:-3}
steps=${3:-6}
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
  one braid ddp "$build/bin/bench_ddp"
  one peer ddp "$peer" bench/peer/ddp.py
  one braid zero3 "$build/bin/bench_ddp"
  one peer fsdp2 "$peer" bench/peer/ddp.py
done
mkdir -p bench/results
"$peer" bench/peer/ddp_report.py "$raw" > bench/results/ddp.json
cat bench/results/ddp.json
