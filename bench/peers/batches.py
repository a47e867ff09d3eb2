# SPDX-License-Identifier: BSD-3-Clause
"""Made-up batches with the numbers of bench/synthetic.cpp: an integer hash of place and salt."""
import torch

MASK = 0xffffffff


def hashed(sizes, sample, salt, device):
    count = torch.Size(sizes).numel()
    x = torch.arange(count, device=device)
    x.add_(sample * count).bitwise_xor_(salt * 0x9e3779b9 & MASK).bitwise_and_(MASK)
    for factor in (0x85ebca6b, 0xc2b2ae35, 0x27d4eb2f):
        x.bitwise_xor_(x >> 15).mul_(factor).bitwise_and_(MASK)
    return (x >> 8).float().mul_(2.0 ** -24).view(sizes)


def text(model, sample, device):
    u = hashed([model["sequence"] + 1], sample, 1, device).double()
    tokens = u.mul(u).mul_(u).mul_(float(model["vocabulary"])).long()
    return tokens[:-1], tokens[1:]


def field(model, sample, device):
    sizes = [model["channels_in"], *model["image"]]
    x = hashed(sizes, sample, 1, device).sub_(0.5).mul_(3)
    return x, x.roll(1, 0).mul_(0.75).add_(hashed(sizes, sample, 2, device))


def image(model, sample, device):
    std, mean = (torch.tensor(model[name], device=device).view(-1, 1, 1) for name in ("std", "mean"))
    coarse = hashed([model["channels"], *model["image"]], sample, 1, device).sub_(0.5).mul_(3)
    large = torch.nn.functional.interpolate(coarse[None], scale_factor=model["scale"])[0]
    noise = hashed(large.shape, sample, 2, device).sub_(0.5).mul_(0.5)
    return coarse.mul(std).add_(mean), large.add(noise).mul_(std).add_(mean)


SAMPLES = {"vit": field, "swinir": image, "gpt": text, "llama": text}


def batch(config, number, device):
    """(input, target) of the config's batch size"""
    model, count = config["model"], config["train"]["global_batch"]
    pairs = (SAMPLES[model["name"]](model, number * count + i, device) for i in range(count))
    inputs, targets = zip(*pairs)
    return torch.stack(inputs), torch.stack(targets)
