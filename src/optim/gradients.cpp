// SPDX-License-Identifier: BSD-3-Clause
// Norm and scale of all gradients at once.
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "braid/optim/optimizer.h"
#include "optim/gradients.h"

namespace braid::optim {

std::vector<std::vector<at::Tensor>> grads_by_kind(const std::vector<Param>& params) {
  std::map<std::pair<c10::ScalarType, std::string>, std::vector<at::Tensor>> kinds;
  for (const Param& param : params) {
    const at::Tensor& grad = param.tensor.grad();
    if (grad.defined()) kinds[{grad.scalar_type(), grad.device().str()}].push_back(grad.detach());
  }
  std::vector<std::vector<at::Tensor>> result;
  for (auto& [kind, grads] : kinds) result.push_back(std::move(grads));
  return result;
}

namespace {

// Squares of 16-bit gradients would overflow: their norms are taken in fp32; one fp64 gradient
// makes the sum fp64.
c10::ScalarType norm_dtype(const std::vector<Param>& params) {
  const bool fp64 = std::any_of(params.begin(), params.end(), [](const Param& param) {
    return param.tensor.grad().defined() && param.tensor.grad().scalar_type() == c10::kDouble;
  });
  return fp64 ? c10::kDouble : c10::kFloat;
}

at::Tensor norm_of(const std::vector<std::vector<at::Tensor>>& kinds, c10::ScalarType wide) {
  if (kinds.empty()) return at::zeros({}, at::TensorOptions(wide));
  std::vector<at::Tensor> norms;
  for (const auto& grads : kinds)
    for (const at::Tensor& norm : at::_foreach_norm(grads, 2, wide))
      norms.push_back(norm.to(kinds.front().front().device()));
  return at::linalg_vector_norm(at::stack(norms), 2);
}

// The norm of all pieces from those of the owners. A rank without gradients joins in: in fp64, on
// the device of its parameters, as the others.
at::Tensor norm_over(const comm::Group& owners, const at::Tensor& own,
                     const std::vector<Param>& params) {
  if (owners.size() == 1) return own;
  // A model smaller than its ranks leaves some of them without a piece; pieces may lie on the host.
  const bool gpu = owners.backend() != nullptr && owners.backend()->name() == "nccl";
  const bool here = !params.empty() && (!gpu || params.front().tensor.is_cuda());
  const c10::Device device =
      here ? params.front().tensor.device() : c10::Device(gpu ? c10::kCUDA : c10::kCPU);
  const at::Tensor squares = own.to(device, c10::kDouble).square();
  owners.all_reduce(squares).wait();
  return squares.sqrt().to(own.options());
}

}  // namespace

at::Tensor grad_norm(const std::vector<Param>& params, const comm::Group& owners) {
  const c10::NoGradGuard no_grad;
  std::vector<Param> counted;  // by this rank
  std::copy_if(params.begin(), params.end(), std::back_inserter(counted),
               [](const Param& param) { return !param.repeated; });
  return norm_over(owners, norm_of(grads_by_kind(counted), norm_dtype(params)), params);
}

// 1e-6 as in torch.nn.utils.clip_grad_norm_: no division by zero.
at::Tensor clip_factor(const at::Tensor& norm, double max_norm) {
  return norm.add(1e-6).reciprocal_().mul_(max_norm).clamp_max_(1);
}

at::Tensor clip_grad_norm(const std::vector<Param>& params, double max_norm,
                          const comm::Group& owners) {
  const c10::NoGradGuard no_grad;
  const at::Tensor total = grad_norm(params, owners);
  if (max_norm > 0) scale_grads(params, clip_factor(total, max_norm));
  return total;
}

void scale_grads(const std::vector<Param>& params, const at::Tensor& factor) {
  const c10::NoGradGuard no_grad;
  for (const auto& grads : grads_by_kind(params))
    at::_foreach_mul_(grads, factor.to(grads.front().options()));
}

}  // namespace braid::optim
