// SPDX-License-Identifier: BSD-3-Clause
// The operators of kernels/masks.h on the GPU; their CPU twins give the same bits.
#include <algorithm>
#include <tuple>

#include <ATen/Dispatch.h>
#include <ATen/OpMathType.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include "braid/kernels/masks.h"
#include "cuda/launch.cuh"

namespace braid::cuda {
namespace {

constexpr int64_t threads = 256;

int64_t grid_of(int64_t items) {
  return std::clamp<int64_t>((items + threads - 1) / threads, 1, 4096);
}
int64_t groups(int64_t elements, int64_t of) { return (elements + of - 1) / of; }

at::Tensor flat_empty(int64_t elements, const at::Tensor& like, c10::ScalarType dtype) {
  return at::empty({elements}, like.options().dtype(dtype));
}

template <class Scalar>
__global__ void pack_kernel(uint8_t* out, const Scalar* in, int64_t count) {
  using Wide = at::opmath_type<Scalar>;
  const int64_t bytes = (count + 7) / 8, stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t byte = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; byte < bytes;
       byte += stride) {
    unsigned packed = 0;
    const int64_t first = byte * 8, last = first + 8 < count ? first + 8 : count;
    for (int64_t i = first; i < last; ++i)
      packed |= static_cast<unsigned>(!(static_cast<Wide>(in[i]) <= Wide(0))) << (i - first);
    out[byte] = static_cast<uint8_t>(packed);
  }
}

at::Tensor pack_bits(const at::Tensor& values) {
  const c10::cuda::CUDAGuard guard(values.device());
  const at::Tensor flat = values.contiguous();
  at::Tensor bits = flat_empty(groups(flat.numel(), 8), flat, c10::kByte);
  if (bits.numel() == 0) return bits;
  AT_DISPATCH_ALL_TYPES_AND3(
      c10::kBool, c10::kHalf, c10::kBFloat16, flat.scalar_type(), "pack_bits", [&] {
        launch(pack_kernel<scalar_t>, {grid_of(bits.numel()), threads},
               bits.mutable_data_ptr<uint8_t>(), flat.const_data_ptr<scalar_t>(), flat.numel());
      });
  return bits;
}

__global__ void unpack_kernel(bool* out, const uint8_t* in, int64_t count) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += stride)
    out[i] = ((in[i / 8] >> (i % 8)) & 1) != 0;
}

at::Tensor unpack_bits(const at::Tensor& bits, at::IntArrayRef sizes) {
  const c10::cuda::CUDAGuard guard(bits.device());
  at::Tensor values = at::empty(sizes, bits.options().dtype(c10::kBool));
  if (values.numel() == 0) return values;
  launch(unpack_kernel, {grid_of(values.numel()), threads}, values.mutable_data_ptr<bool>(),
         bits.const_data_ptr<uint8_t>(), values.numel());
  return values;
}

// One CUDA block a block of values: the largest magnitude by halves, then each thread its code.
template <class Scalar>
__global__ void quantize_kernel(int8_t* codes, float* scales, const Scalar* in, int64_t count) {
  using Wide = at::opmath_type<Scalar>;
  __shared__ Wide largest[kernels::block_elements];
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kernels::block_elements + threadIdx.x;
  const Wide value = i < count ? static_cast<Wide>(in[i]) : Wide(0);
  largest[threadIdx.x] = value < 0 ? -value : value;
  for (unsigned half = kernels::block_elements / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x >= half) continue;
    const Wide other = largest[threadIdx.x + half];
    if (other > largest[threadIdx.x] || isnan(other)) largest[threadIdx.x] = other;
  }
  __syncthreads();
  const float scale = static_cast<float>(largest[0] / 127);
  if (threadIdx.x == 0) scales[blockIdx.x] = scale;
  if (i >= count) return;
  const bool told = scale > 0 && isfinite(scale);
  const Wide code = told ? rint(value / static_cast<Wide>(scale)) : Wide(0);
  codes[i] = static_cast<int8_t>(code > 127 ? Wide(127) : code < -127 ? Wide(-127) : code);
}

