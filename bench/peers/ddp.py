# SPDX-License-Identifier: BSD-3-Clause
"""One rank of the peer of bench/ddp.cpp: the same GPT with PyTorch's DDP or FSDP2 (fully_shard) over Gloo.

    python bench/peers/ddp.py ddp|fsdp2 RANK WORLD PORT STEPS

Fused AdamW, scaled_dot_product_attention and gradients as views of buckets: the best that eager has on a CPU.
Rank 0 prints one JSON object.
"""
import json
import os
import resource
import sys
import time

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from step import Gpt, cpu_seconds, cross_entropy

SIZES = dict(vocabulary=24576, sequence=128, layers=12, heads=8, width=512)
BATCH = 4  # of each rank


def parallel(mode, model, world):
    if mode == "ddp":
        return DistributedDataParallel(model, gradient_as_bucket_view=True)
    mesh = init_device_mesh("cpu", (world,))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def main():
    mode, rank, world, port, steps = sys.argv[1], *map(int, sys.argv[2:6])
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="lo")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo", rank=rank, world_size=world)
    model = Gpt(*SIZES.values())
    parameters = sum(p.numel() for p in model.parameters())
    model = parallel(mode, model, world)
    adam = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1, fused=True)
    torch.manual_seed(rank)
    x, t = (torch.randint(0, SIZES["vocabulary"], (BATCH, SIZES["sequence"])) for _ in range(2))
    seconds, cpu, losses = [], [], []
    for _ in range(steps):
        begin, begin_cpu = time.perf_counter(), cpu_seconds()
        loss = cross_entropy(model(x), t)
        loss.backward()
        adam.step()
        adam.zero_grad()
        losses.append(loss.item())
        seconds.append(time.perf_counter() - begin)
        cpu.append(cpu_seconds() - begin_cpu)
    peaks = [None] * world
    dist.all_gather_object(peaks, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
    if rank == 0:
        print(json.dumps(dict(mode=mode, parameters=parameters, samples=BATCH * world, seconds=seconds, cpu_seconds=cpu,
                              peak_rss=peaks, losses=losses, version=torch.__version__)))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
