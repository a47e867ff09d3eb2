// SPDX-License-Identifier: BSD-3-Clause
// How a kernel is started: on the current stream, with leave for the shared memory that it asks
// for, and checked.
//
//   launch(norm_kernel<float, 4>, {blocks, threads}, arguments, width);
//   launch(window_kernel, {blocks, threads, bytes}, places);  // there: shared_memory<float>()
//
// tests/emulated has a header of this name that runs kernels on the CPU.
#pragma once
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <cstdint>
#include <utility>

namespace braid::cuda {

struct Grid {
  dim3 blocks, threads;
  size_t shared = 0;  // bytes

  Grid(int64_t blocks_of, int64_t threads_of, int64_t bytes = 0)
      : blocks(static_cast<unsigned>(blocks_of)),
        threads(static_cast<unsigned>(threads_of)),
        shared(static_cast<size_t>(bytes)) {}
  Grid(dim3 blocks_of, dim3 threads_of) : blocks(blocks_of), threads(threads_of) {}
};

// Of 48 KiB a kernel may have a part for itself.
constexpr size_t shared_without_leave = 32 * 1024;

template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), const Grid& grid, Arguments&&... arguments) {
  if (grid.shared > shared_without_leave)
    C10_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                        static_cast<int>(grid.shared)));
  kernel<<<grid.blocks, grid.threads, grid.shared, c10::cuda::getCurrentCUDAStream()>>>(
      std::forward<Arguments>(arguments)...);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

// The bytes that the launch has asked for.
template <class T>
__device__ T* shared_memory() {
  extern __shared__ __align__(128) unsigned char shared_bytes[];
  return reinterpret_cast<T*>(shared_bytes);
}

}  // namespace braid::cuda
