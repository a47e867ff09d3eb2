// SPDX-License-Identifier: BSD-3-Clause
#include "plan/published_eager.h"

#include <algorithm>
#include <string>
#include <utility>

namespace braid::plan {
namespace {

using memory::Operator;
using memory::TensorShape;
using Operators = std::vector<Operator>;

Operator op_of(std::string name, std::vector<TensorShape> inputs,
               std::vector<TensorShape> outputs) {
  Operator op;
  op.name = std::move(name);
  op.inputs = std::move(inputs);
  op.outputs = std::move(outputs);
  for (const auto* list : {&op.inputs, &op.outputs})
    for (const TensorShape& tensor : *list) op.bytes += tensor.bytes();
  return op;
}

TensorShape in_dtype(const TensorShape& tensor, c10::ScalarType dtype) {
  return {tensor.sizes, dtype};
}

bool is_own_attention(const Operator& op) { return op.name.starts_with("braid::attention"); }
bool is_attention(const Operator& op) {
  return is_own_attention(op) || op.name.find("dot_product") != std::string::npos;
}
bool is_attention_backward(const Operator& op) {
  return op.name.find("_backward") != std::string::npos || op.name == "braid::attention_grad";
}

// What attention was before it was one kernel: products of whole score matrices, one kernel for
// scale, mask and softmax, one for dropout; the same again backward.
Operators attention_written_out(const Operator& attention) {
  const bool backward = is_attention_backward(attention);
  const TensorShape& q = attention.inputs.at(backward ? 1 : 0);
  const c10::ScalarType dtype = q.dtype;
  const int64_t groups = q.sizes[0] * q.sizes[1], tokens = q.sizes[2], head = q.sizes[3];
  const TensorShape rows{{groups, tokens, head}, dtype}, columns{{groups, head, tokens}, dtype};
  const TensorShape scores{{groups, tokens, tokens}, dtype};
  const TensorShape mask{scores.sizes, c10::kBool};
  const Operator wide = op_of("aten::bmm", {rows, columns}, {scores});
  const Operator narrow = op_of("aten::bmm", {scores, rows}, {rows});
  const Operator drop = op_of("aten::mul", {scores, mask}, {scores});
  if (!backward) return {wide, op_of("aten::_softmax", {scores}, {scores}), drop, narrow};
  const Operator soft = op_of("aten::_softmax_backward_data", {scores, scores}, {scores});
  return {narrow, wide, drop, soft, narrow, narrow};
}

Operator by_flash(Operator op) {
  if (is_own_attention(op))
    op.name = std::string("aten::_scaled_dot_product_flash_attention") +
              (is_attention_backward(op) ? "_backward" : "");
  return op;
}

// y = x / rms * weight in operators of fp32, as it was before it was one.
Operators rms_norm(const TensorShape& x, const TensorShape& y) {
  const TensorShape wide = in_dtype(x, c10::kFloat);
  TensorShape one = wide;
  one.sizes.back() = 1;
  return {op_of("aten::pow", {wide}, {wide}), op_of("aten::mean", {wide}, {one}),
          op_of("aten::mul", {wide, one}, {wide}), op_of("aten::_to_copy", {wide}, {y}),
          op_of("aten::mul", {y}, {y})};
}

Operators rms_norm_backward(const TensorShape& x, const TensorShape& y) {
  const TensorShape wide = in_dtype(x, c10::kFloat), weight{{x.sizes.back()}, y.dtype};
  TensorShape one = wide;
  one.sizes.back() = 1;
  const Operator scaled = op_of("aten::mul", {wide, one}, {wide});
  return {op_of("aten::mul", {y}, {y}),
          op_of("aten::mul", {y, y}, {y}),
          op_of("aten::sum", {y}, {weight}),
          op_of("aten::_to_copy", {y}, {wide}),
          op_of("aten::mul", {wide, wide}, {wide}),
          op_of("aten::sum", {wide}, {one}),
          scaled,
          scaled,
          op_of("aten::add", {wide, wide}, {wide})};
}

// Addition, norm, and the cast of its result: three kernels.
Operators norm_in_parts(const Operator& op) {
  const bool backward = op.name.ends_with("_grad"), rms = op.name.find("rms") != std::string::npos;
  const TensorShape& x = op.inputs.at(backward ? 1 : 0);
  const auto& halves = backward ? op.inputs : op.outputs;
  const auto narrow = std::find_if(halves.begin(), halves.end(), [&](const TensorShape& tensor) {
    return tensor.sizes == x.sizes && tensor.dtype != x.dtype;
  });
  const TensorShape y = narrow == halves.end() ? x : *narrow;
  const auto wide = std::count_if(op.inputs.begin(), op.inputs.end(),
                                  [&](const TensorShape& t) { return t.sizes == x.sizes; });
  Operators parts;
  const bool added = wide > (backward ? 2 : 1);
  if (added) parts.push_back(op_of("aten::add", {x, y}, {x}));
  if (rms) {
    const Operators rest = backward ? rms_norm_backward(x, y) : rms_norm(x, y);
    parts.insert(parts.end(), rest.begin(), rest.end());
    return parts;
  }
  if (y.dtype != x.dtype) parts.push_back(op_of("aten::_to_copy", {x}, {y}));
  if (backward)
    parts.push_back(op_of("aten::native_layer_norm_backward", {x, x}, {x}));
  else
    parts.push_back(op_of("aten::native_layer_norm", {x}, {x}));
  return parts;
}

// As complex numbers of fp32.
Operators rotary_in_parts(const Operator& op) {
  Operators parts;
  for (const TensorShape& x : op.outputs) {
    const TensorShape wide = in_dtype(x, c10::kFloat);
    parts.push_back(op_of("aten::_to_copy", {x}, {wide}));
    parts.push_back(op_of("aten::mul", {wide}, {wide}));
    parts.push_back(op_of("aten::_to_copy", {wide}, {x}));
  }
  return parts;
}

// Backward the value that the next product wants is computed again.
Operators swiglu_in_parts(const Operator& op) {
  const TensorShape& x = op.inputs.at(0);
  const Operator silu = op_of("aten::silu", {x}, {x}), times = op_of("aten::mul", {x, x}, {x});
  if (op.name.find("_grad") == std::string::npos) return {silu, times};
  return {silu, times, times, times, op_of("aten::silu_backward", {x, x}, {x})};
}

// Of logits in fp32.
Operators loss_in_parts(const Operator& op) {
  const TensorShape& x = op.inputs.at(0);
  const TensorShape wide = in_dtype(x, c10::kFloat);
  return {op_of("aten::_to_copy", {x}, {wide}), op_of("aten::_log_softmax", {wide}, {wide}),
          op_of("aten::nll_loss_backward", {wide}, {wide}),
          op_of("aten::_log_softmax_backward_data", {wide, wide}, {wide}),
          op_of("aten::_to_copy", {wide}, {x})};
}

// The product, then the activation; computed again, a block ends before it.
Operators linear_gelu_in_parts(const Operator& op) {
  const TensorShape& h = op.outputs.at(0);
  Operator product = op;
  product.name = "aten::linear";
  product.outputs = {h};
  product.bytes -= h.bytes();
  if (op.recomputed) return {product};
  return {product, op_of("braid::gelu", {h}, {h})};
}

}  // namespace

Operators as_published(const PublishedTime& row, const Operator& op) {
  if (is_attention(op) && row.attention == Attention::written_out) return attention_written_out(op);
  if (is_attention(op) && row.attention == Attention::flash) return {by_flash(op)};
  if (op.name == "braid::linear_gelu") return linear_gelu_in_parts(op);
  if (row.fused == Fused::all || !op.name.starts_with("braid::")) return {op};
  if (op.name.find("_norm") != std::string::npos) return norm_in_parts(op);
  if (op.name == "braid::rotary") return rotary_in_parts(op);
  if (op.name.starts_with("braid::swiglu")) return swiglu_in_parts(op);
  if (op.name == "braid::cross_entropy_in_place" && row.fused == Fused::none)
    return loss_in_parts(op);
  return {op};
}

}  // namespace braid::plan
