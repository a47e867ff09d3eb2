# SPDX-License-Identifier: BSD-3-Clause
"""Made-up batches with the numbers of bench/synthetic.cpp: functions of an integer hash of sample, place and salt."""
import torch
import torch.nn.functional as F

MASK = 0xffffffff
FACTORS = (0x85ebca6b, 0xc2b2ae35, 0x27d4eb2f)


def mix(x, factor):
    """A round of mixing of numbers of 32 bits."""
    return x.bitwise_xor_(x >> 15).mul_(factor).bitwise_and_(MASK)


def hashed(first, count, salt, sizes, device):
    """[count, *sizes] of samples from `first` on, 24 bits a number as fp32, 0 <= x < 1"""
    key = torch.arange(count, device=device).add_(first).bitwise_xor_(salt * 0x9e3779b9 & MASK).bitwise_and_(MASK)
    for factor in FACTORS:
        mix(key, factor)
    place = mix(torch.arange(torch.Size(sizes).numel(), device=device), FACTORS[0])
    x = mix(mix(place[None] ^ key[:, None], FACTORS[1]), FACTORS[2])
    return (x >> 8).float().mul_(2.0 ** -24).view(count, *sizes)


def whole_numbers(u, below):
    return u.double().mul_(float(below)).long()


def text(model, first, count, device):
    """Words in runs of 16: half of them follow from the word before, a quarter from the one before that, the others are drawn."""
    run, tokens, words = 16, model["sequence"], min(model["vocabulary"], 1024)
    u, rule = (hashed(first, count, salt, [(tokens + run) // run, run], device) for salt in (1, 2))
    drawn = whole_numbers(u.double() * u, words)
    after_one, after_two = (whole_numbers(hashed(0, 1, salt, [words], device), words).view(-1) for salt in (3, 4))
    parts = [drawn[..., 0], drawn[..., 1]]
    for i in range(2, run):
        ruled = torch.where(rule[..., i] < 0.5, after_one.take(parts[-1]), after_two.take(parts[-2]))
        parts.append(torch.where(rule[..., i] < 0.75, ruled, drawn[..., i]))
    whole = torch.stack(parts, 2).view(count, -1).mul_(model["vocabulary"] // words)
    return whole[:, :tokens].contiguous(), whole[:, 1:tokens + 1].contiguous()


def waves(first, count, salt, sizes, step, device):
    """[count, channels, rows, columns] between -1.5 and 1.5, with a new value every `step` points"""
    coarse = [sizes[0], max(2, sizes[1] // step), max(2, sizes[2] // step)]
    u = hashed(first, count, salt, coarse, device).sub_(0.5).mul_(3)
    return F.interpolate(u, size=sizes[1:], mode="bilinear", align_corners=False)


def fields(model, first, count, device):
    """Smooth fields; wanted is where the wind carries them, with some of the next field and noise."""
    sizes, pairs = [model["channels_in"], *model["image"]], []
    for sample in range(first, first + count):
        field = waves(sample, 1, 1, sizes, 24, device)
        noise = hashed(sample, 1, 2, sizes, device).sub_(0.5).mul_(0.2)
        wanted = field.roll((3, 5), (2, 3)).mul(0.75).add_(field.roll(1, 1).mul_(0.5)).add_(noise)
        pairs.append((field[0], wanted[0]))
    return [torch.stack(part) for part in zip(*pairs)]


def images(model, first, count, device):
    """Images of coarse and fine waves in physical units, and their means over `scale` points."""
    std, mean = (torch.tensor(model[name], device=device).view(-1, 1, 1) for name in ("std", "mean"))
    sizes = [model["channels"], *(size * model["scale"] for size in model["image"])]
    image = waves(first, count, 1, sizes, 16, device)
    image.add_(waves(first, count, 2, sizes, 4, device).mul_(0.3))
    image.add_(hashed(first, count, 3, sizes, device).sub_(0.5).mul_(0.1)).mul_(std).add_(mean)
    return F.avg_pool2d(image, model["scale"]), image


MAKERS = {"vit": fields, "swinir": images, "gpt": text, "llama": text}


def batch(config, number, device):
    """(input, target) of the config's batch size; another one for each number"""
    model, count = config["model"], config["train"]["global_batch"]
    return MAKERS[model["name"]](model, number * count, count, device)