std::tuple<at::Tensor, at::Tensor> quantize_blocks(const at::Tensor& values) {
  const c10::cuda::CUDAGuard guard(values.device());
  const at::Tensor flat = values.contiguous();
  const int64_t count = flat.numel(), blocks = groups(count, kernels::block_elements);
  at::Tensor codes = flat_empty(count, flat, c10::kChar);
  at::Tensor scales = flat_empty(blocks, flat, c10::kFloat);
  if (count == 0) return {codes, scales};
  AT_DISPATCH_FLOATING_TYPES_AND2(
      c10::kHalf, c10::kBFloat16, flat.scalar_type(), "quantize_blocks", [&] {
        launch(quantize_kernel<scalar_t>, {blocks, kernels::block_elements},
               codes.mutable_data_ptr<int8_t>(), scales.mutable_data_ptr<float>(),
               flat.const_data_ptr<scalar_t>(), count);
      });
  return {codes, scales};
}

template <class Scalar>
__global__ void dequantize_kernel(Scalar* out, const int8_t* codes, const float* scales,
                                  int64_t count) {
  using Wide = at::opmath_type<Scalar>;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += stride)
    out[i] = static_cast<Scalar>(static_cast<Wide>(codes[i]) *
                                 static_cast<Wide>(scales[i / kernels::block_elements]));
}

at::Tensor dequantize_blocks(const at::Tensor& codes, const at::Tensor& scales,
                             c10::ScalarType dtype) {
  const c10::cuda::CUDAGuard guard(codes.device());
  at::Tensor values = flat_empty(codes.numel(), codes, dtype);
  if (values.numel() == 0) return values;
  AT_DISPATCH_FLOATING_TYPES_AND2(c10::kHalf, c10::kBFloat16, dtype, "dequantize_blocks", [&] {
    launch(dequantize_kernel<scalar_t>, {grid_of(values.numel()), threads},
           values.mutable_data_ptr<scalar_t>(), codes.const_data_ptr<int8_t>(),
           scales.const_data_ptr<float>(), values.numel());
  });
  return values;
}

template <class Scalar>
__global__ void gate_kernel(Scalar* out, const Scalar* in, const uint8_t* bits, int64_t count,
                            double slope) {
  using Wide = at::opmath_type<Scalar>;
  const auto factor = static_cast<Wide>(slope);
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += stride) {
    const Scalar closed = slope == 0 ? static_cast<Scalar>(0)
                                     : static_cast<Scalar>(static_cast<Wide>(in[i]) * factor);
    out[i] = ((bits[i / 8] >> (i % 8)) & 1) != 0 ? in[i] : closed;
  }
}

at::Tensor gate_by_bits(const at::Tensor& grad, const at::Tensor& bits, double slope) {
  const c10::cuda::CUDAGuard guard(grad.device());
  const at::Tensor flat = grad.contiguous();
  at::Tensor gated = at::empty(flat.sizes(), flat.options());
  if (gated.numel() == 0) return gated;
  AT_DISPATCH_FLOATING_TYPES_AND2(
      c10::kHalf, c10::kBFloat16, flat.scalar_type(), "gate_by_bits", [&] {
        launch(gate_kernel<scalar_t>, {grid_of(flat.numel()), threads},
               gated.mutable_data_ptr<scalar_t>(), flat.const_data_ptr<scalar_t>(),
               bits.const_data_ptr<uint8_t>(), flat.numel(), slope);
      });
  return gated;
}

TORCH_LIBRARY_IMPL(braid, CUDA, library) {
  library.impl("pack_bits", &pack_bits);
  library.impl("unpack_bits", &unpack_bits);
  library.impl("quantize_blocks", &quantize_blocks);
  library.impl("dequantize_blocks", &dequantize_blocks);
  library.impl("gate_by_bits", &gate_by_bits);
}

}  // namespace
}  // namespace braid::cuda
