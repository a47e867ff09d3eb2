# SPDX-License-Identifier: BSD-3-Clause
# Prints the numbers of tests/nn/metrics_test.cpp: metrics of two waves, written out in NumPy (double).
import math

import numpy as np

SHAPE = (2, 2, 16, 20)
i = np.arange(np.prod(SHAPE)).reshape(SHAPE).astype(np.float64)
t = np.cos(0.11 * i) + 0.5
p = t + 0.2 * np.sin(0.37 * i)

lat = np.cos(3.1416 / 180 * (90 - 180 * np.arange(16) / 15))
w = (16 * lat / lat.sum())[:, None]


def ssim(p, t):  # one image each; window by window
    g = np.exp(-((np.arange(11) - 5.0) ** 2) / (2 * 1.5**2))
    g = np.outer(g, g) / g.sum() ** 2
    span = t.max() - t.min()
    c1, c2, values = (0.01 * span) ** 2, (0.03 * span) ** 2, []
    for r in range(p.shape[0] - 10):
        for c in range(p.shape[1] - 10):
            a, b = p[r : r + 11, c : c + 11], t[r : r + 11, c : c + 11]
            ma, mb = (g * a).sum(), (g * b).sum()
            va, vb, ab = (g * (a - ma) ** 2).sum(), (g * (b - mb) ** 2).sum(), (g * (a - ma) * (b - mb)).sum()
            values.append((2 * ma * mb + c1) * (2 * ab + c2) / ((ma**2 + mb**2 + c1) * (va + vb + c2)))
    return np.mean(values)


def each(f):
    return ["%.12f" % f(p[b, c], t[b, c]) for b in range(2) for c in range(2)]


print("rmse", each(lambda p, t: math.sqrt((w * (p - t) ** 2).mean())))
print("acc ", each(lambda p, t: (w * p * t).sum() / math.sqrt((w * p * p).sum() * (w * t * t).sum())))
print("psnr", each(lambda p, t: 20 * math.log10(t.max() / math.sqrt(((p - t) ** 2).mean()))))
print("ssim", each(ssim))
print("rfne", each(lambda p, t: np.linalg.norm(p - t) / np.linalg.norm(t)))
print("weights", ["%.12f" % v for v in w[[0, 1, 8], 0]])
