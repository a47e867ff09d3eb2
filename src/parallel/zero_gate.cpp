// SPDX-License-Identifier: BSD-3-Clause
#include "parallel/zero_gate.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <memory>
#include <string>
#include <utility>

namespace braid::parallel {
namespace {

// Not a torch::autograd::Function: that would make its output a view which a block may not change
// in place.
class ZeroGate final : public torch::autograd::Node {
 public:
  explicit ZeroGate(std::function<void()> passing) : passing_(std::move(passing)) {}

  torch::autograd::variable_list apply(torch::autograd::variable_list&& grads) override {
    const at::NoGradGuard no_grad;
    passing_();
    return std::move(grads);
  }
  std::string name() const override { return "ZeroGate"; }

 private:
  std::function<void()> passing_;
};

}  // namespace

at::Tensor gated(const at::Tensor& x, std::function<void()> passing) {
  const std::shared_ptr<ZeroGate> gate(new ZeroGate(std::move(passing)),
                                       torch::autograd::deleteNode);
  gate->set_next_edges(torch::autograd::collect_next_edges(x));
  at::Tensor same = x.detach();  // its version counts with that of x
  torch::autograd::set_history(same, gate);
  return same;
}

}  // namespace braid::parallel
