# SPDX-License-Identifier: BSD-3-Clause
# Writes vit.safetensors: weights, input, target, output, loss and gradients of a tiny weather ViT in plain PyTorch (double).
#   python make_vit.py        (torch, safetensors)
import torch
import torch.nn as nn
import torch.nn.functional as F
from safetensors.torch import save_file

SIZE, PATCH, CIN, COUT, WIDTH, DEPTH, HEADS = (16, 24), 8, 3, 2, 16, 2, 2


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.proj = (nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x):
        b, n, _ = x.shape
        q, k, v = (f(x).reshape(b, n, HEADS, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
        weights = (q @ k.transpose(-2, -1) * (WIDTH // HEADS) ** -0.5).softmax(-1)
        return self.proj((weights @ v).transpose(1, 2).reshape(b, n, WIDTH))


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        return self.fc2(F.gelu(self.fc1(x)))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH, eps=1e-6), nn.LayerNorm(WIDTH, eps=1e-6)
        self.attn, self.mlp = Attention(), Mlp()

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Vit(nn.Module):
    def __init__(self):
        super().__init__()
        h, w = SIZE[0] // PATCH, SIZE[1] // PATCH
        self.grid = (h, w)
        self.pos_embed = nn.Parameter(torch.zeros(1, h * w, WIDTH))
        self.patch_embed = nn.Module()
        self.patch_embed.proj = nn.Conv2d(CIN, WIDTH, PATCH, PATCH)
        self.blocks = nn.ModuleList(Block() for _ in range(DEPTH))
        self.norm = nn.LayerNorm(WIDTH, eps=1e-6)
        self.head = nn.Linear(WIDTH, COUT * PATCH * PATCH, bias=False)

    def forward(self, x):
        x = self.patch_embed.proj(x).flatten(2).transpose(1, 2) + self.pos_embed
        for block in self.blocks:
            x = block(x)
        x = self.head(self.norm(x)).reshape(len(x), *self.grid, PATCH, PATCH, COUT)
        return x.permute(0, 5, 1, 3, 2, 4).reshape(len(x), COUT, *SIZE)


def fill(model):
    for name, p in model.named_parameters():
        p.data.normal_(0, 0.2)
        if "norm" in name and name.endswith("weight"):
            p.data.add_(1)
        p.data.copy_(p.data.float())  # the file keeps single precision


torch.manual_seed(1)
model = Vit().double()
fill(model)
x, t = torch.randn(2, CIN, *SIZE).double(), torch.randn(2, COUT, *SIZE).double()
y = model(x)
loss = ((y - t).flatten(1).norm(dim=1) / t.flatten(1).norm(dim=1)).mean()
loss.backward()
out = {"input": x.float(), "target": t.float(), "output": y.detach(), "loss": loss.detach().reshape(1)}
for name, p in model.named_parameters():
    out["param." + name] = p.detach().float()
    out["grad." + name] = p.grad
save_file({k: v.contiguous() for k, v in out.items()}, "vit.safetensors")
