// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/again.h"

#include <algorithm>
#include <utility>

#include <torch/csrc/autograd/functions/utils.h>

#include "kernels/linear_gradients.h"

namespace braid::kernels {

using torch::autograd::variable_list;

namespace {

// The engine counts on a node to stand higher than all that its edges lead to, and fixes its height
// once others lead to it. Edges to weights come after that, so a node is lifted over all that may
// stand between a weight and its parameter (a transpose, zeros of lanes, a copy to other ranks).
constexpr uint64_t room_for_weights = 16;

class Rung final : public torch::autograd::Node {
 public:
  explicit Rung(const std::shared_ptr<Node>& below) {
    if (below != nullptr) add_next_edge({below, 0});
  }

 private:
  variable_list apply(variable_list&&) override { return {}; }
};

const std::shared_ptr<torch::autograd::Node>& top_rung() {
  static const std::shared_ptr<torch::autograd::Node> top = [] {
    std::shared_ptr<torch::autograd::Node> rung;
    while (rung == nullptr || rung->topological_nr() < room_for_weights)
      rung = std::make_shared<Rung>(rung);
    return rung;
  }();
  return top;
}

bool is_below(const torch::autograd::Edge& edge) {
  return edge.function == nullptr || edge.function->topological_nr() < room_for_weights;
}

}  // namespace

AgainNode::AgainNode(const variable_list& kept, uint32_t value) : value_(value) {
  for (const at::Tensor& each : kept) kept_.emplace_back(each, /*is_output=*/false);
  add_next_edge({top_rung(), 0});
  next_edges().clear();
}

AgainNode* AgainNode::of(const at::Tensor& x) {
  if (!x.defined()) return nullptr;
  auto* node = dynamic_cast<AgainNode*>(x.grad_fn().get());
  return node != nullptr && x.output_nr() == node->value_ ? node : nullptr;
}

std::shared_ptr<AgainNode::Waiting> AgainNode::wait(const std::vector<LinearWeights>& layers) {
  torch::autograd::edge_list edges;
  for (const LinearWeights& layer : layers)
    edges.push_back(torch::autograd::impl::gradient_edge(layer.weight));
  if (!std::all_of(edges.begin(), edges.end(), is_below)) return nullptr;
  waiting_.push_back(std::make_shared<Waiting>(Waiting{shapes_of(layers), num_outputs(), {}}));
  next_edges().insert(next_edges().end(), edges.begin(), edges.end());
  return waiting_.back();
}

void AgainNode::release_variables() {
  for (torch::autograd::SavedVariable& each : kept_) each.reset_data();
  for (const auto& some : waiting_) some->grads.clear();
}

variable_list AgainNode::kept() const {
  variable_list all;
  for (const torch::autograd::SavedVariable& each : kept_) all.push_back(each.unpack());
  return all;
}

bool AgainNode::awaited() const {
  return std::any_of(waiting_.begin(), waiting_.end(),
                     [](const auto& some) { return !some->grads.empty(); });
}

void AgainNode::give(const at::Tensor& value, variable_list& result) {
  for (const auto& some : waiting_) {
    const variable_list grads = std::exchange(some->grads, {});
    for (size_t i = 0; i < grads.size(); ++i) {
      const size_t edge = some->first_edge + i;
      if (!grads[i].defined() || !task_should_compute_output(edge)) continue;
      result[edge] =
          weight_gradient(grads[i], value, some->shapes[i].by_rows, some->shapes[i].weight);
    }
  }
}

void set_graph(const std::shared_ptr<AgainNode>& node, const variable_list& inputs,
               variable_list& outputs) {
  node->set_next_edges(torch::autograd::collect_next_edges(inputs));
  torch::autograd::set_history(outputs, node);
}

}  // namespace braid::kernels
