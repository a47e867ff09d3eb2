// SPDX-License-Identifier: BSD-3-Clause
// Random numbers of core/rng.h made where they are wanted: the same integers as on the host, the
// same formulas in fp64, without contraction. Their CPU twins are fill_normal_by_host and
// fill_uniform_by_host.
#include <ATen/Dispatch.h>
#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include <algorithm>
#include <type_traits>

#include "braid/core/mix.h"
#include "core/philox.h"
#include "cuda/launch.cuh"

namespace braid::cuda {
namespace {

struct NormalDraw {
  uint64_t key;
  double mean, std, low, high;

  static __device__ double normal(uint64_t key, uint64_t index) {
    const PhiloxWords words = philox(key, index);
    const double radius = sqrt(-2.0 * log1p(-philox_unit(words.at[0], words.at[1])));
    const double angle = 2.0 * 3.14159265358979323846 * philox_unit(words.at[2], words.at[3]);
    return radius * cos(angle);
  }

  __device__ double operator()(uint64_t index) const {
    for (uint64_t attempt = 0;; ++attempt) {
      const uint64_t drawn = attempt == 0 ? key : mix(key ^ mix(attempt + 1));  // RandomKey::with
      const double value = __dadd_rn(mean, __dmul_rn(std, normal(drawn, index)));
      if (value >= low && value <= high) return value;
    }
  }
};

struct UniformDraw {
  uint64_t key;
  double low, width;

  __device__ double operator()(uint64_t index) const {
    const PhiloxWords words = philox(key, index);
    return __dadd_rn(low, __dmul_rn(width, philox_unit(words.at[0], words.at[1])));
  }
};

// As the host does: to fp32 first, where the tensor is no fp64.
template <class T>
__device__ T rounded(double value) {
  if constexpr (std::is_same_v<T, double>)
    return value;
  else
    return static_cast<T>(static_cast<float>(value));
}

template <class T, class Draw>
__global__ void draw_kernel(T* out, int64_t count, int64_t first, Draw draw) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += stride)
    out[i] = rounded<T>(draw(static_cast<uint64_t>(first + i)));
}

template <class Draw>
void fill_by(const at::Tensor& x, int64_t first, const Draw& draw) {
  const c10::cuda::CUDAGuard guard(x.device());
  const at::Tensor flat = x.contiguous();  // x itself, or memory of its own
  const int64_t blocks = std::min<int64_t>((flat.numel() + 255) / 256, 132 * 64);
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, flat.scalar_type(), "fill_by", [&] {
    launch(draw_kernel<scalar_t, Draw>, {blocks, 256}, flat.mutable_data_ptr<scalar_t>(),
           flat.numel(), first, draw);
  });
  if (!flat.is_same(x)) x.copy_(flat);
}

void fill_normal(const at::Tensor& x, int64_t key, int64_t first, double mean, double std,
                 double low, double high) {
  fill_by(x, first, NormalDraw{static_cast<uint64_t>(key), mean, std, low, high});
}

void fill_uniform(const at::Tensor& x, int64_t key, int64_t first, double low, double high) {
  fill_by(x, first, UniformDraw{static_cast<uint64_t>(key), low, high - low});
}

TORCH_LIBRARY_IMPL(braid, CUDA, library) {
  library.impl("fill_normal", &fill_normal);
  library.impl("fill_uniform", &fill_uniform);
}

}  // namespace
}  // namespace braid::cuda
