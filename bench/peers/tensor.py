# SPDX-License-Identifier: BSD-3-Clause
"""One rank of the peer of bench/tensor.cpp: the same block with torch.distributed.tensor over Gloo.

    python bench/peers/tensor.py tensor|sequence RANK WORLD PORT STEPS

ColwiseParallel and RowwiseParallel plans as in PyTorch's tutorial; with `sequence` SequenceParallel norms.
Rank 0 prints one JSON object; bytes are those that rings would send for the collectives that were called.
"""
import json
import os
import sys
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.utils._python_dispatch import TorchDispatchMode

from step import cpu_seconds

BATCH, TOKENS, WIDTH, HEADS = 4, 256, 512, 8


class Attention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.proj = (torch.nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x):
        def by_head(y):
            return y.view(y.shape[0], y.shape[1], -1, WIDTH // HEADS).transpose(1, 2)

        y = F.scaled_dot_product_attention(by_head(self.q(x)), by_head(self.k(x)), by_head(self.v(x)))
        return self.proj(y.transpose(1, 2).flatten(2))


class Mlp(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        return self.fc2(F.gelu(self.fc1(x)))


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = torch.nn.LayerNorm(WIDTH), torch.nn.LayerNorm(WIDTH)
        self.attn, self.mlp = Attention(), Mlp()

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


def plan(sequence):
    outside = Shard(1) if sequence else Replicate()
    pair = {"attn": PrepareModuleInput(input_layouts=(outside,), desired_input_layouts=(Replicate(),)),
            "mlp": PrepareModuleInput(input_layouts=(outside,), desired_input_layouts=(Replicate(),)),
            "attn.proj": RowwiseParallel(output_layouts=outside), "mlp.fc2": RowwiseParallel(output_layouts=outside)}
    for name in ("attn.q", "attn.k", "attn.v", "mlp.fc1"):
        pair[name] = ColwiseParallel()
    if sequence:
        pair["norm1"], pair["norm2"] = (SequenceParallel(use_local_output=True) for _ in range(2))
    return pair


class Bytes(TorchDispatchMode):
    """Adds up what rings would send for every functional collective."""

    def __init__(self, world):
        super().__init__()
        self.world, self.sent = world, 0.0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.name()
        if "all_reduce" in name or "all_gather_into_tensor" in name or "reduce_scatter_tensor" in name:
            size = args[0].numel() * args[0].element_size()
            part = (self.world - 1) / self.world
            if "all_reduce" in name:
                self.sent += 2 * part * size
            else:
                self.sent += part * size * (self.world if "all_gather" in name else 1)
        return func(*args, **(kwargs or {}))


def main():
    mode, rank, world, port, steps = sys.argv[1], *map(int, sys.argv[2:6])
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="lo")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo", rank=rank, world_size=world)
    sequence = mode == "sequence"
    block = parallelize_module(Block(), init_device_mesh("cpu", (world,)), plan(sequence))
    whole = torch.randn(BATCH, TOKENS, WIDTH)
    if sequence:
        whole = whole.chunk(world, 1)[rank].contiguous()
    seconds, cpu, total = [], [], 0.0

    def step():
        x = whole.detach().requires_grad_()
        y = block(x)
        y.backward(torch.ones_like(y))
        block.zero_grad(set_to_none=True)
        return y

    for i in range(steps):
        begin, begin_cpu = time.perf_counter(), cpu_seconds()
        y = step()
        seconds.append(time.perf_counter() - begin)
        cpu.append(cpu_seconds() - begin_cpu)
        total = total or y.sum().item()
    with Bytes(world) as count:
        step()
    if rank == 0:
        print(json.dumps(dict(mode=mode, seconds=seconds, cpu_seconds=cpu, bytes=count.sent, sum=total,
                              version=torch.__version__)))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
