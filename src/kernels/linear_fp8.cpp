// SPDX-License-Identifier: BSD-3-Clause
// Linear layers whose products are of 8-bit floats: e4m3 for inputs and weights, e5m2 for gradients
// under one scale a tensor. With scales of rows the gradient of a weight is a product in bf16, as
// its sum runs over tokens, of which each has its own scale. Outputs are summed fast: of 16384
// terms that loses 0.3 %, where rounding to e4m3 loses 3.7 %.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <algorithm>
#include <string>
#include <utility>

#include "braid/core/error.h"
#include "braid/kernels/fp8.h"
#include "kernels/linear_gradients.h"
#include "kernels/linear_node.h"
#include "kernels/rows.h"
#include "kernels/side_by_side.h"
#include "kernels/sum_taker.h"

namespace braid::kernels {
namespace {

using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

constexpr int64_t fp8_step = 16;  // all sizes of a product are multiples of it

at::Tensor code_rows(const at::Tensor& x) {
  const at::Tensor rows = as_rows(x);
  return rows.stride(1) == 1 ? rows : rows.contiguous();
}

// [all outputs, in], or transposed. Weights that lie transposed are coded as they lie.
at::Tensor weight_codes(const variable_list& weights, const at::Tensor& given, bool turned,
                        at::Tensor& scale) {
  const bool by_rows = std::all_of(weights.begin(), weights.end(), lies_by_rows);
  std::vector<at::Tensor> parts;
  for (const at::Tensor& weight : weights)
    parts.push_back(by_rows ? weight.detach() : weight.detach().t().contiguous());
  const bool plain = by_rows != turned;
  const Coded codes =
      coded(parts, {.dim = by_rows ? 0 : 1, .plain = plain, .turned = !plain, .scale = given});
  scale = codes.scale;
  return plain ? codes.plain : codes.turned;
}

// [in, all outputs] in bf16.
at::Tensor turned_weights(const variable_list& weights) {
  if (weights.size() == 1 && weights[0].scalar_type() == c10::kBFloat16)
    return weights[0].detach().t().contiguous();
  int64_t all = 0, first = 0;
  for (const at::Tensor& weight : weights) all += weight.size(0);
  const at::Tensor whole = at::empty(
      {weights[0].size(1), all}, weights[0].options().dtype(c10::kBFloat16).requires_grad(false));
  for (const at::Tensor& weight : weights) {
    whole.narrow(1, first, weight.size(0)).copy_(weight.t());
    first += weight.size(0);
  }
  return whole;
}

// Zeros for layers that have none; undefined if no layer has one.
at::Tensor joined_bias(const std::vector<LinearWeights>& layers) {
  int64_t all = 0, first = 0;
  bool biased = false;
  for (const LinearWeights& layer : layers) {
    all += layer.weight.size(0);
    biased = biased || layer.bias.defined();
  }
  if (!biased) return {};
  const at::Tensor whole =
      at::empty({all}, layers[0].weight.options().dtype(c10::kBFloat16).requires_grad(false));
  for (const LinearWeights& layer : layers) {
    const at::Tensor part = whole.narrow(0, first, layer.weight.size(0));
    if (layer.bias.defined())
      part.copy_(layer.bias);
    else
      part.zero_();
    first += part.numel();
  }
  return whole;
}

void check_rows(int64_t rows) {
  if (rows % fp8_step == 0) return;
  throw ConfigError({.what = fmt::format("{} tokens of a micro-batch in products of fp8", rows),
                     .why = "the gradient of a weight sums over them, in steps of 16",
                     .fix =
                         "choose train.micro_batch so that samples x tokens is a multiple of 16, "
                         "or set train.fp8=row"});
}

class Fp8Node : public SumTaker {
 public:
  Fp8Node(const Activated& input, const std::vector<LinearWeights>& layers)
      : SumTaker(shapes_of(layers)), kind_(input.kind), sizes_(input.x.sizes().vec()) {
    if (kind_ != Activation::none) keep(x_, input.x);
    if (kind_ == Activation::swiglu) keep(up_, input.up);
    for (const LinearWeights& layer : layers) keep(weights_.emplace_back(), layer.weight);
  }

