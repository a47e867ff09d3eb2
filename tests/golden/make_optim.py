# SPDX-License-Identifier: BSD-3-Clause
"""Ten steps of each update rule of torch.optim (neither fused nor foreach): python tests/golden/make_optim.py

Weights, gradients and learning rates follow formulas that tests/optim/rules_test.cpp repeats, so that the file holds only
results: one line "case dtype parameter value..." with values as hexadecimal floats.
"""
import pathlib
import torch

CASES = {
    "sgd": (torch.optim.SGD, {}),
    "sgd_decay": (torch.optim.SGD, {"weight_decay": 0.1}),
    "sgd_momentum": (torch.optim.SGD, {"momentum": 0.9, "weight_decay": 0.1}),
    "sgd_nesterov": (torch.optim.SGD, {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    "adam": (torch.optim.Adam, {"betas": (0.9, 0.95)}),
    "adam_decay": (torch.optim.Adam, {"weight_decay": 0.1}),
    "adamw": (torch.optim.AdamW, {"weight_decay": 0.1}),
}
SHAPES = {"weight": (3, 4), "bias": (5,)}


def grid(count, factor, offset, prime, divisor):
    return [((factor * i + offset) % prime - prime // 2) / divisor for i in range(count)]


def run(rule, options, dtype):
    params = {}
    for name, shape in SHAPES.items():
        count = torch.Size(shape).numel()
        params[name] = torch.tensor(grid(count, 5, 0, 11, 4), dtype=dtype).view(shape).requires_grad_()
    optimizer = rule(params.values(), lr=0.05, foreach=False, fused=False, **options)
    for step in range(10):
        for group in optimizer.param_groups:
            group["lr"] = 0.05 / (1 + step / 4)
        for name, tensor in params.items():
            grad = torch.tensor(grid(tensor.numel(), 7, 13 * step, 17, 8), dtype=dtype).view(tensor.shape)
            tensor.grad = None if name == "bias" and step == 3 else grad
        optimizer.step()
    return params


def main():
    lines = []
    for case, (rule, options) in CASES.items():
        for word, dtype in (("fp64", torch.float64), ("fp32", torch.float32)):
            for name, tensor in run(rule, options, dtype).items():
                values = " ".join(float(v).hex() for v in tensor.detach().flatten())
                lines.append(f"{case} {word} {name} {values}\n")
    pathlib.Path(__file__).with_name("optim.txt").write_text("".join(lines))


if __name__ == "__main__":
    main()
