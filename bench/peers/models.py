# SPDX-License-Identifier: BSD-3-Clause
"""The models of bench/models.json in plain PyTorch, as one would write them there.

Parameters have braid's names and, but for GPT's (`transposed`), its shapes, so that both sides can start from the same weights.
"""
import contextlib
import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint


def in_heads(x, heads):
    """[batch, tokens, width] -> [batch, heads, tokens, width of a head]"""
    return x.unflatten(2, (heads, -1)).transpose(1, 2)


def out_of_heads(x):
    return x.transpose(1, 2).flatten(2)


class Stack(nn.ModuleList):
    """Blocks one after the other, each computed again in backward if `again`."""
    again = False

    def forward(self, x, *more):
        for block in self:
            x = checkpoint(block, x, *more, use_reentrant=False) if self.again else block(x, *more)
        return x


class Mlp(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(width, hidden), nn.Linear(hidden, width)

    def forward(self, x):
        return self.fc2(F.gelu(self.fc1(x)))


class VitAttention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.proj = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x):
        q, k, v = (in_heads(linear(x), self.heads) for linear in (self.q, self.k, self.v))
        return self.proj(out_of_heads(F.scaled_dot_product_attention(q, k, v)))


class VitBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width, 1e-6), nn.LayerNorm(width, 1e-6)
        self.attn, self.mlp = VitAttention(width, heads), Mlp(width, 4 * width)

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Vit(nn.Module):
    transposed = ()

    def __init__(self, image, patch, channels_in, channels_out, width, depth, heads):
        super().__init__()
        self.patch, self.channels = patch, channels_out
        self.rows, self.columns = image[0] // patch, image[1] // patch
        self.pos_embed = nn.Parameter(torch.randn(1, self.rows * self.columns, width) * 0.02)
        self.patch_embed = nn.ModuleDict({"proj": nn.Conv2d(channels_in, width, patch, patch)})
        self.blocks = Stack(VitBlock(width, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(width, 1e-6)
        self.head = nn.Linear(width, channels_out * patch * patch, bias=False)

    def forward(self, image):
        x = self.patch_embed["proj"](image).flatten(2).transpose(1, 2) + self.pos_embed
        x = self.head(self.norm(self.blocks(x)))
        x = x.view(-1, self.rows, self.columns, self.patch, self.patch, self.channels)
        return x.permute(0, 5, 1, 3, 2, 4).reshape(len(x), self.channels, self.rows * self.patch, self.columns * self.patch)


class WindowAttention(nn.Module):
    def __init__(self, width, heads, window):
        super().__init__()
        self.heads, self.window = heads, window
        self.relative_position_bias_table = nn.Parameter(torch.randn((2 * window - 1) ** 2, heads) * 0.02)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        row, column = torch.arange(window * window) // window, torch.arange(window * window) % window
        index = (row[:, None] - row + window - 1) * (2 * window - 1) + column[:, None] - column + window - 1
        self.register_buffer("index", index.flatten(), persistent=False)

    def forward(self, x, mask):
        """x [windows, tokens, width]; mask [windows of an image, tokens, tokens] or None"""
        windows, tokens, width = x.shape
        q, k, v = self.qkv(x).view(windows, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scores = (q * (width // self.heads) ** -0.5) @ k.transpose(-2, -1)
        scores = scores + self.relative_position_bias_table[self.index].view(tokens, tokens, -1).permute(2, 0, 1)
        if mask is not None:
            scores = (scores.view(-1, len(mask), self.heads, tokens, tokens) + mask[:, None]).view(-1, self.heads, tokens, tokens)
        return self.proj((scores.softmax(-1) @ v).transpose(1, 2).reshape(windows, tokens, width))


def shift_mask(rows, columns, window):
    """-100 between tokens of a window that come from different sides of the image after the shift by half a window."""
    def part(size):
        place = torch.arange(size)
        return (place >= size - window).long() + (place >= size - window // 2)

    region = 3 * part(rows)[:, None] + part(columns)
    region = region.view(rows // window, window, columns // window, window).transpose(1, 2).reshape(-1, window * window)
    return (region[:, None] != region[:, :, None]).float() * -100


class SwinBlock(nn.Module):
    def __init__(self, width, heads, window, hidden, shift, drop_path):
        super().__init__()
        self.window, self.shift, self.drop_path = window, shift, drop_path
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn, self.mlp = WindowAttention(width, heads, window), Mlp(width, hidden)

    def dropped(self, x):
        if self.drop_path == 0 or not self.training:
            return x
        kept = torch.rand(len(x), *[1] * (x.dim() - 1), device=x.device) >= self.drop_path
        return x * (kept / (1 - self.drop_path)).to(x.dtype)

    def attend(self, x, mask):  # [batch, rows, columns, width]
        size, w = x.shape, self.window
        if self.shift:
            x = x.roll((-self.shift, -self.shift), (1, 2))
        x = x.view(size[0], size[1] // w, w, size[2] // w, w, size[3]).transpose(2, 3).reshape(-1, w * w, size[3])
        x = self.attn(x, mask if self.shift else None)
        x = x.view(size[0], size[1] // w, size[2] // w, w, w, size[3]).transpose(2, 3).reshape(size)
        return x.roll((self.shift, self.shift), (1, 2)) if self.shift else x

    def forward(self, x, mask):
        x = x + self.dropped(self.attend(self.norm1(x), mask))
        return x + self.dropped(self.mlp(self.norm2(x)))


class SwinGroup(nn.Module):
    def __init__(self, width, blocks):
        super().__init__()
        self.residual_group = nn.ModuleDict({"blocks": Stack(blocks)})
        self.conv = nn.Conv2d(width, width, 3, 1, 1)

    def forward(self, x, mask):
        y = self.residual_group["blocks"](x, mask)
        return x + self.conv(y.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)


class Swinir(nn.Module):
    """Scale 2 by pixel shuffle, images of whole windows."""
    transposed = ()

    def __init__(self, image, channels, scale, window, width, depths, heads, mlp_ratio, drop_path, features, mean, std):
        super().__init__()
        assert scale == 2
        for name, values in (("mean", mean), ("std", std)):
            self.register_buffer(name, torch.tensor(values).view(-1, 1, 1), persistent=False)
        self.register_buffer("mask", shift_mask(*image, window), persistent=False)
        self.conv_first = nn.Conv2d(channels, width, 3, 1, 1)
        self.patch_embed = nn.ModuleDict({"norm": nn.LayerNorm(width)})
        rates = iter(torch.linspace(0, drop_path, sum(depths), device="cpu").tolist())
        self.layers = nn.ModuleList(
            SwinGroup(width, [SwinBlock(width, h, window, int(width * mlp_ratio), window // 2 * (i % 2), next(rates)) for i in range(depth)])
            for depth, h in zip(depths, heads))
        self.norm = nn.LayerNorm(width)
        self.conv_after_body = nn.Conv2d(width, width, 3, 1, 1)
        self.conv_before_upsample = nn.Sequential(nn.Conv2d(width, features, 3, 1, 1), nn.LeakyReLU(inplace=True))
        self.upsample = nn.Sequential(nn.Conv2d(features, 4 * features, 3, 1, 1), nn.PixelShuffle(2))
        self.conv_last = nn.Conv2d(features, channels, 3, 1, 1)

    def forward(self, image):
        shallow = self.conv_first((image - self.mean) / self.std)
        x = self.patch_embed["norm"](shallow.permute(0, 2, 3, 1))
        for group in self.layers:
            x = group(x, self.mask)
        x = self.conv_after_body(self.norm(x).permute(0, 3, 1, 2)) + shallow
        return self.conv_last(self.upsample(self.conv_before_upsample(x))) * self.std + self.mean


class GptBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = nn.ModuleDict({"c_attn": nn.Linear(width, 3 * width), "c_proj": nn.Linear(width, width)})
        self.mlp = nn.ModuleDict({"c_fc": nn.Linear(width, 4 * width), "c_proj": nn.Linear(4 * width, width)})

    def forward(self, x):
        q, k, v = (in_heads(part, self.heads) for part in self.attn["c_attn"](self.ln_1(x)).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.attn["c_proj"](out_of_heads(y))
        return x + self.mlp["c_proj"](F.gelu(self.mlp["c_fc"](self.ln_2(x)), approximate="tanh"))


class Gpt(nn.Module):
    transposed = ("c_attn.weight", "c_proj.weight", "c_fc.weight")  # braid stores [in, out]

    def __init__(self, vocabulary, sequence, layers, heads, width):
        super().__init__()
        self.transformer = nn.ModuleDict({
            "wte": nn.Embedding(vocabulary, width), "wpe": nn.Embedding(sequence, width),
            "h": Stack(GptBlock(width, heads) for _ in range(layers)), "ln_f": nn.LayerNorm(width)})
        for name, p in self.named_parameters():
            if p.dim() > 1:
                nn.init.normal_(p, 0, 0.02 / math.sqrt(2 * layers) if name.endswith("c_proj.weight") else 0.02)

    def forward(self, tokens):
        t = self.transformer
        x = t["wte"](tokens) + t["wpe"](torch.arange(tokens.shape[1], device=tokens.device))
        return F.linear(t["ln_f"](t["h"](x)), t["wte"].weight)


class RmsNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return F.rms_norm(x, self.weight.shape, self.weight, 1e-5)


def turned(x, cos, sin):
    """x [batch, heads, tokens, width of a head], pairs (i, i + half) turned by their angle in fp32 or better"""
    first, second = x.to(cos.dtype).chunk(2, -1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), -1).to(x.dtype)


class LlamaAttention(nn.Module):
    def __init__(self, width, heads, kv_heads):
        super().__init__()
        self.heads, self.kv_heads = heads, kv_heads
        kv_width = width // heads * kv_heads
        self.q_proj, self.o_proj = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.k_proj, self.v_proj = nn.Linear(width, kv_width, bias=False), nn.Linear(width, kv_width, bias=False)

    def forward(self, x, cos, sin):
        q = turned(in_heads(self.q_proj(x), self.heads), cos, sin)
        k = turned(in_heads(self.k_proj(x), self.kv_heads), cos, sin)
        v = in_heads(self.v_proj(x), self.kv_heads)
        return self.o_proj(out_of_heads(F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)))


class LlamaMlp(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.gate_proj, self.up_proj = nn.Linear(width, hidden, bias=False), nn.Linear(width, hidden, bias=False)
        self.down_proj = nn.Linear(hidden, width, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class LlamaBlock(nn.Module):
    def __init__(self, width, heads, kv_heads, hidden):
        super().__init__()
        self.self_attn, self.mlp = LlamaAttention(width, heads, kv_heads), LlamaMlp(width, hidden)
        self.input_layernorm, self.post_attention_layernorm = RmsNorm(width), RmsNorm(width)

    def forward(self, x, cos, sin):
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        return x + self.mlp(self.post_attention_layernorm(x))


def llama_frequencies(width, theta=500000.0, factor=8.0, low=1.0, high=4.0, original=8192):
    """Llama 3: waves longer than original / low are slowed by factor, those shorter than original / high stay."""
    plain = 1 / theta ** (torch.arange(0, width, 2).float() / width)
    kept = ((plain * (original / (2 * math.pi)) - low) / (high - low)).clamp(0, 1)
    return plain / factor * (1 - kept) + plain * kept


class Llama(nn.Module):
    transposed = ()

    def __init__(self, vocabulary, sequence, layers, heads, kv_heads, width, hidden):
        super().__init__()
        self.model = nn.ModuleDict({
            "embed_tokens": nn.Embedding(vocabulary, width),
            "layers": Stack(LlamaBlock(width, heads, kv_heads, hidden) for _ in range(layers)), "norm": RmsNorm(width)})
        self.lm_head = nn.Linear(width, vocabulary, bias=False)
        angle = torch.outer(torch.arange(sequence).float(), llama_frequencies(width // heads))
        self.tables = angle.cos(), angle.sin()  # no buffers: they stay in fp32
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, 0, 0.02)

    def forward(self, tokens):
        m = self.model
        cos, sin = (table[:tokens.shape[1]] for table in self.tables)
        return self.lm_head(m["norm"](m["layers"](m["embed_tokens"](tokens), cos, sin)))


MODELS = {"vit": Vit, "swinir": Swinir, "gpt": Gpt, "llama": Llama}


def make_model(config):
    sizes = dict(config["model"])
    model = MODELS[sizes.pop("name")](**sizes)
    for part in model.modules():
        if isinstance(part, Stack):
            part.again = config.get("memory", {}).get("recompute", "none") == "blocks"
    return model


def attention_kernels(config, device):
    """Which attention kernels may be taken: for Llama cuDNN's is the fastest."""
    if config["model"]["name"] == "llama" and device.type == "cuda":
        return sdpa_kernel([SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION], set_priority=True)
    return contextlib.nullcontext()


def relative_l2(output, target):
    return ((output.float() - target).flatten(1).norm(dim=1) / target.flatten(1).norm(dim=1)).mean()


def l1(output, target):
    return (output.float() - target).abs().mean()


def cross_entropy(output, target):
    return F.cross_entropy(output.flatten(0, 1).float(), target.flatten())


LOSSES = {"relative_l2": relative_l2, "l1": l1, "cross_entropy": cross_entropy}
