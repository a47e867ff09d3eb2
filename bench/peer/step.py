# SPDX-License-Identifier: BSD-3-Clause
"""One training step in eager PyTorch, the peer of bench/step.cpp: same models, sizes, dtype, threads and optimizer.

    python bench/peer/step.py gpt 8 $(date +%s.%N)     model, steps, the time at which the process was started

Fused AdamW and scaled_dot_product_attention are asked for: the best that eager has on a CPU. Prints one JSON object.
"""
import json
import resource
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn


class Attention(nn.Module):
    def __init__(self, width, heads, fused, causal):
        super().__init__()
        self.heads, self.causal = heads, causal
        if fused:
            self.qkv = nn.Linear(width, 3 * width)
        else:
            self.q, self.k, self.v = (nn.Linear(width, width) for _ in range(3))
        self.proj = nn.Linear(width, width)

    def forward(self, x):
        parts = self.qkv(x).chunk(3, -1) if hasattr(self, "qkv") else (self.q(x), self.k(x), self.v(x))
        q, k, v = (t.view(*t.shape[:2], self.heads, -1).transpose(1, 2) for t in parts)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.proj(y.transpose(1, 2).reshape(x.shape))


class Block(nn.Module):
    def __init__(self, width, heads, causal, gelu, eps):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width, eps), nn.LayerNorm(width, eps)
        self.attn = Attention(width, heads, causal, causal)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(approximate=gelu), nn.Linear(4 * width, width))

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Vit(nn.Module):
    def __init__(self, image, patch, channels, width, depth, heads):
        super().__init__()
        self.grid, self.patch, self.channels = [n // patch for n in image], patch, channels
        self.embed = nn.Conv2d(channels, width, patch, patch)
        self.pos = nn.Parameter(torch.randn(1, self.grid[0] * self.grid[1], width) * 0.02)
        self.blocks = nn.Sequential(*[Block(width, heads, False, "none", 1e-6) for _ in range(depth)])
        self.norm = nn.LayerNorm(width, 1e-6)
        self.head = nn.Linear(width, channels * patch * patch, bias=False)

    def forward(self, x):
        y = self.head(self.norm(self.blocks(self.embed(x).flatten(2).transpose(1, 2) + self.pos)))
        y = y.view(-1, *self.grid, self.patch, self.patch, self.channels).permute(0, 5, 1, 3, 2, 4)
        return y.reshape(x.shape)


class Gpt(nn.Module):
    def __init__(self, vocabulary, sequence, layers, heads, width):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(sequence, width)
        self.blocks = nn.Sequential(*[Block(width, heads, True, "tanh", 1e-5) for _ in range(layers)])
        self.norm = nn.LayerNorm(width, 1e-5)
        for p in self.parameters():
            nn.init.normal_(p, 0, 0.02) if p.dim() > 1 else None

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1], device=tokens.device))
        return F.linear(self.norm(self.blocks(x)), self.wte.weight)


def relative_l2(output, target):
    return ((output - target).flatten(1).norm(dim=1) / target.flatten(1).norm(dim=1)).mean()


def cross_entropy(output, target):
    return F.cross_entropy(output.flatten(0, 1), target.flatten())


def case(name):
    if name == "vit":
        x, t = torch.randn(4, 20, 120, 240), torch.randn(4, 20, 120, 240)
        return Vit((120, 240), 8, 20, 192, 6, 8), x, t, relative_l2
    sizes = (8192, 256, 6, 6, 384) if name == "gpt" else (256, 32, 2, 2, 32)
    batch = 8 if name == "gpt" else 2
    x, t = (torch.randint(0, sizes[0], (batch, sizes[1])) for _ in range(2))
    return Gpt(*sizes), x, t, cross_entropy


def cpu_seconds():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def main():
    name, steps, started = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    torch.set_num_threads(2)
    torch.manual_seed(0)
    model, x, t, loss_of = case(name)
    adam = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1, fused=True)
    seconds, cpu, losses, first = [], [], [], None
    for _ in range(steps):
        begin, begin_cpu = time.perf_counter(), cpu_seconds()
        loss = loss_of(model(x), t)
        loss.backward()
        adam.step()
        adam.zero_grad()
        losses.append(loss.item())
        first = first or time.time() - started
        seconds.append(time.perf_counter() - begin)
        cpu.append(cpu_seconds() - begin_cpu)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    parameters = sum(p.numel() for p in model.parameters())
    print(json.dumps(dict(model=name, parameters=parameters, seconds=seconds, cpu_seconds=cpu, first_step=first,
                          peak_rss=peak, losses=losses, version=torch.__version__)))


if __name__ == "__main__":
    main()
