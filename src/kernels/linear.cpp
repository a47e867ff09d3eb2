// SPDX-License-Identifier: BSD-3-Clause
#include "braid/kernels/linear.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <algorithm>
#include <string>
#include <utility>

#include "braid/core/param.h"
#include "kernels/again.h"
#include "kernels/linear_gradients.h"
#include "kernels/linear_node.h"
#include "kernels/rows.h"
#include "kernels/side_by_side.h"
#include "kernels/sum_taker.h"

namespace braid::kernels {
namespace {

using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

// The weights of all layers as the products take them.
struct CastWeights {
  std::vector<at::Tensor> weights, biases;  // of each product
  bool joined = false;                      // one product for all layers
};

at::Tensor joined_cast(const std::vector<at::Tensor>& parts, c10::ScalarType dtype) {
  std::vector<int64_t> sizes = parts[0].sizes().vec();
  sizes[0] = 0;
  for (const at::Tensor& part : parts) sizes[0] += part.size(0);
  const at::Tensor whole = at::empty(sizes, parts[0].options().dtype(dtype).requires_grad(false));
  int64_t first = 0;
  for (const at::Tensor& part : parts) {
    whole.narrow(0, first, part.size(0)).copy_(part);
    first += part.size(0);
  }
  return whole;
}

// Casts write into one buffer, so joining costs nothing; weights that are used as they lie would
// have to be copied.
bool can_join(const std::vector<LinearWeights>& layers, c10::ScalarType dtype) {
  if (layers.size() == 1) return false;
  return std::all_of(layers.begin(), layers.end(), [&](const LinearWeights& layer) {
    return layer.weight.scalar_type() != dtype && lies_by_rows(layer.weight) &&
           layer.bias.defined() == layers[0].bias.defined();
  });
}

// Not detached where nothing is cast: who gives a parameter's memory back means the copy in the
// graph, too.
CastWeights cast_weights(const std::vector<LinearWeights>& layers, c10::ScalarType dtype) {
  const at::NoGradGuard no_grad;
  CastWeights all;
  std::vector<at::Tensor> weights, biases;
  for (const LinearWeights& layer : layers) {
    weights.push_back(layer.weight);
    biases.push_back(layer.bias);
  }
  all.joined = can_join(layers, dtype);
  if (all.joined) {
    all.weights = {joined_cast(weights, dtype)};
    all.biases = {biases[0].defined() ? joined_cast(biases, dtype) : at::Tensor()};
    return all;
  }
  for (size_t i = 0; i < layers.size(); ++i) {
    all.weights.push_back(weights[i].to(dtype));
    all.biases.push_back(biases[i].defined() ? biases[i].to(dtype) : at::Tensor());
  }
  return all;
}

at::Tensor linear_product(const at::Tensor& rows, const at::Tensor& weight, const at::Tensor& bias,
                          at::Tensor* gelu) {
  if (gelu == nullptr)
    return bias.defined() ? at::linear(rows, weight, bias) : at::linear(rows, weight);
  auto [h, value] = linear_gelu(rows, weight, bias);
  *gelu = std::move(value);
  return h;
}

// Plain tensors without history, each a view of its product. gelu: takes gelu_tanh of the one
// layer.
variable_list products(const at::Tensor& value, const CastWeights& used,
                       const std::vector<LayerShape>& shapes, at::Tensor* gelu) {
  variable_list outputs;
  const at::Tensor rows = as_rows(value);
  for (size_t i = 0; i < used.weights.size(); ++i) {
    const at::Tensor y = linear_product(rows, used.weights[i], used.biases[i], gelu);
    outputs.push_back(y.view(with_width(value, y.size(1))));
  }
  if (used.joined) {
    const at::Tensor whole = std::move(outputs[0]);
    outputs = parts_of(whole, shapes);
  }
  for (at::Tensor& output : outputs) output = output.variable_data();
  return outputs;
}

class LinearsNode final : public SumTaker {
 public:
  // again: the node that gives x once more, so that x is not kept.
  LinearsNode(const Activated& input, const CastWeights& used, std::vector<LayerShape> shapes,
              std::shared_ptr<AgainNode::Waiting> again)
      : SumTaker(std::move(shapes)),
        kind_(input.kind),
        joined_(used.joined),
        sizes_(input.x.sizes().vec()),
        again_(std::move(again)) {
    // Now, and not after the products: computed again, a block ends with what is kept last.
    if (again_ == nullptr) x_ = SavedVariable(input.x, /*is_output=*/false);
    if (kind_ == Activation::swiglu) up_ = SavedVariable(input.up, /*is_output=*/false);
    for (const at::Tensor& weight : used.weights) weights_.emplace_back(weight, false);
  }

