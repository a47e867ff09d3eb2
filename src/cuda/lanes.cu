// SPDX-License-Identifier: BSD-3-Clause
// The operators of kernels/lanes.h on the GPU: [R, C, M] without zeros and [R', M, C'] with them.
// A thread has `vec` neighbours of C', which are all numbers or all zeros.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <torch/library.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "cuda/aligned.h"
#include "cuda/launch.cuh"

namespace braid::cuda {
namespace {

constexpr int lanes_threads = 256;

template <class T, int vec>
struct alignas(sizeof(T) * vec) Neighbours {
  T x[vec];
};

template <class Index>
struct LanePlaces {
  Index unit_rows, lanes_rows, unit, lanes;  // of rows and columns
  Index columns, places;                     // C and M
  Index padded;                              // C'

  // Where number (row, place, column) of the padded tensor is in the one without zeros; -1: none.
  __device__ int64_t source(Index row, Index place, Index column) const {
    const Index in_row = row % lanes_rows, in_column = column % lanes;
    if (in_row >= unit_rows || in_column >= unit) return -1;
    const int64_t r = row / lanes_rows * unit_rows + in_row, c = column / lanes * unit + in_column;
    return (r * columns + c) * places + place;
  }
};

template <class To, class From, int vec, class Index>
__global__ void pad_lanes_kernel(To* to, const From* from, Index groups, LanePlaces<Index> p) {
  const Index stride = static_cast<Index>(gridDim.x) * lanes_threads;
  const Index in_row = p.padded / vec;
  for (Index i = static_cast<Index>(blockIdx.x) * lanes_threads + threadIdx.x; i < groups;
       i += stride) {
    const Index column = i % in_row * vec, row = i / in_row;
    const int64_t source = p.source(row / p.places, row % p.places, column);
    Neighbours<To, vec> out = {};
    if (source >= 0 && (vec == 1 || p.places > 1)) {
#pragma unroll
      for (int j = 0; j < vec; ++j)
        out.x[j] =
            static_cast<To>(static_cast<float>(from[source + j * static_cast<int64_t>(p.places)]));
    } else if (source >= 0) {
      const auto in = *reinterpret_cast<const Neighbours<From, vec>*>(from + source);
#pragma unroll
      for (int j = 0; j < vec; ++j) out.x[j] = static_cast<To>(static_cast<float>(in.x[j]));
    }
    *reinterpret_cast<Neighbours<To, vec>*>(to + static_cast<int64_t>(i) * vec) = out;
  }
}

// By numbers of the padded tensor, too: those that are zeros are not read.
template <class To, class From, int vec, class Index>
__global__ void trim_lanes_kernel(To* to, const From* from, const To* onto, Index groups,
                                  LanePlaces<Index> p) {
  const Index stride = static_cast<Index>(gridDim.x) * lanes_threads;
  const Index in_row = p.padded / vec;
  for (Index i = static_cast<Index>(blockIdx.x) * lanes_threads + threadIdx.x; i < groups;
       i += stride) {
    const Index column = i % in_row * vec, row = i / in_row;
    const int64_t place = p.source(row / p.places, row % p.places, column);
    if (place < 0) continue;
    const auto in =
        *reinterpret_cast<const Neighbours<From, vec>*>(from + static_cast<int64_t>(i) * vec);
    if (vec > 1 && p.places == 1) {
      Neighbours<To, vec> out = {};
      if (onto != nullptr) out = *reinterpret_cast<const Neighbours<To, vec>*>(onto + place);
#pragma unroll
      for (int j = 0; j < vec; ++j)
        out.x[j] = static_cast<To>(static_cast<float>(out.x[j]) + static_cast<float>(in.x[j]));
      *reinterpret_cast<Neighbours<To, vec>*>(to + place) = out;
      continue;
    }
#pragma unroll
    for (int j = 0; j < vec; ++j) {
      const int64_t at = place + j * static_cast<int64_t>(p.places);
      const float before = onto == nullptr ? 0.0f : static_cast<float>(onto[at]);
      to[at] = static_cast<To>(before + static_cast<float>(in.x[j]));
    }
  }
}

struct LanesLaunch {
  at::IntArrayRef lanes;
  int64_t columns, places, padded, numbers;  // C, M, C' and all numbers of the padded tensor
  const void *from, *to, *onto;

