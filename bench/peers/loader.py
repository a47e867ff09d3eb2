# SPDX-License-Identifier: BSD-3-Clause
"""The peer of bench/loader.cpp: h5py and torch's DataLoader on the same files, written as the field writes it.

python bench/peers/loader.py DIR --workers 2 --batch 4 --epochs 3    prints one JSON object
"""
import argparse
import glob
import json
import time

import h5py
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Frames(Dataset):
    """Pairs of frames one step apart; files are opened lazily, once a worker."""

    def __init__(self, folder):
        self.paths = sorted(glob.glob(f"{folder}/train/*.h5"))
        self.files = [None] * len(self.paths)
        with h5py.File(self.paths[0], "r") as file:
            self.frames = file["fields"].shape[0]
        self.means = np.load(f"{folder}/stats/global_means.npy")[0]
        self.stds = np.load(f"{folder}/stats/global_stds.npy")[0]

    def __len__(self):
        return self.frames * len(self.paths)

    def __getitem__(self, index):
        year, i = divmod(index, self.frames)
        i %= self.frames - 1
        if i < 1:
            i += 1
        if self.files[year] is None:
            self.files[year] = h5py.File(self.paths[year], "r")["fields"]
        pair = [(self.files[year][t] - self.means) / self.stds for t in (i, i + 1)]
        return torch.as_tensor(pair[0]), torch.as_tensor(pair[1])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=3)
    flags = parser.parse_args()
    torch.set_num_threads(1)
    data = Frames(flags.folder)
    loader = DataLoader(data, batch_size=flags.batch, shuffle=True, num_workers=flags.workers, drop_last=True,
                        persistent_workers=flags.workers > 0)
    best, checksum = 1e30, 0.0
    for _ in range(flags.epochs):
        start = time.perf_counter()
        for _, target in loader:
            checksum += float(target[:, 0, 0, 0].double().sum())
        best = min(best, time.perf_counter() - start)
    samples = len(loader) * flags.batch
    size = 2 * data[0][0].numel() * 4
    print(json.dumps({"samples_per_second": round(samples / best, 2),
                      "gigabytes_per_second": round(samples * size / best / 1e9, 3),
                      "samples": samples, "seconds": round(best, 4), "checksum": round(checksum / flags.epochs, 4),
                      "versions": {"torch": torch.__version__, "h5py": h5py.__version__, "numpy": np.__version__}}))


if __name__ == "__main__":
    main()