  std::string name() const override { return "braid::linears"; }

  void release_variables() override {
    x_.reset_data();
    up_.reset_data();
    for (SavedVariable& weight : weights_) weight.reset_data();
  }

  variable_list apply(variable_list&& grads) override {
    const at::NoGradGuard no_grad;
    variable_list result(2 + 2 * shapes_.size());
    const at::Tensor sum = taken_sum(grads);
    variable_list rows;
    for (const at::Tensor& grad : grads) rows.push_back(grad.defined() ? as_rows(grad) : grad);
    grads.clear();
    add_bias_gradients(sum, rows, result);
    if (again_ != nullptr) {
      if (!task_should_compute_output(0)) return result;
      result[0] = gradient_of_value(rows, {});
      again_->grads = std::move(rows);
      return result;
    }
    const at::Tensor value = through_activation(rows, result);
    for (size_t i = 0; i < shapes_.size(); ++i)
      if (rows[i].defined() && task_should_compute_output(2 + 2 * i))
        result[2 + 2 * i] = weight_gradient(rows[i], value, shapes_[i].by_rows, shapes_[i].weight);
    return result;
  }

 private:
  // The gradient of what was multiplied goes on to what it was computed of; the value once more.
  at::Tensor through_activation(const variable_list& rows, variable_list& result) {
    const Activated input(kind_, x_.unpack(),
                          kind_ == Activation::swiglu ? up_.unpack() : at::Tensor());
    if (!task_should_compute_output(0) && !task_should_compute_output(1))
      return activation_value(input);
    at::Tensor back = gradient_of_value(rows, input.x);
    if (!back.defined()) return {};  // no output was used
    const ActivationBack behind = activation_back_to(next_edge(0), input, back);
    result[0] = kind_ == Activation::swiglu ? behind.d_gate : back;
    if (kind_ == Activation::swiglu) result[1] = back;
    return behind.value;
  }

  at::Tensor gradient_of_value(const variable_list& rows, const at::Tensor& x) {
    at::Tensor sum;
    variable_list weights;  // each asked for once: what is computed again is given once
    for (const SavedVariable& weight : weights_) weights.push_back(weight.unpack());
    const auto gradient = [&](const at::Tensor& grad, const at::Tensor& weight) {
      return x.defined() ? input_gradient(grad, x, weight) : grad.mm(weight).view(sizes_);
    };
    const at::Tensor whole = joined_ ? side_by_side(rows) : at::Tensor();
    if (whole.defined()) return gradient(whole, weights[0]);
    int64_t first = 0;
    for (size_t i = 0; i < shapes_.size(); ++i) {
      const at::Tensor weight = joined_ ? weights[0].narrow(0, first, shapes_[i].out) : weights[i];
      first += shapes_[i].out;
      if (!rows[i].defined()) continue;
      if (sum.defined())
        as_rows(sum).addmm_(rows[i], weight);
      else
        sum = gradient(rows[i], weight);
    }
    return sum;
  }

