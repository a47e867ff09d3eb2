// SPDX-License-Identifier: BSD-3-Clause
// What the two kernels of kernels/norm.h share on the GPU: rows of any dtype in 16-byte pieces, and
// the threads of a row. A row lies in the registers of 16, 32, 64, 128 or 256 threads of a block,
// so that memory is read once; several rows share a block and wait for each other nowhere.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <type_traits>

#include "cuda/aligned.h"
#include "cuda/launch.cuh"
#include "cuda/ptx.cuh"

namespace braid::cuda {

constexpr int norm_block = 256;  // threads

// Rows of type T: `N` neighbours of a row are read or written at once, in pieces of 16 bytes.
template <class T>
struct Row {
  T* at = nullptr;

  explicit operator bool() const { return at != nullptr; }
  __device__ bool here() const { return at != nullptr; }

  template <int N, class W>
  __device__ void read(int64_t index, W (&to)[N]) const {
    constexpr int bytes = N * sizeof(T), piece = bytes < 16 ? bytes : 16;
    alignas(16) T raw[N];
#pragma unroll
    for (int i = 0; i < bytes / piece; ++i)
      copy<piece>(raw + i * piece / sizeof(T), at + index + i * piece / sizeof(T));
#pragma unroll
    for (int i = 0; i < N; ++i) to[i] = static_cast<W>(raw[i]);
  }

  template <int N, class W>
  __device__ void read_or_zeros(int64_t index, W (&to)[N]) const {
    if (here()) return read(index, to);
#pragma unroll
    for (int i = 0; i < N; ++i) to[i] = W(0);
  }

  template <int N, class W>
  __device__ void write(int64_t index, const W (&from)[N]) const {
    constexpr int bytes = N * sizeof(T), piece = bytes < 16 ? bytes : 16;
    alignas(16) T raw[N];
#pragma unroll
    for (int i = 0; i < N; ++i) raw[i] = static_cast<T>(from[i]);
#pragma unroll
    for (int i = 0; i < bytes / piece; ++i)
      copy<piece>(at + index + i * piece / sizeof(T), raw + i * piece / sizeof(T));
  }

  __device__ void ask(int64_t index) const { ask_for(at + index); }

  template <class W>
  __device__ W rounded(W value) const {
    return static_cast<W>(static_cast<T>(value));
  }

 private:
  template <int Bytes>
  __device__ static void copy(void* to, const void* from) {
    if constexpr (Bytes == 16)
      *static_cast<uint4*>(to) = *static_cast<const uint4*>(from);
    else if constexpr (Bytes == 8)
      *static_cast<uint2*>(to) = *static_cast<const uint2*>(from);
    else if constexpr (Bytes == 4)
      *static_cast<uint32_t*>(to) = *static_cast<const uint32_t*>(from);
    else
      *static_cast<T*>(to) = *static_cast<const T*>(from);
  }
};

// Rows whose dtype is known at run time: any mixture, any width, any alignment; one at a time.
struct AnyType {};
template <>
struct Row<AnyType> {
  void* at = nullptr;
  c10::ScalarType dtype = c10::ScalarType::Float;

  explicit operator bool() const { return at != nullptr; }
  __device__ bool here() const { return at != nullptr; }

  template <class Work>
  __device__ auto with(const Work& work) const {
    switch (dtype) {
      case c10::ScalarType::Double:
        return work(static_cast<double*>(at));
      case c10::ScalarType::BFloat16:
        return work(static_cast<c10::BFloat16*>(at));
      case c10::ScalarType::Half:
        return work(static_cast<c10::Half*>(at));
      default:
        return work(static_cast<float*>(at));
    }
  }
  template <int N, class W>
  __device__ void read(int64_t index, W (&to)[N]) const {
#pragma unroll
    for (int i = 0; i < N; ++i)
      to[i] = with([=](auto* values) { return static_cast<W>(values[index + i]); });
  }
  template <int N, class W>
  __device__ void read_or_zeros(int64_t index, W (&to)[N]) const {
    if (here()) return read(index, to);
#pragma unroll
    for (int i = 0; i < N; ++i) to[i] = W(0);
  }
  template <int N, class W>
  __device__ void write(int64_t index, const W (&from)[N]) const {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const W value = from[i];
      with([=](auto* values) {
        using T = std::remove_pointer_t<decltype(values)>;
        values[index + i] = static_cast<T>(value);
      });
    }
  }
  __device__ void ask(int64_t) const {}
  template <class W>
  __device__ W rounded(W value) const {
    return with([=](auto* values) {
      using T = std::remove_pointer_t<decltype(values)>;
      return static_cast<W>(static_cast<T>(value));
    });
  }
};

template <class T>
Row<T> row_of(const at::Tensor& x) {
  if (!x.defined()) return {};
  if constexpr (std::is_same_v<T, AnyType>)
    return {const_cast<void*>(x.const_data_ptr()), x.scalar_type()};
  else
    return {const_cast<T*>(static_cast<const T*>(x.const_data_ptr()))};
}

// Behind the numbers of a row, from column `first` on.
template <class T>
__device__ void write_zeros(const Row<T>& rows, int64_t row, int first, int end, int step) {
  const float zero[1] = {0};
  for (int column = first; column < end; column += step) rows.write(row + column, zero);
}

// Which samples of a branch are kept, and what they are multiplied by.
template <class W>
struct Shares {
  const bool* keep = nullptr;  // null: all, as they are
  int rows = 1;                // of a sample
  W factor = W(1);
  __device__ W of(int64_t row) const {
    if (keep == nullptr) return W(1);
    return keep[static_cast<uint32_t>(row) / static_cast<uint32_t>(rows)] ? factor : W(0);
  }
};

