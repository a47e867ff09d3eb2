// SPDX-License-Identifier: BSD-3-Clause
// What the Meta kernels share. LibTorch registers a third of its Meta kernels in Python; a C++
// process has none of those, so braid brings its own (meta_*.cpp): sizes, strides and dtype of the
// results as the CPU kernel gives them, and in a dry run the scratch that the device would take.
//
//   at::Tensor like_relu(const at::Tensor& x) { return pointwise({x}, x.scalar_type()); }
//   if (dry_on(c10::kCPU)) scratch(at::get_num_threads() * width * 4, x);
//
// Scratch of CPU kernels that is not modelled, because it depends on the processor: what oneDNN
// reorders (convolution and its backward pass, bf16 matrix products), the packed blocks of bf16
// attention where the processor has AMX, and the columns of a convolution without oneDNN.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/SymIntArrayRef.h>

#include "kernels/dtype.h"

namespace braid::kernels {

using MaybeTensor = const std::optional<at::Tensor>&;

// Whether the operator now running pretends, in a dry run, to run on that device.
bool dry_on(c10::DeviceType device);

// Takes that many bytes and drops them. `Scratch` holds them as long as it lives, for kernels that
// need several buffers at the same time.
void scratch(int64_t bytes, const at::Tensor& like);
class Scratch {
 public:
  explicit Scratch(const at::Tensor& like) : options_(like.options().dtype(c10::kByte)) {}
  void take(int64_t bytes);

 private:
  at::TensorOptions options_;
  std::vector<at::Tensor> held_;
};

// What the CPU converts for one call of an elementwise operator: inputs of another dtype than the
// common one and, if it is given, a result of another dtype. Held as long as it lives.
class Casts {
 public:
  Casts(const at::Tensor& a, const at::Tensor& b, const at::Tensor& out = {});
  Casts(c10::ScalarType common, std::initializer_list<at::Tensor> tensors);

 private:
  Scratch held_;
};

at::Tensor fresh(at::IntArrayRef sizes, const at::Tensor& like);  // contiguous, uninitialised
at::Tensor fresh(at::IntArrayRef sizes, const at::Tensor& like, c10::ScalarType dtype);
at::Tensor fresh_contiguous(const at::Tensor& like);  // of the same sizes and dtype

// Result of an elementwise operator: broadcast sizes, and the strides that TensorIterator chooses.
at::Tensor pointwise(std::initializer_list<at::Tensor> inputs, c10::ScalarType dtype);

// What the reduction kernel of CUDA takes; nothing in a dry run on another device.
void take_cuda_reduction(const at::Tensor& result, const at::Tensor& self,
                         at::OptionalIntArrayRef dims, bool keep);

inline int64_t bytes_of(const at::Tensor& x) { return static_cast<int64_t>(x.nbytes()); }
std::vector<int64_t> ints(c10::SymIntArrayRef symbols);
int64_t rounded_up(int64_t value, int64_t multiple);

}  // namespace braid::kernels
