#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Plan and instruments beside a GPU: measures its kernels, then compares predicted with measured steps and bytes.
#   bench/plan_gpu.sh OUT [build]           all parts, or those of PARTS="kernels time memory instruments bytes"
#   bench/peers/plan_tables.py OUT          turns them into bench/results and the tables of docs
set -uo pipefail
cd "$(dirname "$0")/.."
out=$1 bin="${2:-build}/bin"
mkdir -p "$out"
part() {
  case " ${PARTS:-kernels time memory instruments bytes} " in *" $1 "*) ;; *) return 1 ;; esac
  echo "$1: $(date +%T)"
}
part kernels && "$bin/braid" bench kernels --device cuda -o "$out/h200.yaml" >"$out/kernels.txt" 2>&1
part time && "$bin/bench_plan_time" "$out/h200.yaml" --steps 8 >"$out/plan_time.jsonl" 2>"$out/plan_time.err"
part memory && "$bin/bench_plan_memory" --out "$out/plan_memory.jsonl" >"$out/plan_memory.txt" 2>&1
part instruments && "$bin/bench_instruments" 30 cuda >"$out/instruments.json" 2>"$out/instruments.err"
part bytes && "$bin/bench_cuda_memory" >"$out/cuda_memory.jsonl" 2>"$out/cuda_memory.err"
date +%T