template <class W>
Shares<W> shares_of(const at::Tensor& keep, double rate, int64_t rows) {
  if (!keep.defined()) return {};
  TORCH_CHECK(rows < (int64_t{1} << 31), rows, " rows are too many for a dropped branch");
  return {keep.const_data_ptr<bool>(), static_cast<int>(rows / keep.numel()),
          static_cast<W>(1 / (1 - rate))};
}

// Where a thread stands: `threads` of them have a row.
struct RowThreads {
  int threads;
  __device__ int group() const { return static_cast<int>(threadIdx.x) / threads; }
  __device__ int groups() const { return norm_block / threads; }
  __device__ int lane() const { return static_cast<int>(threadIdx.x) % threads; }
  // Of a warp with two rows the second may be none of them, but takes part in the sums.
  __device__ int behind() const { return threads < 32 ? group() % 2 : 0; }
};

// Sums over the threads of a row. `slots` [warps of the block][Count] must not be those of the call
// before: a slow warp may still read them.
template <int Count, class W>
__device__ void row_sums(W (&values)[Count], W* slots, RowThreads where) {
#pragma unroll
  for (int step = 8; step > 0; step /= 2)
#pragma unroll
    for (int i = 0; i < Count; ++i) values[i] += __shfl_xor_sync(0xffffffffu, values[i], step);
  if (where.threads == 16) return;
#pragma unroll
  for (int i = 0; i < Count; ++i) values[i] += __shfl_xor_sync(0xffffffffu, values[i], 16);
  if (where.threads == 32) return;
  const int warp = static_cast<int>(threadIdx.x) / 32, first = where.group() * where.threads / 32;
  if (threadIdx.x % 32 == 0)
#pragma unroll
    for (int i = 0; i < Count; ++i) slots[warp * Count + i] = values[i];
  wait_at(where.group() + 1, where.threads);
#pragma unroll
  for (int i = 0; i < Count; ++i) values[i] = W(0);
  for (int other = first; other < first + where.threads / 32; ++other)
#pragma unroll
    for (int i = 0; i < Count; ++i) values[i] += slots[other * Count + i];
}

// Which kernel has a row in registers: `items` pieces of `vec` numbers a thread.
struct RowPlan {
  int threads = 0;  // 0: too long for registers
  int items = 0;
};

inline RowPlan row_plan(int64_t width, int vec) {
  const int64_t pieces = (width + vec - 1) / vec;
  for (int threads = 16; threads <= norm_block; threads *= 2) {
    const int64_t items = (pieces + threads - 1) / threads;
    if (items <= 4 && items * vec <= 16) return {threads, static_cast<int>(items)};
  }
  const int64_t items = (pieces + norm_block - 1) / norm_block;
  if (items <= 8 && items * vec <= 32) return {norm_block, static_cast<int>(items)};
  return {};
}

inline bool absent_or(const at::Tensor& tensor, c10::ScalarType dtype) {
  return !tensor.defined() || tensor.scalar_type() == dtype;
}

// Whether rows of all these tensors can be read in 16-byte pieces, `vec` numbers at a time.
inline bool in_pieces(std::initializer_list<at::Tensor> tensors, int64_t width, int vec) {
  if (width % vec != 0) return false;
  for (const at::Tensor& x : tensors) {
    if (!x.defined()) continue;
    const int64_t piece = std::min<int64_t>(16, vec * static_cast<int64_t>(x.element_size()));
    if (!aligned(piece, {x.const_data_ptr()})) return false;
  }
  return true;
}

// Whether it ran.
template <class W, class X, class C, class P, int Vec, class Run>
bool ran_with(const Run& run) {
  if (!run.template fits<X, C, P>(Vec)) return false;
  run.template with<W, X, C, P, Vec>();
  return true;
}

// Calls run.with<W, X, C, P, vec>(): dtypes of sums, of the stream, of branch and result, of the
// weights. What is not listed runs number by number.
template <class Run>
void with_row_types(const Run& run) {
  using c10::BFloat16, c10::Half;
  const bool ran =
      ran_with<float, float, BFloat16, float, 4>(run) ||
      ran_with<float, BFloat16, BFloat16, BFloat16, 8>(run) ||
      ran_with<float, BFloat16, BFloat16, BFloat16, 4>(run) ||
      ran_with<float, BFloat16, BFloat16, float, 8>(run) ||
      ran_with<float, BFloat16, BFloat16, float, 4>(run) ||
      ran_with<float, float, BFloat16, BFloat16, 4>(run) ||
      ran_with<float, float, float, float, 4>(run) || ran_with<float, float, Half, float, 4>(run) ||
      ran_with<float, Half, Half, Half, 8>(run) || ran_with<float, Half, Half, Half, 4>(run) ||
      ran_with<float, Half, Half, float, 4>(run) ||
      ran_with<double, double, double, double, 2>(run);
  if (ran) return;
  if (run.sums == at::kDouble) return run.template with<double, AnyType, AnyType, AnyType, 1>();
  run.template with<float, AnyType, AnyType, AnyType, 1>();
}

// Calls run(std::integral_constant<int, items>) with the kernel that has room for that many.
template <int Vec, class Run>
void with_items(int items, const Run& run) {
  constexpr int few = 16 / Vec < 4 ? 16 / Vec : 4, many = 32 / Vec < 8 ? 32 / Vec : 8;
  if constexpr (Vec == 4)
    if (items <= 3)
      return items <= 2 ? run(std::integral_constant<int, 2>())
                        : run(std::integral_constant<int, 3>());
  if (items <= few) return run(std::integral_constant<int, few>());
  run(std::integral_constant<int, many>());
}

}  // namespace braid::cuda
