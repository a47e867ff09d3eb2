// SPDX-License-Identifier: BSD-3-Clause
// For small functions that host code and CUDA kernels share.
//
//   BRAID_ANYWHERE inline int64_t half(int64_t x) { return x / 2; }
#pragma once

#ifdef __CUDACC__
#define BRAID_ANYWHERE __host__ __device__
#else
#define BRAID_ANYWHERE
#endif
