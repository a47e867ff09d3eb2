// SPDX-License-Identifier: BSD-3-Clause
// FLOP formulas of the operators that do arithmetic worth counting. Arguments of an operator come
// as its defined tensors in the order of its schema.
#include <cmath>
#include <map>
#include <string>

#include <c10/core/ScalarType.h>

#include "braid/memory/operator_log.h"

namespace braid::memory {
namespace {

using Sizes = std::vector<int64_t>;

double product(const Sizes& sizes) {
  double result = 1;
  for (const int64_t size : sizes) result *= static_cast<double>(size);
  return result;
}

double last(const Sizes& sizes) { return sizes.empty() ? 1 : static_cast<double>(sizes.back()); }

const Sizes& input(const OperatorCall& call, size_t i) { return call.inputs.at(i).sizes; }

// Every element of a [.., m, k] meets each of the n columns of b [.., k, n]; a vector is one
// column.
double matrix_product(const Sizes& a, const Sizes& b) {
  return 2 * product(a) * (b.size() > 1 ? last(b) : 1);
}

double plain_product(const OperatorCall& call) {  // mm, bmm, mv, dot, _scaled_mm
  return matrix_product(input(call, 0), input(call, 1));
}

double added_product(const OperatorCall& call) {  // addmm, baddbmm, addmv: the sum's start is first
  return matrix_product(input(call, 1), input(call, 2));
}

// Dimensions before the last two of either factor are broadcast.
double broadcast_product(const OperatorCall& call) {  // matmul
  return 2 * product(call.outputs.at(0).sizes) * last(input(call, 0));
}

double linear_product(const OperatorCall& call) {  // x [.., in], weight [out, in]
  return 2 * product(input(call, 0)) * product(input(call, 1)) / last(input(call, 1));
}

// Groups along a third dimension of both multiply one by one. Along a dimension of one matrix they
// share its length between them, wherever they begin.
double grouped_product(const OperatorCall& call) {
  const Sizes &a = input(call, 0), &b = input(call, 1);
  const double groups = a.size() == 3 && b.size() == 2 ? static_cast<double>(a[0]) : 1;
  return groups == 0 ? 0 : matrix_product(a, b) / groups;
}

// One position of the kernel's window: each element of the output takes weight / weight[0]
// products, of a transposed convolution each element of the input gives as many.
double convolution_products(const Sizes& in, const Sizes& weight, const Sizes& out,
                            bool transposed) {
  if (weight.empty() || weight[0] == 0) return 0;
  const double each = product(weight) / static_cast<double>(weight[0]);
  return 2 * product(transposed ? in : out) * each;
}

double convolution_forward(const OperatorCall& call) {
  return convolution_products(input(call, 0), input(call, 1), call.outputs.at(0).sizes,
                              call.transposed);
}

// As many products for the gradient of the input, and again for that of the weight.
double convolution_backward(const OperatorCall& call) {
  const double once =
      convolution_products(input(call, 1), input(call, 2), input(call, 0), call.transposed);
  double times = 0;
  for (size_t i = 0; i < 2; ++i)
    if (i >= call.wanted.size() || call.wanted[i]) times += 1;
  return times * once;
}

// Scores [B, H, N, M] from q [B, H, N, D] and k [B, H or fewer, M, D]; their product with
// v [.., M, E]. Shared heads of k and v are used by each head of q.
double attention_products(const Sizes& q, const Sizes& k, const Sizes& v) {
  if (q.size() < 3 || k.size() < 3) return 0;
  const double scores = product(q) / last(q) * static_cast<double>(k[k.size() - 2]);
  return 2 * scores * (last(q) + last(v));
}

double attention_forward(const OperatorCall& call) {
  return attention_products(input(call, 0), input(call, 1), input(call, 2));
}

// Gradients of scores and v from that of the result, of q and k from that of the scores.
double attention_backward(const OperatorCall& call) {
  return 2 * attention_products(input(call, 1), input(call, 2), input(call, 3));
}

// Every token of an image [B, H, W, 3 width] meets the w w of its window; the table
// [(2 w - 1)^2, heads] says how many.
double window_products(const Sizes& qkv, const Sizes& table) {
  if (table.empty()) return 0;
  const double side = (std::sqrt(static_cast<double>(table[0])) + 1) / 2;
  return 4 * product(qkv) / 3 * side * side;
}

double own_flops(const OperatorCall& call) {  // braid's kernels
  if (call.name == "braid::linear_gelu") return linear_product(call);
  if (call.name == "braid::attention") return attention_forward(call);
  if (call.name == "braid::attention_grad") return attention_backward(call);
  if (call.name == "braid::window_attention")
    return window_products(input(call, 0), input(call, 1));
  if (call.name != "braid::window_attention_grad") return 0;
  return 2 * window_products(input(call, 1), input(call, 2));
}

using Formula = double (*)(const OperatorCall&);

const std::map<std::string_view, Formula>& formulas() {
  static const std::map<std::string_view, Formula> table = {
      {"mm", plain_product},
      {"bmm", plain_product},
      {"mv", plain_product},
      {"dot", plain_product},
      {"vdot", plain_product},
      {"_int_mm", plain_product},
      {"_scaled_mm", plain_product},
      {"_scaled_mm_v2", plain_product},
      {"_grouped_mm", grouped_product},
      {"_scaled_grouped_mm", grouped_product},
      {"_scaled_grouped_mm_v2", grouped_product},
      {"addmm", added_product},
      {"addmm_", added_product},
      {"_addmm_activation", added_product},
      {"baddbmm", added_product},
      {"baddbmm_", added_product},
      {"addbmm", added_product},
      {"addbmm_", added_product},
      {"addmv", added_product},
      {"addmv_", added_product},
      {"matmul", broadcast_product},
      {"linear", linear_product},
      {"convolution", convolution_forward},
      {"convolution_overrideable", convolution_forward},
      {"convolution_backward", convolution_backward},
      {"scaled_dot_product_attention", attention_forward},
  };
  return table;
}

bool is_backward(std::string_view name) { return name.find("_backward") != std::string_view::npos; }

}  // namespace

int64_t TensorShape::bytes() const {
  int64_t count = static_cast<int64_t>(c10::elementSize(dtype));
  for (const int64_t size : sizes) count *= size;
  return count;
}

double OperatorLog::flops() const {
  double sum = 0;
  for (const Operator& op : operators_) sum += op.flops;
  return sum;
}

int64_t OperatorLog::bytes() const {
  int64_t sum = 0;
  for (const Operator& op : operators_) sum += op.bytes;
  return sum;
}

double flops_of(const OperatorCall& call) {
  std::string_view name = call.name;
  if (!name.starts_with("aten::")) return own_flops(call);
  name.remove_prefix(6);
  if (name.starts_with("_scaled_dot_product_"))  // one name for each backend
    return is_backward(name) ? attention_backward(call) : attention_forward(call);
  const auto found = formulas().find(name);
  return found == formulas().end() ? 0 : found->second(call);
}

}  // namespace braid::memory