  void release_variables() override {
    for (SavedVariable* each : {&x_, &up_, &codes_, &scale_, &weight_scale_}) each->reset_data();
    for (SavedVariable& weight : weights_) weight.reset_data();
  }

  variable_list apply(variable_list&& grads) override {
    const at::NoGradGuard no_grad;
    variable_list result(2 + 2 * shapes_.size());
    const at::Tensor sum = taken_sum(grads);
    const variable_list rows = grads_as_rows(std::move(grads));
    const Activated input(kind_, kind_ == Activation::none ? at::Tensor() : x_.unpack(),
                          kind_ == Activation::swiglu ? up_.unpack() : at::Tensor());
    backward(rows, input, result);
    add_bias_gradients(sum, rows, result);
    return result;
  }

 protected:
  static void keep(SavedVariable& place, const at::Tensor& x) { place = SavedVariable(x, false); }
  virtual void backward(const variable_list& rows, const Activated& input,
                        variable_list& result) = 0;

  bool wants_input() const {
    return task_should_compute_output(0) || task_should_compute_output(1);
  }
  variable_list weights() const {
    variable_list all;
    for (const SavedVariable& weight : weights_) all.push_back(weight.unpack());
    return all;
  }

  // The gradient of the activation goes on to what it was computed of; the activation.
  at::Tensor through_activation(const Activated& input, at::Tensor back,
                                variable_list& result) const {
    if (!back.defined()) return kind_ == Activation::none ? at::Tensor() : activation_value(input);
    const bool gated = kind_ == Activation::swiglu;
    back = back.view(sizes_);
    if (kind_ == Activation::none) {
      result[0] = back;
      return {};
    }
    const ActivationBack behind = activation_back_to(next_edge(0), input, back);
    result[0] = gated ? behind.d_gate : back;
    if (gated) result[1] = back;
    return behind.value;
  }

  Activation kind_;
  std::vector<int64_t> sizes_;                           // of x
  SavedVariable x_, up_, codes_, scale_, weight_scale_;  // codes of x: [in, rows]
  std::vector<SavedVariable> weights_;

 private:
  variable_list grads_as_rows(variable_list&& grads) const {
    const auto given = std::find_if(grads.begin(), grads.end(),
                                    [](const at::Tensor& grad) { return grad.defined(); });
    const int64_t rows = as_rows(*given).size(0);
    variable_list all;
    for (size_t i = 0; i < grads.size(); ++i)
      all.push_back(grads[i].defined() ? code_rows(grads[i])
                                       : at::zeros({rows, shapes_[i].out}, given->options()));
    return all;
  }
};

class Fp8TensorNode final : public Fp8Node {
 public:
  using Fp8Node::Fp8Node;
  std::string name() const override { return "braid::fp8_linears"; }

  // What the products of the forward pass take; the last thing that is kept.
  Coded coded_input(const at::Tensor& rows) {
    const bool turned = kind_ == Activation::none;
    const Coded x = coded({rows}, {.turned = turned});
    if (turned) keep(codes_, x.turned);
    keep(scale_, x.scale);
    return x;
  }
  void keep_weight_scale(const at::Tensor& scale) { keep(weight_scale_, scale); }

 private:
  void backward(const variable_list& rows, const Activated& input, variable_list& result) override {
    const Coded dy = coded(rows, {.dim = 1, .e5m2 = true, .turned = true});
    at::Tensor back, scale;
    if (wants_input()) {
      const at::Tensor codes = weight_codes(weights(), weight_scale_.unpack(), true, scale);
      back = coded_product({dy.plain, codes.t(), dy.scale, scale}, {.fast = false});
    }
    const at::Tensor value = through_activation(input, back, result);
    back.reset();
    const at::Tensor x_scale = scale_.unpack();
    const at::Tensor x =
        value.defined()
            ? coded({code_rows(value)}, {.plain = false, .turned = true, .scale = x_scale}).turned
            : codes_.unpack();
    int64_t first = 0;
    for (size_t i = 0; i < shapes_.size(); ++i) {
      const LayerShape& shape = shapes_[i];
      const at::Tensor grad = dy.turned.narrow(0, first, shape.out);
      first += shape.out;
      if (!task_should_compute_output(2 + 2 * i)) continue;
      result[2 + 2 * i] =
          coded_product({grad, x.t(), dy.scale, x_scale}, {.dtype = shape.weight, .fast = false});
    }
  }
};

class Fp8RowNode final : public Fp8Node {
 public:
  Fp8RowNode(const Activated& input, const std::vector<LinearWeights>& layers)
      : Fp8Node(input, layers) {
    if (kind_ == Activation::none) keep(x_, input.x);
  }
  std::string name() const override { return "braid::fp8_row_linears"; }

