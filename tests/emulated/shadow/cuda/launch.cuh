// SPDX-License-Identifier: BSD-3-Clause
// src/cuda/launch.cuh for kernels that run on the CPU.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAGuard.h>

#include <cstdint>

#include "emulated/block.h"

namespace braid::cuda {

struct Grid {
  emulated::GridSize size;

  Grid(int64_t blocks, int64_t threads, int64_t bytes = 0)
      : size{{static_cast<unsigned>(blocks)},
             {static_cast<unsigned>(threads)},
             static_cast<size_t>(bytes)} {}
  Grid(dim3 blocks, dim3 threads) : size{blocks, threads} {}
  Grid(dim3 blocks, unsigned threads) : size{blocks, {threads}} {}
};

// Each thread has its own copy of the arguments, as on a GPU.
template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), const Grid& grid, const Arguments&... arguments) {
  emulated::run_grid(grid.size, [&] { kernel(arguments...); });
}

template <class T>
T* shared_memory() {
  return reinterpret_cast<T*>(emulated::shared_bytes());
}

}  // namespace braid::cuda
