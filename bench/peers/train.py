# SPDX-License-Identifier: BSD-3-Clause
"""Training steps of a model of bench/models.json in PyTorch: the peer of bench_train, with the same options.

    python bench/peers/train.py bench/models.json:gpt --mode compile --steps 20

Prints one JSON object. `bench/peers/run` starts it.
"""
import argparse
import contextlib
import json
import resource
import time

import torch

import batches
import models
import weights


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("config", help="FILE:NAME")
    parser.add_argument("--set", action="append", default=[], dest="sets", help="path=value")
    parser.add_argument("--mode", default="eager", help="eager, compile, or a mode of torch.compile")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--warm-up", type=int, default=5)
    parser.add_argument("--batches", type=int, default=1, help="that the steps take in turn; 0: a new one each step")
    parser.add_argument("--curve", type=int, default=0)
    parser.add_argument("--weights", help="initial weights, written by bench_train --save-weights")
    parser.add_argument("--trace", help="write a trace of the steps")
    parser.add_argument("--started", type=float, default=0)
    return parser.parse_args()


def load_config(spec, sets):
    path, name = spec.rsplit(":", 1)
    with open(path) as file:
        config = json.load(file)[name]
    for one in sets:
        keys, value = one.split("=", 1)
        place = config
        *sections, last = keys.split(".")
        for section in sections:
            place = place.setdefault(section, {})
        try:
            place[last] = json.loads(value)
        except json.JSONDecodeError:
            place[last] = value
    return config


def make_optimizer(model, options):
    groups = {True: [], False: []}
    for p in model.parameters():
        groups[p.dim() >= 2 or not options.get("decay_matrices_only", False)].append(p)
    decay = options.get("weight_decay", 0.0)
    kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[options["name"]]
    return kind([{"params": groups[True], "weight_decay": decay}, {"params": groups[False], "weight_decay": 0.0}],
                lr=options["lr"], betas=options["betas"], eps=options.get("eps", 1e-8), fused=True)


class Run:
    def __init__(self, options):
        self.options, config = options, load_config(options.config, options.sets)
        self.config = config
        name = options.device if options.device != "auto" else "cuda" if torch.cuda.is_available() else "cpu"
        self.device = torch.device(name)
        self.precision = config["train"]["precision"]
        torch.manual_seed(0)
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = self.precision == "tf32"
        before = torch.get_default_dtype()
        torch.set_default_dtype({"bf16_params": torch.bfloat16, "fp64": torch.float64}.get(self.precision, before))
        with self.device:
            self.model = models.make_model(config)
        torch.set_default_dtype(before)
        if options.weights:
            weights.load(self.model, options.weights)
        self.optimizer = make_optimizer(self.model, config["optimizer"])
        self.batches = [batches.batch(config, i, self.device) for i in range(max(1, options.batches))]
        self.loss = self.loss_of
        if options.mode != "eager":
            self.loss = torch.compile(self.loss_of, mode=None if options.mode == "compile" else options.mode)

    def loss_of(self, x, target):
        mixed = torch.autocast(self.device.type, torch.bfloat16) if self.precision == "bf16" else contextlib.nullcontext()
        with mixed:
            output = self.model(x)
        return models.LOSSES[self.config["train"]["loss"]](output, target)

    def wait(self):
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def share_of_rate(self, number):
        """Of a curve: up during the first fifth of the steps, then down."""
        steps = self.options.curve
        rise = max(1, steps // 5)
        return min((number + 1) / rise, (steps - number) / max(1, steps - rise)) if steps else 1

    def batch(self, number):
        if self.options.batches == 0:
            return batches.batch(self.config, number, self.device)
        return self.batches[number % len(self.batches)]

    def step(self, number):
        for group in self.optimizer.param_groups:
            group["lr"] = self.config["optimizer"]["lr"] * self.share_of_rate(number)
        with models.attention_kernels(self.config, self.device):
            loss = self.loss(*self.batch(number))
            loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    def warmed_up(self):
        loss = self.step(0).item()
        self.wait()
        result = {"first_loss": loss}
        if self.options.started:
            result["first_step"] = time.time() - self.options.started
        for i in range(1, self.options.warm_up):
            self.step(i)
        self.wait()
        if self.device.type == "cuda":
            result["peak_allocated_warm_up"] = torch.cuda.max_memory_allocated()
            torch.cuda.reset_peak_memory_stats()
        return result

    def times(self):
        result, seconds = self.warmed_up(), []
        for i in range(self.options.steps):
            begin = time.perf_counter()
            self.step(self.options.warm_up + i)
            self.wait()
            seconds.append(time.perf_counter() - begin)
        x = self.batches[0][0]
        units, median = (len(x) if x.is_floating_point() else x.numel()), sorted(seconds)[len(seconds) // 2]
        result.update(seconds=seconds, ms=1e3 * median, units=units, rate=units / median,
                      peak_rss=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
        if self.device.type == "cuda":
            stats = torch.cuda.memory_stats()
            result.update(peak_allocated=stats["allocated_bytes.all.peak"], peak_requested=stats["requested_bytes.all.peak"],
                          peak_reserved=stats["reserved_bytes.all.peak"])
        return result

    def losses(self):
        each = [self.step(i).clone() for i in range(self.options.curve)]
        return {"losses": [loss.item() for loss in each]}

    def traced(self):
        result = self.warmed_up()
        with torch.profiler.profile() as profile:
            for i in range(self.options.steps):
                self.step(self.options.warm_up + i)
            self.wait()
        profile.export_chrome_trace(self.options.trace)
        return {**result, "trace": self.options.trace, "steps": self.options.steps}

    def result(self):
        about = {"who": self.options.mode, "model": self.options.config.rsplit(":", 1)[1], "set": self.options.sets,
                 "device": torch.cuda.get_device_name() if self.device.type == "cuda" else "cpu", "precision": self.precision,
                 "parameters": sum(p.numel() for p in self.model.parameters()), "version": torch.__version__}
        what = self.losses if self.options.curve else self.traced if self.options.trace else self.times
        return {**about, **what()}


if __name__ == "__main__":
    print(json.dumps(Run(arguments()).result()))
