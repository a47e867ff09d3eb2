#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Kernels, steps and loss curves on a GPU, beside PyTorch: what docs/benchmarks.md shows, in parts that fit into short leases.
#   bench/peers_gpu.sh OUT [build]          all parts, or those of PARTS="tests gpt vit swinir llama curves sanitizer"
# Results are merged into OUT/peers.json and OUT/curves.json; each side of a part has a limit in seconds.
set -uo pipefail
cd "$(dirname "$0")/.."
out=$1 bin="${2:-build}/bin"
mkdir -p "$out"
part() {
  case " ${PARTS:-tests gpt vit swinir llama curves sanitizer} " in *" $1 "*) ;; *) return 1 ;; esac
  echo "$1: $(date +%T)"
}
peers() {  # seconds that a side may take, then words of bench/peers/run
  bench/peers/run --timeout "$1" --braid "$bin/bench_train" --output "$out/peers.json" "${@:2}" 2>&1 >/dev/null | tee -a "$out/peers.txt"
}
curve() {
  bench/peers/curve --timeout "$1" --braid "$bin/bench_train" --output "$out/curves.json" "${@:2}" 2>&1 | tee -a "$out/curves.txt"
}
narrow=(--peers braid --set-braid train.stream=bf16 --as "braid stream")

part tests && timeout 180 "$bin/cuda_test" --gtest_brief=1 2>&1 | tee "$out/tests.txt" | tail -n 3
if part gpt; then
  peers 90 --models gpt --peers braid,compile
  peers 40 --models gpt "${narrow[@]}"
fi
if part vit; then
  peers 110 --models vit_d1536,vit_d384 --peers braid,compile
  peers 40 --models vit_d1536,vit_d384 "${narrow[@]}"
fi
if part swinir; then
  peers 300 --models swinir --peers braid,compile
  peers 40 --models swinir "${narrow[@]}"
fi
if part llama; then
  peers 100 --models llama_8l --peers braid,compile
  for scale in tensor row; do peers 50 --models llama_8l --peers braid --set-braid "train.fp8=$scale" --as "braid fp8 $scale"; done
fi
if part curves; then
  curve 90 gpt eager braid "stream:train.stream=bf16" --set train.global_batch=16
  curve 150 llama_8l eager braid --set data.sequence=2048 --set model.sequence=2048
fi
# Kernels alone: models under the sanitizer would take hours.
part sanitizer && timeout 240 compute-sanitizer --error-exitcode 3 "$bin/cuda_test" --gtest_brief=1 \
  --gtest_filter='*Norm*:*Sum*:*Gelu*:*Lanes*:*Attention*:*Window*:*HeadLoss*:*Entropy*:*Rotary*:*Linear*:*Fp8*-*Swinir*' \
  2>&1 | tee "$out/sanitizer.txt" | tail -n 2
bench/peers/run --only-table --output "$out/peers.json"
date +%T
