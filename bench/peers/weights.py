# SPDX-License-Identifier: BSD-3-Clause
"""Weights that bench_train --save-weights wrote: the safetensors format, read without its package."""
import json
import mmap
import struct

import torch

DTYPES = {"F64": torch.float64, "F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16, "I64": torch.int64}


def read_safetensors(path):
    """{name: tensor}; the tensors share the mapped file"""
    with open(path, "rb") as file:
        memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    size, = struct.unpack("<Q", memory[:8])
    header = json.loads(memory[8:8 + size])
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        dtype = DTYPES[entry["dtype"]]
        flat = torch.frombuffer(memory, dtype=dtype, count=(end - begin) // dtype.itemsize, offset=8 + size + begin)
        tensors[name] = flat.view(entry["shape"])
    return tensors


def load(model, path):
    """All parameters, by name; complains if one side has more."""
    saved, params = read_safetensors(path), dict(model.named_parameters())
    if saved.keys() != params.keys():
        raise SystemExit(f"weights and model differ in {sorted(saved.keys() ^ params.keys())[:8]}")
    with torch.no_grad():
        for name, param in params.items():
            value = saved[name].t() if name.endswith(tuple(model.transposed)) and model.transposed else saved[name]
            if value.shape != param.shape:
                raise SystemExit(f"{name} is {list(value.shape)} in the file and {list(param.shape)} in the model")
            param.copy_(value)
