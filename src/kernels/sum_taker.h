// SPDX-License-Identifier: BSD-3-Clause
// The gradient of a bias is the sum over all rows of the gradient of its layer's output. A node
// whose kernel writes that gradient sums it on the way and gives the sum to the layer, which takes
// it if it then gets this very gradient, and nothing was added to it.
//
//   x -> LinearsNode fc1 -> h -> LinearsNode fc2 of gelu(h)
//   backward: fc2 writes the gradient of h and its sum -> fc1: the gradient of its bias
#pragma once
#include <cstdint>
#include <utility>
#include <vector>

#include <torch/csrc/autograd/function.h>

#include "kernels/linear_node.h"

namespace braid::kernels {

// Next edges: x, up, then weight and bias of each layer.
class SumTaker : public torch::autograd::Node {
 public:
  // The node behind the edge if it has use for the sum of what goes there; else null.
  static SumTaker* behind(const torch::autograd::Edge& edge);

  c10::ScalarType sum_dtype() const { return shapes_[0].bias; }
  void give_sum(const at::Tensor& grad, const at::Tensor& sum);

 protected:
  explicit SumTaker(std::vector<LayerShape> shapes) : shapes_(std::move(shapes)) {}

  // The sum of the only gradient, if it was given; asked for once.
  at::Tensor taken_sum(const torch::autograd::variable_list& grads);
  // The gradients of biases that are wanted: `taken`, or the sums of the rows that are there.
  void add_bias_gradients(const at::Tensor& taken, const torch::autograd::variable_list& rows,
                          torch::autograd::variable_list& result) const;

  const std::vector<LayerShape> shapes_;

 private:
  // Weak: whoever adds gradients up does so in place if he alone holds them.
  c10::weak_intrusive_ptr<c10::TensorImpl> summed_{c10::intrusive_ptr<c10::TensorImpl>()};
  int64_t version_ = 0;
  at::Tensor sum_;
};

// As activation_back; the node behind the edge, to which `grad` goes, is given its sum.
ActivationBack activation_back_to(const torch::autograd::Edge& edge, const Activated& input,
                                  at::Tensor& grad);

}  // namespace braid::kernels
