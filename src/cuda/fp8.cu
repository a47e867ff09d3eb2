// SPDX-License-Identifier: BSD-3-Clause
// Quantisation of kernels/fp8.h on the GPU: one pass finds the scale, one writes codes, as the
// tensor lies and transposed. Row by row both are one pass.
#include <ATen/Dispatch.h>
#include <ATen/OpMathType.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <torch/library.h>

#include <tuple>

#include "cuda/aligned.h"
#include "cuda/map_rows.cuh"
#include "cuda/ptx.cuh"
#include "kernels/fp8_codes.h"

namespace braid::cuda {
namespace {

constexpr int scale_threads = 256, tile = 64, tile_rows = 8;  // threads of a tile: 32 x tile_rows

__device__ inline float block_max(float value) {
  __shared__ float of_warp[32];
  for (int step = 16; step > 0; step /= 2)
    value = fmaxf(value, __shfl_xor_sync(0xffffffff, value, step));
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = value;
  __syncthreads();
  value = threadIdx.x < blockDim.x / 32 ? of_warp[threadIdx.x] : 0;
  if (threadIdx.x < 32)
    for (int step = 16; step > 0; step /= 2)
      value = fmaxf(value, __shfl_xor_sync(0xffffffff, value, step));
  return value;  // of thread 0
}

// Scales are positive, so their bits order as integers do.
template <class T, int Width>
__global__ void __launch_bounds__(scale_threads)
    scale_kernel(RowView x, int64_t packs, int64_t of_row, float per_step, float* scale) {
  float most = 0;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * scale_threads;
#pragma unroll 4
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * scale_threads + threadIdx.x; i < packs;
       i += stride) {
    const int64_t row = i / of_row;
    const auto pack = *reinterpret_cast<const Pack<T, Width>*>(
        static_cast<const T*>(x.data) + row * x.stride + (i - row * of_row) * Width);
#pragma unroll
    for (int e = 0; e < Width; ++e) most = fmaxf(most, fabsf(static_cast<float>(pack.at[e])));
  }
  most = block_max(most);
  if (threadIdx.x == 0 && most > 0)
    atomicMax(reinterpret_cast<int*>(scale), __float_as_int(most * per_step));
}

at::Tensor fp8_scale(at::TensorList parts, bool e5m2) {
  const c10::cuda::CUDAGuard guard(parts[0].device());
  at::Tensor scale =
      at::full({1, 1}, kernels::smallest_scale, parts[0].options().dtype(at::kFloat));
  const auto per_step = static_cast<float>(1 / kernels::largest_code(e5m2));
  for (const at::Tensor& part : parts) {
    if (part.numel() == 0) continue;
    const RowView view = {const_cast<void*>(part.const_data_ptr()), part.stride(0)};
    const int64_t width = part.size(1), element = part.element_size();
    const bool wide = width * element % 16 == 0 && fit_packs(RowViews<1>{{view}}, element);
    AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, part.scalar_type(), "fp8_scale", [&] {
      const int64_t of_row = wide ? width * element / 16 : width;
      const int64_t packs = part.size(0) * of_row;
      const int64_t blocks = std::min<int64_t>((packs + 1023) / 1024, 132 * 8);
      const auto run =
          wide ? scale_kernel<scalar_t, 16 / sizeof(scalar_t)> : scale_kernel<scalar_t, 1>;
      launch(run, {blocks, scale_threads}, view, packs, of_row, per_step,
             scale.mutable_data_ptr<float>());
    });
  }
  return scale;
}

struct CodesOut {
  uint8_t* data;  // null: not wanted
  int64_t stride;
};

// A tile of 64 x 64: read by rows, written by rows, and turned in shared memory.
template <class T>
__global__ void __launch_bounds__(32 * tile_rows)
    codes_kernel(RowView x, int64_t rows, int64_t width, const float* scale, bool e5m2,
                 CodesOut plain, CodesOut turned) {
  __shared__ uint8_t held[tile][tile + 4];
  const float inverse = 1.0f / *scale;
  const int64_t first_row = static_cast<int64_t>(blockIdx.y) * tile;
  const int64_t first_column = static_cast<int64_t>(blockIdx.x) * tile;
  const int lane = static_cast<int>(threadIdx.x) % 8 * 8;  // eight neighbours of a thread
  const int line = static_cast<int>(threadIdx.x) / 8;      // of 32
#pragma unroll
  for (int step = 0; step < tile; step += 32 * tile_rows / 8) {
    const int64_t row = first_row + line + step, column = first_column + lane;
    if (row >= rows || column >= width) continue;
    const auto pack = *reinterpret_cast<const Pack<T, 8>*>(static_cast<const T*>(x.data) +
                                                           row * x.stride + column);
    Pack<uint8_t, 8> codes;
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      codes.at[e] = fp8_code(static_cast<float>(pack.at[e]) * inverse, e5m2);
      held[lane + e][line + step] = codes.at[e];
    }
    if (plain.data != nullptr)
      *reinterpret_cast<Pack<uint8_t, 8>*>(plain.data + row * plain.stride + column) = codes;
  }
  if (turned.data == nullptr) return;
  __syncthreads();
