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
steps_unless_given=12
. bench/pair.sh "$@"

for round in $(seq "$rounds"); do
  echo "round $round of $rounds" >&2
  for mode in tensor sequence; do
    one braid "$mode" "$build/bin/bench_tensor"
    one peer "$mode" "$peer" bench/peers/tensor.py
  done
  one braid overlap "$build/bin/bench_tensor"
done
report tensor