  Activation kind_;
  bool joined_;
  std::vector<int64_t> sizes_;  // of x
  std::shared_ptr<AgainNode::Waiting> again_;
  SavedVariable x_, up_;
  std::vector<SavedVariable> weights_;
};

// x, up, then weight and bias of each layer.
variable_list inputs_of(const Activated& input, const std::vector<LinearWeights>& layers) {
  variable_list all = {input.x, input.up};
  for (const LinearWeights& layer : layers) all.insert(all.end(), {layer.weight, layer.bias});
  return all;
}

std::vector<at::Tensor> late_linears(const Activated& input,
                                     const std::vector<LinearWeights>& layers,
                                     const std::shared_ptr<Deferred>& later) {
  const at::Tensor x = activated(input);
  std::vector<at::Tensor> outputs;
  for (const LinearWeights& layer : layers)
    outputs.push_back(linear(x, layer.weight, layer.bias, later));
  return outputs;
}

// Edges to the weights go out from another node.
std::vector<LinearWeights> biases_of(std::vector<LinearWeights> layers) {
  for (LinearWeights& layer : layers) layer.weight.reset();
  return layers;
}

// What rows are made of without a copy.
Activated in_one_piece(Activated input) {
  const auto piece = [](const at::Tensor& x) {
    return x.defined() && x.dim() > 2 ? x.contiguous() : x;
  };
  if (input.kind != Activation::none) return input;  // the activation will be
  return piece(input.x);
}

// gelu: null, or takes gelu_tanh of what one layer gives; as it was where that comes later.
std::vector<at::Tensor> linears_with(Activated given, const std::vector<LinearWeights>& layers,
                                     const ProductOptions& options, at::Tensor* gelu) {
  const bool graph = torch::autograd::compute_requires_grad(inputs_of(given, layers));
  const auto& later = options.later;
  if (graph && later != nullptr && later->active()) return late_linears(given, layers, later);
  const Activated input = in_one_piece(std::move(given));
  if (options.fp8 != Fp8::off) return fp8_linears(input, layers, options.fp8, graph);
  const CastWeights used = cast_weights(layers, input.x.scalar_type());
  const std::vector<LayerShape> shapes = shapes_of(layers);
  if (!graph) return products(activation_value(input), used, shapes, gelu);
  std::shared_ptr<AgainNode::Waiting> again;
  if (AgainNode* maker = input.kind == Activation::none ? AgainNode::of(input.x) : nullptr)
    again = maker->wait(layers);
  const std::shared_ptr<LinearsNode> node(new LinearsNode(input, used, shapes, again),
                                          torch::autograd::deleteNode);
  node->set_next_edges(edges_to(input, again != nullptr ? biases_of(layers) : layers));
  variable_list outputs;
  {
    const at::NoGradGuard no_grad;
    outputs = products(activation_value(input), used, shapes, gelu);
  }
  for (const at::Tensor& output : outputs) torch::autograd::set_history(output, node);
  return outputs;
}

}  // namespace

std::vector<LayerShape> shapes_of(const std::vector<LinearWeights>& layers) {
  std::vector<LayerShape> shapes;
  for (const LinearWeights& layer : layers) {
    const at::Tensor &w = layer.weight, &b = layer.bias;
    shapes.push_back({.out = w.size(0),
                      .weight = gradient_dtype(w),
                      .bias = b.defined() ? gradient_dtype(b) : c10::kFloat,
                      .by_rows = lies_by_rows(w),
                      .biased = b.defined()});
  }
  return shapes;
}

torch::autograd::edge_list edges_to(const Activated& input,
                                    const std::vector<LinearWeights>& layers) {
  return torch::autograd::collect_next_edges(inputs_of(input, layers));
}

std::vector<int64_t> with_width(const at::Tensor& x, int64_t width) {
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.back() = width;
  return sizes;
}

std::vector<at::Tensor> parts_of(const at::Tensor& whole, const std::vector<LayerShape>& shapes) {
  std::vector<at::Tensor> parts;
  int64_t first = 0;
  for (const LayerShape& shape : shapes) {
    parts.push_back(whole.narrow(-1, first, shape.out));
    first += shape.out;
  }
  return parts;
}

std::vector<at::Tensor> linears(Activated input, const std::vector<LinearWeights>& layers,
                                const ProductOptions& options) {
  return linears_with(std::move(input), layers, options, nullptr);
}

Activated linear_to(const at::Tensor& x, const LinearWeights& layer, Activation then,
                    const ProductOptions& options) {
  const bool beside = then == Activation::gelu_tanh && x.element_size() == 2 &&
                      layer.bias.defined() && options.fp8 == Fp8::off;
  at::Tensor value;
  Activated all(then, linears_with(x, {layer}, options, beside ? &value : nullptr)[0]);
  if (value.defined()) all.value = value.view(all.x.sizes());
  return all;
}

}  // namespace braid::kernels
