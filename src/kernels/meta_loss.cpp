// SPDX-License-Identifier: BSD-3-Clause
// Meta kernels of losses. Their backward passes write into a contiguous tensor of zeros.
#include <ATen/core/Reduction.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/mse_loss_meta_dispatch.h>
#include <ATen/ops/smooth_l1_loss_meta_dispatch.h>
#include <ATen/ops/sum.h>
#include <torch/library.h>

#include "kernels/meta.h"

namespace braid::kernels {
namespace {

at::Tensor meta_loss_backward(const at::Tensor&, const at::Tensor& self, const at::Tensor&,
                              int64_t) {
  return fresh_contiguous(self);
}

at::Tensor meta_loss_backward_scaled(const at::Tensor&, const at::Tensor& self, const at::Tensor&,
                                     int64_t, double) {
  return fresh_contiguous(self);
}

at::Tensor& meta_loss_backward_out(const at::Tensor&, const at::Tensor& self, const at::Tensor&,
                                   int64_t, double, at::Tensor& out) {
  at::native::resize_output(out, self.sizes());
  return out;
}

// Element by element, then reduced: both are alive together.
at::Tensor reduced_loss(const at::Tensor& each, int64_t reduction) {
  if (reduction == at::Reduction::None) return each;
  return reduction == at::Reduction::Mean ? at::mean(each) : at::sum(each);
}

void reduce_into(at::Tensor& result, const at::Tensor& self, const at::Tensor& target,
                 int64_t reduction) {
  if (reduction == at::Reduction::None) return;
  const at::Tensor each = pointwise({self, target}, result.scalar_type());
  if (reduction == at::Reduction::Mean) at::mean_out(result, each, at::IntArrayRef());
}

// LibTorch's Meta kernels of these two allocate the result (as large as the losses by element, and
// then seen as one number), but not the losses by element that are reduced into it.
at::Tensor meta_mse_loss(const at::Tensor& self, const at::Tensor& target, int64_t reduction) {
  at::Tensor result = at::meta::mse_loss(self, target, reduction);
  reduce_into(result, self, target, reduction);
  return result;
}

at::Tensor meta_smooth_l1_loss(const at::Tensor& self, const at::Tensor& target, int64_t reduction,
                               double beta) {
  at::Tensor result = at::meta::smooth_l1_loss(self, target, reduction, beta);
  reduce_into(result, self, target, reduction);
  return result;
}

at::Tensor meta_huber_loss(const at::Tensor& self, const at::Tensor&, int64_t reduction, double) {
  return reduced_loss(at::empty_like(self), reduction);
}

// The reduced loss stays in the memory of the losses by element.
at::Tensor meta_binary_cross_entropy(const at::Tensor& self, const at::Tensor&,
                                     const std::optional<at::Tensor>&, int64_t reduction) {
  at::Tensor each = at::empty_like(self);
  if (reduction == at::Reduction::None) return each;
  const at::Tensor reduced = reduced_loss(each, reduction);
  return each.resize_(reduced.sizes());
}

at::Tensor meta_binary_cross_entropy_backward(const at::Tensor&, const at::Tensor& self,
                                              const at::Tensor&, const std::optional<at::Tensor>&,
                                              int64_t reduction) {
  at::Tensor grad = at::empty_like(self);
  return reduction == at::Reduction::Mean ? grad.div_(1) : grad;
}

std::tuple<at::Tensor, at::Tensor> meta_nll_loss2d(const at::Tensor& self, const at::Tensor& target,
                                                   const std::optional<at::Tensor>&,
                                                   int64_t reduction, c10::SymInt) {
  const bool each = reduction == at::Reduction::None;
  at::Tensor loss = each ? fresh(target.sizes(), self) : fresh({}, self);
  return {loss, fresh({}, self)};
}

at::Tensor meta_nll_loss2d_backward(const at::Tensor&, const at::Tensor& self, const at::Tensor&,
                                    const std::optional<at::Tensor>&, int64_t, c10::SymInt,
                                    const at::Tensor&) {
  return at::empty_like(self);
}

TORCH_LIBRARY_IMPL(aten, Meta, library) {
  library.impl("mse_loss", &meta_mse_loss);
  library.impl("mse_loss_backward", &meta_loss_backward);
  library.impl("smooth_l1_loss", &meta_smooth_l1_loss);
  library.impl("smooth_l1_loss_backward.grad_input", &meta_loss_backward_out);
  library.impl("huber_loss", &meta_huber_loss);
  library.impl("huber_loss_backward", &meta_loss_backward_scaled);
  library.impl("binary_cross_entropy", &meta_binary_cross_entropy);
  library.impl("binary_cross_entropy_backward", &meta_binary_cross_entropy_backward);
  library.impl("nll_loss2d_forward", &meta_nll_loss2d);
  library.impl("nll_loss2d_backward", &meta_nll_loss2d_backward);
}

}  // namespace
}  // namespace braid::kernels