  int64_t vec() const {
    constexpr int64_t widest = 4;  // bytes of a number
    for (const int64_t v : {4, 2})
      if (lanes[2] % v == 0 && lanes[3] % v == 0 && aligned(v * widest, {from, to, onto})) return v;
    return 1;
  }
  template <class Index>
  LanePlaces<Index> places_of() const {
    const auto as = [](int64_t x) { return static_cast<Index>(x); };
    return {as(lanes[0]), as(lanes[1]), as(lanes[2]), as(lanes[3]),
            as(columns),  as(places),   as(padded)};
  }
  // run.template operator()<vec, Index>(groups, blocks)
  template <class Run>
  void go(const Run& run) const {
    if (numbers < std::numeric_limits<int32_t>::max() / 2) return by_vec<uint32_t>(run);
    by_vec<int64_t>(run);
  }

 private:
  template <class Index, class Run>
  void by_vec(const Run& run) const {
    const int64_t v = vec(), groups = numbers / v;
    const int64_t blocks =
        std::min<int64_t>((groups + lanes_threads - 1) / lanes_threads, 132 * 32);
    if (v == 4) return run.template operator()<4, Index>(static_cast<Index>(groups), blocks);
    if (v == 2) return run.template operator()<2, Index>(static_cast<Index>(groups), blocks);
    run.template operator()<1, Index>(static_cast<Index>(groups), blocks);
  }
};

// body.template operator()<To, From>(); one of them has 16 bits, the other one too or is fp32.
template <class Body>
void with_lane_types(c10::ScalarType to, c10::ScalarType from, const Body& body) {
  const auto pick = [&]<class T>() {
    if (to == from) return body.template operator()<T, T>();
    if (to == at::kFloat) return body.template operator()<float, T>();
    body.template operator()<T, float>();
  };
  const auto narrow = to == at::kFloat ? from : to;
  const bool known = (narrow == at::kBFloat16 || narrow == at::kHalf) &&
                     (to == from || to == at::kFloat || from == at::kFloat);
  TORCH_CHECK(known, "no lanes from ", from, " to ", to);
  if (narrow == at::kBFloat16) return pick.template operator()<c10::BFloat16>();
  pick.template operator()<c10::Half>();
}

at::Tensor pad_lanes(const at::Tensor& x, at::IntArrayRef lanes, c10::ScalarType dtype) {
  const c10::cuda::CUDAGuard guard(x.device());
  const int64_t columns = x.size(1), places = x.size(2), padded = columns / lanes[2] * lanes[3];
  at::Tensor out =
      at::empty({x.size(0) / lanes[0] * lanes[1], places, padded}, x.options().dtype(dtype));
  if (out.numel() == 0) return out;
  const LanesLaunch ways = {
      lanes, columns, places, padded, out.numel(), x.const_data_ptr(), out.const_data_ptr(), {}};
  with_lane_types(dtype, x.scalar_type(), [&]<class To, class From>() {
    ways.go([&]<int vec, class Index>(Index groups, int64_t blocks) {
      launch(pad_lanes_kernel<To, From, vec, Index>, {blocks, lanes_threads},
             out.mutable_data_ptr<To>(), x.const_data_ptr<From>(), groups, ways.places_of<Index>());
    });
  });
  return out;
}

at::Tensor trim_lanes(const at::Tensor& x, at::IntArrayRef lanes, c10::ScalarType dtype,
                      const std::optional<at::Tensor>& onto) {
  const c10::cuda::CUDAGuard guard(x.device());
  const int64_t padded = x.size(2), places = x.size(1), columns = padded / lanes[3] * lanes[2];
  at::Tensor out =
      at::empty({x.size(0) / lanes[1] * lanes[0], columns, places}, x.options().dtype(dtype));
  if (out.numel() == 0) return out;
  const LanesLaunch ways = {lanes,
                            columns,
                            places,
                            padded,
                            x.numel(),
                            x.const_data_ptr(),
                            out.const_data_ptr(),
                            onto ? onto->const_data_ptr() : nullptr};
  with_lane_types(dtype, x.scalar_type(), [&]<class To, class From>() {
    ways.go([&]<int vec, class Index>(Index groups, int64_t blocks) {
      launch(trim_lanes_kernel<To, From, vec, Index>, {blocks, lanes_threads},
             out.mutable_data_ptr<To>(), x.const_data_ptr<From>(),
             onto ? onto->const_data_ptr<To>() : nullptr, groups, ways.places_of<Index>());
    });
  });
  return out;
}

TORCH_LIBRARY_IMPL(braid, CUDA, library) {
  library.impl("pad_lanes", &pad_lanes);
  library.impl("trim_lanes", &trim_lanes);
}

}  // namespace
}  // namespace braid::cuda
