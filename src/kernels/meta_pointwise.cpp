// SPDX-License-Identifier: BSD-3-Clause
// Meta kernels of elementwise operators.
#include <ATen/ExpandUtils.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/clamp_min.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/result_type.h>
#include <torch/library.h>

#include "kernels/meta.h"

namespace braid::kernels {
namespace {

at::Tensor& meta_in_place(at::Tensor& self) { return self; }

at::Tensor& meta_in_place_binary(at::Tensor& self, const at::Tensor&) { return self; }

at::Tensor& meta_sized_as(const at::Tensor& self, at::Tensor& out) {
  at::native::resize_output(out, self.sizes());
  return out;
}

at::Tensor& meta_sized_as_both(const at::Tensor& self, const at::Tensor& other, at::Tensor& out) {
  at::native::resize_output(out, at::infer_size(self.sizes(), other.sizes()));
  return out;
}

// relu is a clamp in every backend, and clamp_min has a Meta kernel.
at::Tensor meta_relu(const at::Tensor& self) { return at::clamp_min(self, 0); }

at::Tensor meta_abs(const at::Tensor& self) { return pointwise({self}, self.scalar_type()); }

at::Tensor meta_predicate(const at::Tensor& self) { return pointwise({self}, c10::kBool); }

at::Tensor meta_logical(const at::Tensor& self, const at::Tensor& other) {
  return pointwise({self, other}, c10::kBool);
}

at::Tensor meta_floor_divide(const at::Tensor& self, const at::Tensor& other) {
  const Casts casts(self, other);
  return pointwise({self, other}, at::result_type(self, other));
}

// A branch of another dtype is converted before the choice.
at::Tensor meta_where(const at::Tensor& condition, const at::Tensor& self,
                      const at::Tensor& other) {
  const auto dtype = at::result_type(self, other);
  return pointwise({condition, self.to(dtype), other.to(dtype)}, dtype);
}

at::Tensor& meta_where_out(const at::Tensor& condition, const at::Tensor& self,
                           const at::Tensor& other, at::Tensor& out) {
  const auto sizes = at::infer_size(self.sizes(), other.sizes());
  at::native::resize_output(out, at::infer_size(condition.sizes(), sizes));
  return out;
}

at::Tensor meta_nan_to_num(const at::Tensor& self, std::optional<double>, std::optional<double>,
                           std::optional<double>) {
  return pointwise({self}, self.scalar_type());
}

// The buffer of the CPU kernel holds exp(-|x|); CUDA computes it again.
std::tuple<at::Tensor, at::Tensor> meta_log_sigmoid(const at::Tensor& self) {
  if (dry_on(c10::kCUDA)) return {at::empty_like(self), fresh({0}, self)};
  at::Tensor result = fresh_contiguous(self);
  return {result, fresh_contiguous(self)};
}

at::Tensor meta_log_sigmoid_backward(const at::Tensor& grad, const at::Tensor& self,
                                     const at::Tensor& buffer) {
  if (dry_on(c10::kCUDA)) return pointwise({grad, self}, grad.scalar_type());
  return pointwise({self, buffer, grad}, grad.scalar_type());
}

at::Tensor meta_glu_backward(const at::Tensor&, const at::Tensor& self, int64_t) {
  return fresh(self.sizes(), self);
}

// One kernel on CUDA; composed of a product with the mask and one with the scale on the CPU.
std::tuple<at::Tensor, at::Tensor> meta_native_dropout(const at::Tensor& input, double,
                                                       std::optional<bool> train) {
  at::Tensor mask = at::empty_like(input, input.options().dtype(c10::kBool));
  if (input.numel() == 0) return {input, mask};
  if (!train.value_or(true) || dry_on(c10::kCUDA)) return {at::empty_like(input), mask};
  return {input.mul(mask).mul_(1.0), mask};
}

at::Tensor meta_native_dropout_backward(const at::Tensor& grad, const at::Tensor& mask, double) {
  if (dry_on(c10::kCUDA)) return at::empty_like(grad);
  const at::Tensor masked = grad.mul(mask);
  return masked.mul(1.0);
}

TORCH_LIBRARY_IMPL(aten, Meta, library) {
  library.impl("relu", &meta_relu);
  library.impl("relu_", &meta_in_place);
  library.impl("abs", &meta_abs);
  library.impl("abs_", &meta_in_place);
  library.impl("abs.out", &meta_sized_as);
  library.impl("isnan", &meta_predicate);
  library.impl("logical_not", &meta_predicate);
  library.impl("logical_not_", &meta_in_place);
  library.impl("logical_not.out", &meta_sized_as);
  for (const char* name : {"logical_and", "logical_or", "logical_xor"}) {
    const std::string base = name;
    library.impl(base.c_str(), &meta_logical);
    library.impl((base + "_").c_str(), &meta_in_place_binary);
    library.impl((base + ".out").c_str(), &meta_sized_as_both);
  }
  library.impl("floor_divide", &meta_floor_divide);
  library.impl("floor_divide_.Tensor", &meta_in_place_binary);
  library.impl("floor_divide.out", &meta_sized_as_both);
  library.impl("where.self", &meta_where);
  library.impl("where.self_out", &meta_where_out);
  library.impl("nan_to_num", &meta_nan_to_num);
  library.impl("log_sigmoid_forward", &meta_log_sigmoid);
  library.impl("log_sigmoid_backward", &meta_log_sigmoid_backward);
  library.impl("glu_backward", &meta_glu_backward);
  library.impl("native_dropout", &meta_native_dropout);
  library.impl("native_dropout_backward", &meta_native_dropout_backward);
}

}  // namespace
}  // namespace braid::kernels
