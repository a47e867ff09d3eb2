// SPDX-License-Identifier: BSD-3-Clause
// Nodes of the backward pass whose gradient kernel gives their output once more, as it reads all
// that the output is made of anyway. Linear layers right behind such a node do not keep what they
// multiply: they leave the gradients of their weights to it.
//
//   x -> NormNode -> y -> LinearsNode            kept: x and its statistics, not y
//   backward: dy of LinearsNode's outputs -> its gradient of y -> NormNode: gradient of x and y ->
//   dy^T y, which NormNode hands to the weights
#pragma once
#include <memory>
#include <vector>

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/saved_variable.h>

#include "kernels/linear_node.h"

namespace braid::kernels {

class AgainNode : public torch::autograd::Node {
 public:
  // What layers hand over in their backward pass: the gradients of their outputs, [rows, out].
  struct Waiting {
    std::vector<LayerShape> shapes;
    size_t first_edge = 0;  // of their weights, in this node
    torch::autograd::variable_list grads;
  };

  // The node that made x and gives it once more; null: x has to be kept.
  static AgainNode* of(const at::Tensor& x);
  // Null: these layers have to keep it nevertheless.
  std::shared_ptr<Waiting> wait(const std::vector<LinearWeights>& layers);
  void release_variables() override;

 protected:
  // value: number of the output that is given once more.
  AgainNode(const torch::autograd::variable_list& kept, uint32_t value);
  torch::autograd::variable_list kept() const;
  bool awaited() const;
  // The gradients of all weights that wait, into this node's results.
  void give(const at::Tensor& value, torch::autograd::variable_list& result);

 private:
  std::vector<torch::autograd::SavedVariable> kept_;
  std::vector<std::shared_ptr<Waiting>> waiting_;
  uint32_t value_;
};

// Outputs without history become those of the node, whose gradients go to `inputs`.
void set_graph(const std::shared_ptr<AgainNode>& node, const torch::autograd::variable_list& inputs,
               torch::autograd::variable_list& outputs);

}  // namespace braid::kernels
