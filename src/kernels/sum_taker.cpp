// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/sum_taker.h"

#include <utility>

#include "kernels/linear_gradients.h"

namespace braid::kernels {

SumTaker* SumTaker::behind(const torch::autograd::Edge& edge) {
  auto* node = dynamic_cast<SumTaker*>(edge.function.get());
  const bool takes = node != nullptr && node->shapes_.size() == 1 && node->shapes_[0].biased &&
                     node->task_should_compute_output(3);
  return takes ? node : nullptr;
}

void SumTaker::give_sum(const at::Tensor& grad, const at::Tensor& sum) {
  summed_ = c10::weak_intrusive_ptr<c10::TensorImpl>(grad.getIntrusivePtr());
  version_ = grad._version();
  sum_ = sum;
}

at::Tensor SumTaker::taken_sum(const torch::autograd::variable_list& grads) {
  at::Tensor sum = std::exchange(sum_, {});
  if (!sum.defined()) return {};
  const c10::intrusive_ptr<c10::TensorImpl> summed = summed_.lock();
  summed_.reset();
  const bool same = grads[0].defined() && grads[0].unsafeGetTensorImpl() == summed.get() &&
                    grads[0]._version() == version_;
  return same ? sum : at::Tensor();
}

void SumTaker::add_bias_gradients(const at::Tensor& taken,
                                  const torch::autograd::variable_list& rows,
                                  torch::autograd::variable_list& result) const {
  for (size_t i = 0; i < shapes_.size(); ++i)
    if (rows[i].defined() && shapes_[i].biased && task_should_compute_output(3 + 2 * i))
      result[3 + 2 * i] = taken.defined() ? taken : bias_gradient(rows[i], shapes_[i].bias);
}

ActivationBack activation_back_to(const torch::autograd::Edge& edge, const Activated& input,
                                  at::Tensor& grad) {
  const bool gelu = input.kind == Activation::gelu || input.kind == Activation::gelu_tanh;
  SumTaker* taker = gelu ? SumTaker::behind(edge) : nullptr;
  if (taker == nullptr) return activation_back(input, grad);
  ActivationBack back = activation_back(input, grad, taker->sum_dtype());
  taker->give_sum(grad, back.sum);
  return back;
}

}  // namespace braid::kernels
