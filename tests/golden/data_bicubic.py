# SPDX-License-Identifier: BSD-3-Clause
"""Golden numbers of the coarse half of super-resolution pairs, and of the sample order, made with torch 2.11.

python tests/golden/data_bicubic.py    writes data_bicubic_*.npy beside itself
"""
from pathlib import Path

import numpy as np
import torch

here = Path(__file__).parent
fine = torch.randn(2, 12, 24, generator=torch.Generator().manual_seed(3)) * 10 + 280
np.save(here / "data_bicubic_fine.npy", fine.numpy())
for scale in (2, 3, 4):
    coarse = torch.nn.functional.interpolate(
        fine[None], size=(12 // scale, 24 // scale), mode="bicubic", align_corners=False, antialias=False)[0]
    np.save(here / f"data_bicubic_x{scale}.npy", coarse.numpy())
np.save(here / "data_order.npy", torch.randperm(100, generator=torch.Generator().manual_seed(7 + 2)).numpy())
np.save(here / "data_fortran.npy", np.asfortranarray(np.arange(24, dtype=np.float64).reshape(2, 3, 4)))
np.save(here / "data_half.npy", np.array([1.5, -2.25, 1e-3], dtype=np.float16))
