// SPDX-License-Identifier: BSD-3-Clause
// LibTorch's own Meta kernels of binary operators and means, with what the CPU takes in addition:
// it converts an argument of another dtype as a whole before it computes (a dropout mask of bytes
// becomes numbers), and takes means of 16-bit numbers in fp32. CUDA converts element by element.
#include <c10/util/string_view.h>  // of a declaration below that does not bring it

#include <ATen/ops/add_meta_dispatch.h>
#include <ATen/ops/div_meta_dispatch.h>
#include <ATen/ops/eq_meta_dispatch.h>
#include <ATen/ops/ge_meta_dispatch.h>
#include <ATen/ops/gt_meta_dispatch.h>
#include <ATen/ops/index_add_meta_dispatch.h>
#include <ATen/ops/le_meta_dispatch.h>
#include <ATen/ops/lt_meta_dispatch.h>
#include <ATen/ops/mean_meta_dispatch.h>
#include <ATen/ops/mul_meta_dispatch.h>
#include <ATen/ops/ne_meta_dispatch.h>
#include <ATen/ops/result_type.h>
#include <ATen/ops/sub_meta_dispatch.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/sum_meta_dispatch.h>
#include <torch/library.h>

#include "kernels/meta.h"

namespace braid::kernels {
namespace {

using BinaryMeta = at::Tensor (*)(const at::Tensor&, const at::Tensor&);
using BinaryMetaInPlace = at::Tensor& (*)(at::Tensor&, const at::Tensor&);
using BinaryMetaOut = at::Tensor& (*)(const at::Tensor&, const at::Tensor&, at::Tensor&);
using SumMeta = at::Tensor (*)(const at::Tensor&, const at::Tensor&, const at::Scalar&);
using SumMetaInPlace = at::Tensor& (*)(at::Tensor&, const at::Tensor&, const at::Scalar&);
using SumMetaOut = at::Tensor& (*)(const at::Tensor&, const at::Tensor&, const at::Scalar&,
                                   at::Tensor&);
using ScalarMeta = at::Tensor (*)(const at::Tensor&, const at::Scalar&);

template <BinaryMeta plain>
at::Tensor meta_binary(const at::Tensor& self, const at::Tensor& other) {
  const Casts casts(self, other);
  return plain(self, other);
}

template <BinaryMetaInPlace plain>
at::Tensor& meta_binary_in_place(at::Tensor& self, const at::Tensor& other) {
  const Casts casts(self, other, self);
  return plain(self, other);
}

template <BinaryMetaOut plain>
at::Tensor& meta_binary_out(const at::Tensor& self, const at::Tensor& other, at::Tensor& out) {
  const Casts casts(self, other, out);
  return plain(self, other, out);
}

template <SumMeta plain>
at::Tensor meta_added(const at::Tensor& self, const at::Tensor& other, const at::Scalar& alpha) {
  const Casts casts(self, other);
  return plain(self, other, alpha);
}

template <SumMetaInPlace plain>
at::Tensor& meta_added_in_place(at::Tensor& self, const at::Tensor& other,
                                const at::Scalar& alpha) {
  const Casts casts(self, other, self);
  return plain(self, other, alpha);
}

template <SumMetaOut plain>
at::Tensor& meta_added_out(const at::Tensor& self, const at::Tensor& other, const at::Scalar& alpha,
                           at::Tensor& out) {
  const Casts casts(self, other, out);
  return plain(self, other, alpha, out);
}

// Integers are divided as floating-point numbers.
c10::ScalarType quotient_dtype(const at::Tensor& self, const at::Tensor& other) {
  const c10::ScalarType common = at::result_type(self, other);
  if (!c10::isIntegralType(common, /*includeBool=*/true)) return common;
  return c10::typeMetaToScalarType(c10::get_default_dtype());
}

at::Tensor meta_div(const at::Tensor& self, const at::Tensor& other) {
  const Casts casts(quotient_dtype(self, other), {self, other});
  return at::meta::div(self, other);
}

at::Tensor& meta_div_in_place(at::Tensor& self, const at::Tensor& other) {
  const Casts casts(quotient_dtype(self, other), {self, other, self});
  return at::meta::div_(self, other);
}

at::Tensor& meta_div_out(const at::Tensor& self, const at::Tensor& other, at::Tensor& out) {
  const Casts casts(quotient_dtype(self, other), {self, other, out});
  return at::meta::div_outf(self, other, out);
}

// The number becomes a tensor of the other's dtype.
template <ScalarMeta plain>
at::Tensor meta_compare(const at::Tensor& self, const at::Scalar& other) {
  Scratch number(self);
  const auto common = at::result_type(self, other);
  if (dry_on(c10::kCPU) && other.type() != common)
    number.take(static_cast<int64_t>(c10::elementSize(common)));
  return plain(self, other);
}

// Flags are counted as int64.
at::Tensor meta_sum(const at::Tensor& self, at::OptionalIntArrayRef dims, bool keep,
                    std::optional<c10::ScalarType> dtype) {
  at::Tensor result = at::meta::sum(self, dims, keep, dtype);
  const Casts casts(result.scalar_type(), {self});
  take_cuda_reduction(result, self, dims, keep);
  return result;
}

void take_mean(at::Tensor result, const at::Tensor& self, at::OptionalIntArrayRef dims, bool keep) {
  take_cuda_reduction(result, self, dims, keep);
  if (!dry_on(c10::kCPU)) return;
  if (is_half(self)) result = at::sum(self.to(c10::kFloat), dims, keep);
  result.div_(1);
}

at::Tensor meta_mean(const at::Tensor& self, at::OptionalIntArrayRef dims, bool keep,
                     std::optional<c10::ScalarType> dtype) {
  at::Tensor result = at::meta::mean(self, dims, keep, dtype);
  take_mean(result, self, dims, keep);
  return result;
}

at::Tensor& meta_mean_out(const at::Tensor& self, at::OptionalIntArrayRef dims, bool keep,
                          std::optional<c10::ScalarType> dtype, at::Tensor& out) {
  at::meta::mean_outf(self, dims, keep, dtype, out);
  take_mean(out, self, dims, keep);
  return out;
}

at::Tensor& meta_index_add_in_place(at::Tensor& self, int64_t dim, const at::Tensor& index,
                                    const at::Tensor& source, const at::Scalar& alpha) {
  if (dry_on(c10::kCPU) && is_half(self)) scratch(4 * self.numel(), self);
  return at::meta::index_add_(self, dim, index, source, alpha);
}

TORCH_LIBRARY_IMPL(aten, Meta, library) {
  library.impl("add.Tensor", &meta_added<at::meta::add>);
  library.impl("add_.Tensor", &meta_added_in_place<at::meta::add_>);
  library.impl("add.out", &meta_added_out<at::meta::add_outf>);
  library.impl("sub.Tensor", &meta_added<at::meta::sub>);
  library.impl("sub_.Tensor", &meta_added_in_place<at::meta::sub_>);
  library.impl("sub.out", &meta_added_out<at::meta::sub_outf>);
  library.impl("mul.Tensor", &meta_binary<at::meta::mul>);
  library.impl("mul_.Tensor", &meta_binary_in_place<at::meta::mul_>);
  library.impl("mul.out", &meta_binary_out<at::meta::mul_outf>);
  library.impl("div.Tensor", &meta_div);
  library.impl("div_.Tensor", &meta_div_in_place);
  library.impl("div.out", &meta_div_out);
  library.impl("eq.Scalar", &meta_compare<at::meta::eq>);
  library.impl("ne.Scalar", &meta_compare<at::meta::ne>);
  library.impl("lt.Scalar", &meta_compare<at::meta::lt>);
  library.impl("le.Scalar", &meta_compare<at::meta::le>);
  library.impl("gt.Scalar", &meta_compare<at::meta::gt>);
  library.impl("ge.Scalar", &meta_compare<at::meta::ge>);
  library.impl("sum.dim_IntList", &meta_sum);
  library.impl("mean.dim", &meta_mean);
  library.impl("mean.out", &meta_mean_out);
  library.impl("index_add_", &meta_index_add_in_place);
}

}  // namespace

}  // namespace braid::kernels
