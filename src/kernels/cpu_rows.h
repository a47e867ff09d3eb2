// SPDX-License-Identifier: BSD-3-Clause
// Rows of tensors of any dtype in the one that is computed in. A row that has it is used where it
// lies; others are turned into it in the space of the caller, which is as wide as what is wanted.
//
//   const RowsIn<float> in(x);
//   const RowsOut<float> out(y);
//   const float* from = in.row(i, space);
//   float* to = out.row(i, other_space);
//   ...                                     // to[k] = f(from[k])
//   out.done(i, other_space);
#pragma once
#include <algorithm>
#include <vector>

#include <ATen/Dispatch.h>
#include <ATen/core/Tensor.h>

#include "kernels/wide.h"

namespace braid::kernels {

// Calls body with a zero of the dtype.
template <class Body>
void of_dtype(c10::ScalarType dtype, const Body& body) {
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, dtype, "rows",
                                  [&] { body(scalar_t(0)); });
}

// Contiguous; undefined: none. Rows may be longer than the space: what is behind is not read.
template <class W>
class RowsIn {
 public:
  explicit RowsIn(const at::Tensor& x) {
    if (!x.defined()) return;
    data_ = x.const_data_ptr();
    dtype_ = x.scalar_type();
    length_ = x.dim() > 0 ? x.size(-1) : 1;
  }
  explicit operator bool() const { return data_ != nullptr; }

  const W* row(int64_t row, std::vector<W>& space) const {
    return numbers(row * length_, static_cast<int64_t>(space.size()), space.data());
  }
  // The numbers from `first` on, of the whole tensor.
  const W* numbers(int64_t first, int64_t count, W* space) const {
    if (dtype_ == c10::CppTypeToScalarType<W>::value) return static_cast<const W*>(data_) + first;
    load(first, count, space);
    return space;
  }
  std::vector<W> values(int64_t row, int64_t width) const {  // zeros if there are none
    std::vector<W> all(static_cast<size_t>(width));
    if (*this) load(row * length_, width, all.data());
    return all;
  }

 private:
  void load(int64_t first, int64_t count, W* to) const {
    of_dtype(dtype_, [&](auto kind) {
      const auto* from = static_cast<const decltype(kind)*>(data_) + first;
      widest([&] { along(count, [&](int64_t i) { to[i] = static_cast<W>(from[i]); }); });
    });
  }

  const void* data_ = nullptr;
  c10::ScalarType dtype_ = c10::ScalarType::Undefined;
  int64_t length_ = 0;
};

// Likewise; behind the numbers of longer rows zeros are written.
template <class W>
class RowsOut {
 public:
  explicit RowsOut(const at::Tensor& x) {
    if (!x.defined()) return;
    data_ = x.mutable_data_ptr();
    dtype_ = x.scalar_type();
    length_ = x.dim() > 0 ? x.size(-1) : 1;
  }
  explicit operator bool() const { return data_ != nullptr; }

  W* row(int64_t row, std::vector<W>& space) const { return place(row * length_, space.data()); }
  void done(int64_t row, const std::vector<W>& space) const {
    const auto width = static_cast<int64_t>(space.size());
    done(row * length_, width, space.data());
    if (width < length_) clear(row * length_ + width, length_ - width);
  }
  void store(int64_t row, const std::vector<W>& space) const {  // nothing if there are none
    if (*this) write(row * length_, static_cast<int64_t>(space.size()), space.data());
  }

  // Numbers from `first` on, of the whole tensor.
  W* place(int64_t first, W* space) const {
    return is_wide() ? static_cast<W*>(data_) + first : space;
  }
  void done(int64_t first, int64_t count, const W* space) const {
    if (!is_wide()) write(first, count, space);
  }
  void write(int64_t first, int64_t count, const W* from) const {
    of_dtype(dtype_, [&](auto kind) {
      using T = decltype(kind);
      T* to = static_cast<T*>(data_) + first;
      widest([&] { along(count, [&](int64_t i) { to[i] = static_cast<T>(from[i]); }); });
    });
  }

 private:
  bool is_wide() const { return dtype_ == c10::CppTypeToScalarType<W>::value; }
  void clear(int64_t first, int64_t count) const {
    of_dtype(dtype_, [&](auto kind) {
      std::fill_n(static_cast<decltype(kind)*>(data_) + first, count, kind);
    });
  }

  void* data_ = nullptr;
  c10::ScalarType dtype_ = c10::ScalarType::Undefined;
  int64_t length_ = 0;
};

}  // namespace braid::kernels
