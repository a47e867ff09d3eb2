# SPDX-License-Identifier: BSD-3-Clause
"""The peer of bench/checkpoint.cpp: torch.distributed.checkpoint with DTensors sharded over two Gloo processes.

python bench/peers/checkpoint.py RANK RANKS STORE_FILE DIR [ROUNDS]     rank 0 prints one JSON object
"""
import json
import shutil
import sys
import time
import warnings

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed._state_dict_utils import _create_cpu_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard

warnings.filterwarnings("ignore")
ROWS, COLUMNS, TENSORS = 1024, 1792, 48
rank, ranks, store, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
rounds = int(sys.argv[5]) if len(sys.argv) > 5 else 3
dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=ranks)
mesh = init_device_mesh("cpu", (ranks,))


def part(value):
    """Half of the rows of every tensor, as FSDP2 has them."""
    state = {}
    for i in range(TENSORS):
        for kind in ("model/{:03}", "optimizer/{:03}/exp_avg", "optimizer/{:03}/exp_avg_sq"):
            local = torch.full((ROWS // ranks, COLUMNS), float(value + i))
            state[kind.format(i)] = DTensor.from_local(local, mesh, [Shard(0)], run_check=False)
    return state


def slowest(seconds):
    value = torch.tensor([seconds], dtype=torch.float64)
    dist.all_reduce(value, dist.ReduceOp.MAX)
    return value.item()


def clear():
    dist.barrier()
    if rank == 0:
        shutil.rmtree(folder, ignore_errors=True)
    dist.barrier()


state = part(1)
# Its fastest way: the host copy is kept from one save to the next. By itself it would be page-locked, which needs a GPU
# driver: here the same copy is made in plain memory.
writer = dcp.FileSystemWriter(folder, cache_staged_state_dict=True, overwrite=True)
blocked, saved = [], []
for _ in range(rounds):
    clear()
    start = time.perf_counter()
    if writer.state_dict_cache is None:
        writer.state_dict_cache = _create_cpu_state_dict(state)
    response = dcp.async_save(state, storage_writer=writer)
    blocked.append(slowest(time.perf_counter() - start))
    (response.upload_completion if hasattr(response, "upload_completion") else response).result()
    dist.barrier()
    saved.append(slowest(time.perf_counter() - start))
clear()
start = time.perf_counter()
dcp.save(state, storage_writer=dcp.FileSystemWriter(folder, overwrite=True))
save = slowest(time.perf_counter() - start)
wanted, load = part(-1), []
for _ in range(rounds):
    dist.barrier()
    start = time.perf_counter()
    dcp.load(wanted, storage_reader=dcp.FileSystemReader(folder))
    load.append(slowest(time.perf_counter() - start))
assert torch.equal(wanted["model/007"].to_local(), state["model/007"].to_local())
if rank == 0:
    peak = next(int(l.split()[1]) for l in open("/proc/self/status") if l.startswith("VmHWM"))
    print(json.dumps({"gigabytes": ROWS * COLUMNS * TENSORS * 3 * 4 / 1e9, "first_blocked_s": round(blocked[0], 3),
                      "blocked_s": round(min(blocked), 3), "background_save_s": round(min(saved), 3),
                      "save_s": round(save, 3), "load_s": round(min(load), 3), "peak_kB_of_rank_0": peak,
                      "torch": torch.__version__}))
dist.destroy_process_group()
