# SPDX-License-Identifier: BSD-3-Clause
# Writes swinir_<case>.safetensors: weights, input, target, output, L1 loss and gradients of tiny SwinIRs in plain PyTorch (double),
# for every upsampler and both residual kinds, with input sizes that are and are not multiples of the window.
#   python make_swinir.py     (torch, safetensors)
import torch
import torch.nn as nn
import torch.nn.functional as F
from safetensors.torch import save_file

WINDOW, WIDTH, HEADS, FEATURES, RATIO = 4, 8, 2, 4, 2
MEAN, STD = [6.3024, 278.3945], [3.7376, 21.0588]


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.relative_position_bias_table = nn.Parameter(torch.zeros((2 * WINDOW - 1) ** 2, HEADS))
        self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x, mask):  # [windows, tokens, WIDTH], [windows, tokens, tokens]
        n, t, _ = x.shape
        q, k, v = self.qkv(x).reshape(n, t, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        place = torch.stack(torch.meshgrid(torch.arange(WINDOW), torch.arange(WINDOW), indexing="ij")).flatten(1)
        apart = place[:, :, None] - place[:, None, :] + WINDOW - 1
        bias = self.relative_position_bias_table[apart[0] * (2 * WINDOW - 1) + apart[1]].permute(2, 0, 1)
        scores = q @ k.transpose(-2, -1) * (WIDTH // HEADS) ** -0.5 + bias + mask[:, None]
        return self.proj((scores.softmax(-1) @ v).transpose(1, 2).reshape(n, t, WIDTH))


def windows(x):  # [B, H, W, C] -> [B windows, tokens, C]
    b, h, w, c = x.shape
    x = x.reshape(b, h // WINDOW, WINDOW, w // WINDOW, WINDOW, c)
    return x.transpose(2, 3).reshape(-1, WINDOW * WINDOW, c)


def mask_of(b, h, w, shift):
    """-100 between pixels whose regions differ, the regions being told apart by painting the rolled image."""
    image = torch.zeros(1, h, w, 1).double()
    if shift:
        paint = 0
        for rows in (slice(0, -WINDOW), slice(-WINDOW, -shift), slice(-shift, None)):
            for columns in (slice(0, -WINDOW), slice(-WINDOW, -shift), slice(-shift, None)):
                image[:, rows, columns] = paint
                paint += 1
    part = windows(image)[..., 0]
    return ((part[:, None] != part[:, :, None]).double() * -100).repeat(b, 1, 1)


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(WIDTH, RATIO * WIDTH), nn.Linear(RATIO * WIDTH, WIDTH)

    def forward(self, x):
        return self.fc2(F.gelu(self.fc1(x)))


class Block(nn.Module):
    def __init__(self, shift):
        super().__init__()
        self.shift = shift
        self.norm1, self.attn = nn.LayerNorm(WIDTH), Attention()
        self.norm2, self.mlp = nn.LayerNorm(WIDTH), Mlp()

    def forward(self, x):  # [B, H, W, C]
        b, h, w, c = x.shape
        u = torch.roll(self.norm1(x), (-self.shift, -self.shift), (1, 2))
        u = self.attn(windows(u), mask_of(b, h, w, self.shift))
        u = u.reshape(b, h // WINDOW, w // WINDOW, WINDOW, WINDOW, c).transpose(2, 3).reshape(b, h, w, c)
        x = x + torch.roll(u, (self.shift, self.shift), (1, 2))
        return x + self.mlp(self.norm2(x))


def residual(kind):
    if kind == "1conv":
        return nn.Conv2d(WIDTH, WIDTH, 3, 1, 1)
    return nn.Sequential(nn.Conv2d(WIDTH, WIDTH // 4, 3, 1, 1), nn.LeakyReLU(0.2), nn.Conv2d(WIDTH // 4, WIDTH // 4, 1),
                         nn.LeakyReLU(0.2), nn.Conv2d(WIDTH // 4, WIDTH, 3, 1, 1))


class Group(nn.Module):
    def __init__(self, depth, kind):
        super().__init__()
        self.residual_group = nn.Module()
        self.residual_group.blocks = nn.ModuleList(Block(WINDOW // 2 if i % 2 else 0) for i in range(depth))
        self.conv = residual(kind)

    def forward(self, x):
        y = x
        for block in self.residual_group.blocks:
            y = block(y)
        return x + self.conv(y.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)


class Swinir(nn.Module):
    def __init__(self, upsampler, scale, kind, channels=2, depths=(2, 2)):
        super().__init__()
        self.upsampler, self.scale = upsampler, scale
        self.conv_first = nn.Conv2d(channels, WIDTH, 3, 1, 1)
        self.patch_embed = nn.Module()
        self.patch_embed.norm = nn.LayerNorm(WIDTH)
        self.layers = nn.ModuleList(Group(depth, kind) for depth in depths)
        self.norm = nn.LayerNorm(WIDTH)
        self.conv_after_body = residual(kind)
        if upsampler in ("pixelshuffle", "nearest+conv"):
            self.conv_before_upsample = nn.Sequential(nn.Conv2d(WIDTH, FEATURES, 3, 1, 1), nn.LeakyReLU())
        if upsampler == "pixelshuffle":
            parts = []
            for factor in [3] if scale == 3 else [2] * (scale.bit_length() - 1):
                parts += [nn.Conv2d(FEATURES, FEATURES * factor**2, 3, 1, 1), nn.PixelShuffle(factor)]
            self.upsample = nn.Sequential(*parts)
        elif upsampler == "pixelshuffledirect":
            self.upsample = nn.Sequential(nn.Conv2d(WIDTH, channels * scale**2, 3, 1, 1), nn.PixelShuffle(scale))
        elif upsampler == "nearest+conv":
            self.conv_up1 = nn.Conv2d(FEATURES, FEATURES, 3, 1, 1)
            if scale == 4:
                self.conv_up2 = nn.Conv2d(FEATURES, FEATURES, 3, 1, 1)
            self.conv_hr = nn.Conv2d(FEATURES, FEATURES, 3, 1, 1)
        if upsampler != "pixelshuffledirect":
            self.conv_last = nn.Conv2d(WIDTH if upsampler == "none" else FEATURES, channels, 3, 1, 1)

    def tail(self, f, x):
        if self.upsampler == "pixelshuffle":
            return self.conv_last(self.upsample(self.conv_before_upsample(f)))
        if self.upsampler == "pixelshuffledirect":
            return self.upsample(f)
        if self.upsampler == "none":
            return x + self.conv_last(f)
        f = self.conv_before_upsample(f)
        for conv in [self.conv_up1] + ([self.conv_up2] if self.scale == 4 else []):
            f = F.leaky_relu(conv(F.interpolate(f, scale_factor=2, mode="nearest")), 0.2)
        return self.conv_last(F.leaky_relu(self.conv_hr(f), 0.2))

    def forward(self, x):
        h, w = x.shape[2:]
        mean, std = (torch.tensor(v, dtype=torch.float64).view(1, -1, 1, 1) for v in (MEAN, STD))
        x = F.pad(x, (0, -w % WINDOW, 0, -h % WINDOW), mode="reflect")
        x = (x - mean) / std
        f0 = self.conv_first(x)
        t = self.patch_embed.norm(f0.permute(0, 2, 3, 1))
        for layer in self.layers:
            t = layer(t)
        f = self.conv_after_body(self.norm(t).permute(0, 3, 1, 2)) + f0
        return (self.tail(f, x) * std + mean)[:, :, : h * self.scale, : w * self.scale]


def make(case, upsampler, scale, kind, size):
    torch.manual_seed(3)
    model = Swinir(upsampler, scale, kind).double()
    for name, p in model.named_parameters():
        p.data.normal_(0, 0.3)
        if "norm" in name and name.endswith("weight"):
            p.data.add_(1)
        p.data.copy_(p.data.float())  # the file keeps single precision
    mean, std = (torch.tensor(v).view(1, -1, 1, 1) for v in (MEAN, STD))
    x = (torch.randn(2, 2, *size) * std + mean).double()
    t = (torch.randn(2, 2, size[0] * scale, size[1] * scale) * std + mean).double()
    y = model(x)
    loss = (y - t).abs().mean()
    loss.backward()
    out = {"input": x.float(), "target": t.float(), "output": y.detach(), "loss": loss.detach().reshape(1)}
    for name, p in model.named_parameters():
        out["param." + name] = p.detach().float()
        out["grad." + name] = p.grad
    save_file({k: v.contiguous() for k, v in out.items()}, f"swinir_{case}.safetensors")


make("shuffle2", "pixelshuffle", 2, "1conv", (8, 12))
make("shuffle3", "pixelshuffle", 3, "3conv", (6, 9))
make("shuffle4", "pixelshuffle", 4, "1conv", (4, 5))
make("direct", "pixelshuffledirect", 2, "1conv", (7, 8))
make("nearest2", "nearest+conv", 2, "1conv", (8, 4))
make("nearest4", "nearest+conv", 4, "3conv", (5, 6))
make("none", "none", 1, "3conv", (10, 8))
