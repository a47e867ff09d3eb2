// SPDX-License-Identifier: BSD-3-Clause
#include "cuda/products.h"

#include <ATen/ops/addmm_cuda_dispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm_cuda_dispatch.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

#include <atomic>
#include <functional>
#include <memory>

#include "cuda/product_choice.h"

namespace braid::cuda {
namespace {

std::atomic<bool> tuned = false;

using at::Scalar;
using at::Tensor;

bool is_product(const Tensor& left, const Tensor& right) {
  return left.dim() == 2 && right.dim() == 2 && left.size(1) == right.size(0) &&
         left.device() == right.device();
}

Tensor fresh_product(const Tensor& left, const Tensor& right, at::ScalarType dtype) {
  return at::empty({left.size(0), right.size(1)}, left.options().dtype(dtype));
}

bool is_out(const Tensor& out, const Tensor& left, const Tensor& right) {
  return out.dim() == 2 && out.size(0) == left.size(0) && out.size(1) == right.size(1) &&
         out.device() == left.device();
}

void compute_or(const Product& p, const std::function<void()>& by_torch) {
  const c10::cuda::CUDAGuard guard(p.left.device());
  if (is_product(p.left, p.right) && is_out(p.out, p.left, p.right) && fits(p))
    compute(p, by_torch);
  else
    by_torch();
}

Tensor& mm_into(const Tensor& left, const Tensor& right, Tensor& out) {
  compute_or({.left = left, .right = right, .out = out},
             [&] { at::cuda::mm_out(out, left, right); });
  return out;
}

Tensor mm_fresh(const Tensor& left, const Tensor& right) {
  if (!is_product(left, right)) return at::cuda::mm(left, right);  // which says what is wrong
  Tensor out = fresh_product(left, right, left.scalar_type());
  return mm_into(left, right, out);
}

Tensor& mm_wide_into(const Tensor& left, const Tensor& right, at::ScalarType dtype, Tensor& out) {
  if (out.scalar_type() != dtype) return at::cuda::mm_out(out, left, right, dtype);
  compute_or({.left = left, .right = right, .out = out},
             [&] { at::cuda::mm_out(out, left, right, dtype); });
  return out;
}

Tensor mm_wide(const Tensor& left, const Tensor& right, at::ScalarType dtype) {
  if (!is_product(left, right)) return at::cuda::mm(left, right, dtype);
  Tensor out = fresh_product(left, right, dtype);
  return mm_wide_into(left, right, dtype, out);
}

Tensor& addmm_into(const Tensor& self, const Tensor& left, const Tensor& right, const Scalar& beta,
                   const Scalar& alpha, Tensor& out) {
  const auto by_torch = [&] { at::cuda::addmm_outf(self, left, right, beta, alpha, out); };
  if (alpha.isComplex() || beta.isComplex())
    by_torch();
  else
    compute_or({.left = left,
                .right = right,
                .out = out,
                .added = self,
                .alpha = alpha.toDouble(),
                .beta = beta.toDouble()},
               by_torch);
  return out;
}

Tensor addmm_fresh(const Tensor& self, const Tensor& left, const Tensor& right, const Scalar& beta,
                   const Scalar& alpha) {
  if (!is_product(left, right)) return at::cuda::addmm(self, left, right, beta, alpha);
  Tensor out = fresh_product(left, right, left.scalar_type());
  return addmm_into(self, left, right, beta, alpha, out);
}

Tensor& addmm_in_place(Tensor& self, const Tensor& left, const Tensor& right, const Scalar& beta,
                       const Scalar& alpha) {
  if (self.dim() != 2) return at::cuda::addmm_(self, left, right, beta, alpha);
  return addmm_into(self, left, right, beta, alpha, self);
}

// torch says that an operator gets a second kernel: it is meant.
struct Silent : c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

std::unique_ptr<torch::Library> registered() {
  Silent silent;
  const c10::WarningUtils::WarningHandlerGuard guard(&silent);
  auto library = std::make_unique<torch::Library>(torch::Library::IMPL, "aten",
                                                  c10::DispatchKey::CUDA, __FILE__, __LINE__);
  library->impl("mm", &mm_fresh);
  library->impl("mm.out", &mm_into);
  library->impl("mm.dtype", &mm_wide);
  library->impl("mm.dtype_out", &mm_wide_into);
  library->impl("addmm", &addmm_fresh);
  library->impl("addmm.out", &addmm_into);
  library->impl("addmm_", &addmm_in_place);
  return library;
}

}  // namespace

void tune_products(bool on) {
  static std::unique_ptr<torch::Library> kernels;  // taken back when it goes
  if (on && kernels == nullptr) kernels = registered();
  if (!on) kernels.reset();
  tuned = on;
}

bool products_are_tuned() { return tuned; }

}  // namespace braid::cuda
