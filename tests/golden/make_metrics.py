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
print("psnr max", each(lambda p, t: 20 * math.log10(t.max() / math.sqrt(((p - t) ** 2).mean()))))
# skimage.metrics.peak_signal_noise_ratio(t, p, data_range=t.max() - t.min()) gives the same.
print("psnr span", each(lambda p, t: 10 * math.log10((t.max() - t.min()) ** 2 / ((p - t) ** 2).mean())))
print("psnr 2", each(lambda p, t: 10 * math.log10(4 / ((p - t) ** 2).mean())))
print("ssim", each(ssim))
print("rfne", each(lambda p, t: np.linalg.norm(p - t) / np.linalg.norm(t)))
print("weights", ["%.12f" % v for v in w[[0, 1, 8], 0]])


def cell_weights(latitudes):  # weatherbench2.metrics.get_lat_weights, for rising latitudes of the whole globe
    rows = np.deg2rad(latitudes)
    bounds = np.concatenate([[-np.pi / 2], (rows[:-1] + rows[1:]) / 2, [np.pi / 2]])
    weights = np.sin(bounds[1:]) - np.sin(bounds[:-1])
    return weights / weights.mean()


def area_rmse(weights):
    return ["%.12f" % math.sqrt((weights[:, None] * (p[b, c] - t[b, c]) ** 2).mean()) for b in range(2) for c in range(2)]


with_poles = np.linspace(-90, 90, 16)
without = -90 + 11.25 * (np.arange(16) + 0.5)
# A region is cut out of the globe after the weights are computed, as weatherbench2.regions does: 20 to 57.5 degrees north of a
# grid with a row every 2.5 degrees.
globe = np.arange(-90, 90.1, 2.5)
region = (globe >= 20) & (globe <= 57.5)
part = cell_weights(globe)[region]
for name, weights in [("poles", cell_weights(with_poles)), ("no poles", cell_weights(without)), ("region", part / part.mean())]:
    print(name, ["%.12f" % v for v in weights[[0, 1, 8]]], "rmse", area_rmse(weights))
gaussian = np.rad2deg(np.arcsin(np.polynomial.legendre.leggauss(16)[0]))
print("gaussian", list(gaussian), ["%.12f" % v for v in cell_weights(gaussian)[[0, 1, 8]]])
cosines = np.cos(np.deg2rad(globe[region]))
print("cos", ["%.12f" % v for v in (cosines / cosines.mean())[[0, 1, 8]]])
