# SPDX-License-Identifier: BSD-3-Clause
# Sourced by benchmarks of two processes beside a peer: [build folder] [rounds] [steps], and `one`, which runs both ranks.
#   steps_unless_given=6; . bench/pair.sh "$@"
#   one braid ddp "$build/bin/bench_ddp"
#   report ddp
build=${1:-build}
rounds=${2:-3}
steps=${3:-$steps_unless_given}
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

report() {  # name
  mkdir -p bench/results
  "$peer" "bench/peers/$1_report.py" "$raw" > "bench/results/$1.json"
  cat "bench/results/$1.json"
}