 private:
  void backward(const variable_list& rows, const Activated& input, variable_list& result) override {
    at::Tensor back;
    if (wants_input()) {
      const at::Tensor whole = side_by_side(rows);
      const Coded dy = coded_rows({whole.defined() ? whole : at::cat(rows, 1)}),
                  w = coded_rows({turned_weights(weights())});
      back = coded_product({dy.plain, w.plain.t(), dy.scale, w.scale.t()}, {.fast = false});
    }
    at::Tensor value = through_activation(input, back, result);
    if (kind_ == Activation::none) value = x_.unpack();
    for (size_t i = 0; i < shapes_.size(); ++i)
      if (task_should_compute_output(2 + 2 * i))
        result[2 + 2 * i] = weight_gradient(rows[i], value, shapes_[i].by_rows, shapes_[i].weight);
  }
};

// y [rows, all outputs] cut up and shaped as the input, without history.
variable_list outputs_of(const at::Tensor& y, const at::Tensor& value,
                         const std::vector<LinearWeights>& layers) {
  variable_list outputs = parts_of(y.view(with_width(value, y.size(1))), shapes_of(layers));
  for (at::Tensor& output : outputs) output = output.variable_data();
  return outputs;
}

variable_list tensor_products(const Activated& input, const std::vector<LinearWeights>& layers,
                              Fp8TensorNode* node) {
  const at::NoGradGuard no_grad;
  const at::Tensor value = activation_value(input), rows = code_rows(value);
  if (node != nullptr) check_rows(rows.size(0));
  variable_list weights;
  for (const LinearWeights& layer : layers) weights.push_back(layer.weight);
  at::Tensor scale;
  const at::Tensor codes = weight_codes(weights, {}, false, scale);
  if (node != nullptr) node->keep_weight_scale(scale);
  const Coded x = node != nullptr ? node->coded_input(rows) : coded({rows});
  const at::Tensor y =
      coded_product({x.plain, codes.t(), x.scale, scale}, {.bias = joined_bias(layers)});
  return outputs_of(y, value, layers);
}

variable_list row_products(const Activated& input, const std::vector<LinearWeights>& layers) {
  const at::NoGradGuard no_grad;
  const at::Tensor value = activation_value(input);
  const Coded x = coded_rows({code_rows(value)});
  variable_list weights;
  for (const LinearWeights& layer : layers) weights.push_back(code_rows(layer.weight.detach()));
  const Coded w = coded_rows(weights);
  weights.clear();
  const at::Tensor y =
      coded_product({x.plain, w.plain.t(), x.scale, w.scale.t()}, {.bias = joined_bias(layers)});
  return outputs_of(y, value, layers);
}

}  // namespace

std::vector<at::Tensor> fp8_linears(const Activated& input,
                                    const std::vector<LinearWeights>& layers, Fp8 how, bool graph) {
  if (!graph)
    return how == Fp8::tensor ? tensor_products(input, layers, nullptr)
                              : row_products(input, layers);
  std::shared_ptr<torch::autograd::Node> node;
  variable_list outputs;
  if (how == Fp8::tensor) {
    const std::shared_ptr<Fp8TensorNode> made(new Fp8TensorNode(input, layers),
                                              torch::autograd::deleteNode);
    node = made;
    node->set_next_edges(edges_to(input, layers));
    outputs = tensor_products(input, layers, made.get());
  } else {
    node = {new Fp8RowNode(input, layers), torch::autograd::deleteNode};
    node->set_next_edges(edges_to(input, layers));
    outputs = row_products(input, layers);
  }
  torch::autograd::set_history(outputs, node);
  return outputs;
}

}  // namespace braid::kernels
