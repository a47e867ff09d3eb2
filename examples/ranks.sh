#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Starts a program as N ranks on this host, with the variables that torchrun sets.
#   examples/ranks.sh 3 build/bin/03_many_ranks
set -u
count=$1
shift
export WORLD_SIZE=$count MASTER_ADDR=127.0.0.1 MASTER_PORT=$((20000 + RANDOM % 20000)) OMP_NUM_THREADS=1
pids=()
for ((rank = 0; rank < count; ++rank)); do
  RANK=$rank LOCAL_RANK=$rank "$@" &
  pids+=($!)
done
status=0
for pid in "${pids[@]}"; do wait "$pid" || status=$?; done
exit "$status"
