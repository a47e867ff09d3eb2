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
steps_unless_given=6
. bench/pair.sh "$@"

for round in $(seq "$rounds"); do
  echo "round $round of $rounds" >&2
  one braid ddp "$build/bin/bench_ddp"
  one peer ddp "$peer" bench/peers/ddp.py
  one braid zero3 "$build/bin/bench_ddp"
  one peer fsdp2 "$peer" bench/peers/ddp.py
done
report ddp