#pragma unroll
  for (int step = 0; step < tile; step += 32 * tile_rows / 8) {
    const int64_t column = first_column + line + step, row = first_row + lane;
    if (row >= rows || column >= width) continue;
    Pack<uint8_t, 8> codes;
#pragma unroll
    for (int e = 0; e < 8; ++e) codes.at[e] = held[line + step][lane + e];
    *reinterpret_cast<Pack<uint8_t, 8>*>(turned.data + column * turned.stride + row) = codes;
  }
}

// Weights within a flat buffer may begin anywhere.
at::Tensor at_vectors(const at::Tensor& x) {
  const bool fits =
      aligned(32, {x.const_data_ptr()}, {x.stride(0) * x.element_size()}) && x.stride(1) == 1;
  return fits ? x : x.clone(at::MemoryFormat::Contiguous);
}

void write_codes(const at::Tensor& given, const at::Tensor& scale, bool e5m2, CodesOut plain,
                 CodesOut turned) {
  if (given.numel() == 0) return;
  const at::Tensor part = at_vectors(given);
  const RowView view = {const_cast<void*>(part.const_data_ptr()), part.stride(0)};
  const dim3 grid(static_cast<unsigned>((part.size(1) + tile - 1) / tile),
                  static_cast<unsigned>((part.size(0) + tile - 1) / tile));
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, part.scalar_type(), "fp8_codes", [&] {
    launch(codes_kernel<scalar_t>, {grid, 32 * tile_rows}, view, part.size(0), part.size(1),
           scale.const_data_ptr<float>(), e5m2, plain, turned);
  });
}

uint8_t* bytes_of(const at::Tensor& codes) {
  return static_cast<uint8_t*>(codes.mutable_data_ptr());
}

std::tuple<at::Tensor, at::Tensor> fp8_codes(at::TensorList parts, int64_t dim,
                                             const at::Tensor& scale, bool e5m2, bool plain,
                                             bool turned) {
  const c10::cuda::CUDAGuard guard(parts[0].device());
  const auto out = kernels::empty_codes(parts, dim, e5m2, plain, turned);
  int64_t first = 0;
  for (const at::Tensor& part : parts) {
    CodesOut to = {}, to_turned = {};
    const at::Tensor &rows = std::get<0>(out), &columns = std::get<1>(out);
    if (plain) to = {bytes_of(rows) + first * (dim == 0 ? rows.stride(0) : 1), rows.stride(0)};
    if (turned)
      to_turned = {bytes_of(columns) + first * (dim == 0 ? 1 : columns.stride(0)),
                   columns.stride(0)};
    write_codes(part, scale, e5m2, to, to_turned);
    first += part.size(dim);
  }
  return out;
}

template <class T>
__global__ void __launch_bounds__(scale_threads)
    row_codes_kernel(RowView x, int64_t width, uint8_t* codes, float* scales) {
  __shared__ float shared_scale;
  const T* row = static_cast<const T*>(x.data) + blockIdx.x * x.stride;
  float most = 0;
  for (int64_t i = threadIdx.x * 8; i < width; i += scale_threads * 8) {
    const auto pack = *reinterpret_cast<const Pack<T, 8>*>(row + i);
#pragma unroll
    for (int e = 0; e < 8; ++e) most = fmaxf(most, fabsf(static_cast<float>(pack.at[e])));
  }
  most = block_max(most);
  if (threadIdx.x == 0) {
    shared_scale = fmaxf(most * static_cast<float>(1 / kernels::largest_e4m3),
                         static_cast<float>(kernels::smallest_scale));
    scales[blockIdx.x] = shared_scale;
  }
  __syncthreads();
  const float inverse = 1.0f / shared_scale;
  for (int64_t i = threadIdx.x * 8; i < width; i += scale_threads * 8) {  // from the caches
    const auto pack = *reinterpret_cast<const Pack<T, 8>*>(row + i);
    Pack<uint8_t, 8> to;
#pragma unroll
    for (int e = 0; e < 8; ++e)
      to.at[e] = fp8_code(static_cast<float>(pack.at[e]) * inverse, false);
    *reinterpret_cast<Pack<uint8_t, 8>*>(codes + blockIdx.x * width + i) = to;
  }
}

void write_row_codes(const at::Tensor& given, uint8_t* codes, float* scales) {
  if (given.numel() == 0) return;
  const at::Tensor x = at_vectors(given);
  const RowView view = {const_cast<void*>(x.const_data_ptr()), x.stride(0)};
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), "fp8_rows", [&] {
    launch(row_codes_kernel<scalar_t>, {x.size(0), scale_threads}, view, x.size(1), codes, scales);
  });
}

std::tuple<at::Tensor, at::Tensor> fp8_rows(at::TensorList parts) {
  const c10::cuda::CUDAGuard guard(parts[0].device());
  const auto out = kernels::empty_row_codes(parts);
  const auto& [codes, scales] = out;
  int64_t first = 0;
  for (const at::Tensor& part : parts) {
    write_row_codes(part, bytes_of(codes) + first * codes.size(1),
                    scales.mutable_data_ptr<float>() + first);
    first += part.size(0);
  }
  return out;
}

TORCH_LIBRARY_IMPL(braid, CUDA, library) {
  library.impl("fp8_scale", &fp8_scale);
  library.impl("fp8_codes", &fp8_codes);
  library.impl("fp8_rows", &fp8_rows);
}

}  // namespace
}  // namespace braid::cuda
