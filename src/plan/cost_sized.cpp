// SPDX-License-Identifier: BSD-3-Clause
#include "plan/cost_sized.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "braid/core/error.h"

namespace braid::plan {
namespace {

using memory::Operator;
using memory::TensorShape;

double elements(const TensorShape& tensor) {
  double count = 1;
  for (const int64_t size : tensor.sizes) count *= static_cast<double>(size);
  return count;
}

double last_size(const TensorShape& tensor) {
  return tensor.sizes.empty() ? 1 : static_cast<double>(tensor.sizes.back());
}

double nth_size(const TensorShape& tensor, size_t i) {
  return i < tensor.sizes.size() ? static_cast<double>(tensor.sizes[i]) : 1;
}

bool ends_in(const Operator& op, std::string_view end) {
  return std::string_view(op.name).ends_with(end);
}

bool has_word(const Operator& op, std::string_view word) {
  return op.name.find(word) != std::string::npos;
}

bool is_own(const Operator& op) { return op.name.starts_with("braid::"); }

bool at_strided(const Operator& op, size_t input) {
  return input < 32 && ((op.strided >> input) & 1) != 0;
}

// How many bytes of a row can be read at a time: the largest power of two up to 16 that divides its
// length.
int loads_of(double length, c10::ScalarType dtype) {
  const double bytes = length * static_cast<double>(c10::elementSize(dtype));
  int at_once = 16;
  while (at_once > 1 && std::fmod(bytes, at_once) != 0) at_once /= 2;
  return at_once;
}

// Factors a and b: which inputs they are, and whether their rows or columns lie together.
void size_product(const Operator& op, Sized& sized) {
  const bool added = op.name.find("add") != std::string::npos;
  const size_t a = added ? 1 : 0, b = a + 1;
  if (op.inputs.size() <= b) return;
  const TensorShape &left = op.inputs[a], &right = op.inputs[b];
  const bool gelu = ends_in(op, "::linear_gelu");
  const bool weight_rows = gelu || ends_in(op, "::linear");  // weight is [n, k]
  const double k = std::max(1.0, last_size(left));
  const double n = weight_rows ? nth_size(right, 0) : right.sizes.size() > 1 ? last_size(right) : 1;
  const double batch = sized.work == Work::batched ? std::max(1.0, nth_size(left, 0)) : 1;
  const double m = std::max(1.0, elements(left) / k / batch);
  sized.dtype = left.dtype;
  if (sized.work == Work::batched) {
    sized.kernel = "batched";
    sized.at = {batch, m, n, k};
    return;
  }
  const bool left_turned = at_strided(op, a), right_turned = weight_rows != at_strided(op, b);
  const int loads = std::min({loads_of(left_turned ? m : k, left.dtype),
                              loads_of(right_turned ? k : n, left.dtype), loads_of(n, left.dtype)});
  sized.kernel = fmt::format("gemm_{}{}", left_turned ? 't' : 'n', right_turned ? 't' : 'n');
  if (loads < 16) sized.kernel += fmt::format("_by{}", loads);
  sized.at = {m, n, k};
  if (gelu) sized.beside = static_cast<double>(op.outputs.back().bytes());
}

// Rows of all groups together are on one side; each group meets its own matrix. Without knowing
// where groups begin they are taken to be even.
void size_grouped(const Operator& op, Sized& sized) {
  const TensorShape &left = op.inputs.at(0), &right = op.inputs.at(1);
  const double k = last_size(left);
  double groups = 1, m = nth_size(left, 0);
  if (right.sizes.size() == 3) groups = nth_size(right, 0);
  if (left.sizes.size() == 3) m = nth_size(left, 1);
  if (left.sizes.size() == 2 && right.sizes.size() == 3) m /= groups;
  double inner = k;
  if (left.sizes.size() == 2 && right.sizes.size() == 2) {  // groups along k: one product each
    groups = op.outputs.empty() ? 1 : nth_size(op.outputs[0], 0);
    inner = k / std::max(1.0, groups);
  }
  sized.dtype = left.dtype;
  sized.at = {groups, std::max(1.0, m), last_size(right), std::max(1.0, inner)};
}

// As a product: positions of the output, channels, and what a window holds. Where channels are
// last, and where they are no multiple of 16 bytes, other kernels run.
void size_convolution(const Operator& op, Sized& sized) {
  const size_t first = sized.work == Work::convolution ? 0 : 1;
  const TensorShape& weight = op.inputs.at(first + 1);
  const TensorShape& out = sized.work == Work::convolution ? op.outputs.at(0) : op.inputs.at(0);
  const double channels = nth_size(out, 1);
  const int loads =
      std::min(loads_of(channels, out.dtype), loads_of(nth_size(weight, 1), out.dtype));
  if (at_strided(op, first)) sized.kernel += "_last";
  if (loads < 16) sized.kernel += fmt::format("_by{}", loads);
  sized.dtype = out.dtype;
  sized.at = {std::max(1.0, elements(out) / std::max(1.0, channels)), channels,
              std::max(1.0, elements(weight) / std::max(1.0, nth_size(weight, 0)))};
}

// qkv [images, rows, columns, 3 heads width], table [(2 side - 1)^2, heads].
void size_windows(const Operator& op, Sized& sized) {
  const size_t first = sized.work == Work::attention ? 0 : 1;
  const TensorShape &qkv = op.inputs.at(first), &table = op.inputs.at(first + 1);
  const double side = (std::sqrt(nth_size(table, 0)) + 1) / 2, tokens = side * side;
  const double heads = nth_size(table, 1), width = last_size(qkv) / 3;
  sized.kernel = std::string(to_text(sized.work)) + "_window";
  sized.dtype = qkv.dtype;
  sized.at = {std::max(1.0, elements(qkv) / last_size(qkv) / tokens * heads), tokens, tokens,
              width / heads};
}

void size_attention(const Operator& op, Sized& sized) {
  if (has_word(op, "window")) return size_windows(op, sized);
  const size_t first = sized.work == Work::attention ? 0 : 1;
  const TensorShape &q = op.inputs.at(first), &k = op.inputs.at(first + 1);
  const bool cudnn = is_own(op) || has_word(op, "cudnn");
  const char* kind = has_word(op, "efficient") ? "efficient" : cudnn ? "cudnn" : "flash";
  sized.kernel = fmt::format("{}_{}{}", to_text(sized.work), kind, op.causal ? "_causal" : "");
  sized.dtype = q.dtype;
  sized.at = {nth_size(q, 0) * nth_size(q, 1), nth_size(q, 2), nth_size(k, 2), nth_size(q, 3)};
}

// braid's norms read a branch, write a sum and more, each in one of two dtypes: as many rows as
// would move these bytes in the dtype of what is normalised.
void size_own_norm(const Operator& op, Sized& sized) {
  const bool back = sized.work == Work::norm_backward;
  const TensorShape& sum = back ? op.outputs.at(0) : op.inputs.at(0);
  sized.dtype = back ? op.inputs.at(0).dtype : op.outputs.at(op.outputs.size() - 2).dtype;
  const double width = std::max(1.0, last_size(sum));
  const double row = (back ? 3 : 2) * width * static_cast<double>(c10::elementSize(sized.dtype));
  sized.at = {std::max(1.0, bytes_moved({sized.work, Moves::all}, op) / row), width};
}

// Rows of the largest input and their length.
void size_rows(const Operator& op, Sized& sized) {
  if (op.inputs.empty()) return;
  if (has_word(op, "rms_norm")) sized.kernel += "_rms";
  if (is_own(op)) return size_own_norm(op, sized);
  const TensorShape& x = op.inputs[0];
  const double width = std::max(1.0, last_size(x));
  sized.dtype = x.dtype;
  sized.at = {std::max(1.0, elements(x) / width), width};
}

// Many rows into one keeps the columns and walks over memory in steps; else elements that lie
// together are added up.
void size_reduction(const Operator& op, Sized& sized) {
  if (op.inputs.empty()) return;
  const TensorShape& x = op.inputs[0];
  const double kept = op.outputs.empty() ? 1 : std::max(1.0, elements(op.outputs[0]));
  const bool columns = !op.outputs.empty() && last_size(op.outputs[0]) > 1 &&
                       last_size(op.outputs[0]) == last_size(x);
  sized.dtype = x.dtype;
  if (columns) sized.kernel = "reduce_columns";
  if (columns && is_own(op)) sized.kernel = "reduce_columns_own";
  sized.at = {std::max(1.0, elements(x) / kept), kept};
}

bool is_mixed(const Operator& op) {
  const TensorShape* seen = nullptr;
  for (const auto* list : {&op.inputs, &op.outputs})
    for (const TensorShape& tensor : *list) {
      if (elements(tensor) <= 1) continue;
      if (seen == nullptr) seen = &tensor;
      if (tensor.sizes != seen->sizes || tensor.dtype != seen->dtype) return true;
    }
  return false;
}

// braid::gelu_grad_ has a curve of its own, pointwise_gelu_grad.
std::string own_kernel(const Operator& op) {
  std::string_view name(op.name);
  name.remove_prefix(name.find("::") + 2);
  if (name.ends_with('_')) name.remove_suffix(1);
  return fmt::format("pointwise_{}", name);
}

std::string pointwise_kernel(const Operator& op) {
  if (is_own(op)) return own_kernel(op);
  if (has_word(op, "gelu") || has_word(op, "tanh") || has_word(op, "erf")) return "pointwise_math";
  return op.strided != 0 || is_mixed(op) ? "pointwise_mixed" : "pointwise";
}

std::string copy_kernel(const Operator& op) {
  if (ends_in(op, "::cat") || ends_in(op, "::stack")) return "copy_cat";
  const bool in_order = op.strided == 0 || ends_in(op, "::_to_copy");  // a cast keeps the order
  if (!in_order || has_word(op, "pixel")) return "copy_strided";
  const bool cast = is_mixed(op) && !has_word(op, "_backward") && !has_word(op, "_lanes");
  return cast ? "copy_cast" : "copy";
}

// Chunks of 65,536 elements, 320 to a launch, of so many tensors as fit into its arguments. braid's
// own kernel takes any number of chunks.
int update_launches(const Operator& op, bool adam) {
  if (is_own(op)) return 1 + static_cast<int>(op.inputs.size() / 5 / 56);
  const double lists = adam ? 4 : 1;
  double count = 0;
  for (const TensorShape& tensor : op.inputs) count += elements(tensor);
  const double tensors = static_cast<double>(op.inputs.size()) / lists;
  const double launches = std::max(tensors / (adam ? 36 : 110), count / lists / 65536 / 320);
  return std::max(1, static_cast<int>(std::ceil(launches)));
}

// The rows of the gradient are sorted and added up; beside that a whole table of zeros is written.
void size_table(const Operator& op, Sized& sized) {
  sized.kernel = "scatter_embedding";
  sized.at = {std::max(1.0, 2 * bytes_moved({sized.work, Moves::read}, op))};
  sized.beside = bytes_moved({sized.work, Moves::written}, op);
}

void size_stream(const Operator& op, const OpKind& kind, Sized& sized) {
  const auto& tensors = op.outputs.empty() ? op.inputs : op.outputs;
  if (!tensors.empty()) sized.dtype = tensors.front().dtype;
  if (kind.work == Work::pointwise) sized.kernel = pointwise_kernel(op);
  if (kind.work == Work::copy) sized.kernel = copy_kernel(op);
  if (kind.work == Work::update) {
    const bool adam = kind.moves == Moves::adam;
    sized.kernel = adam ? "update_adam" : kind.moves == Moves::read ? "update_norm" : "update";
    sized.kernels = update_launches(op, adam);
  }
  if (has_word(op, "cross_entropy_in_place")) sized.kernel = "loss_backward_in_place";
  sized.at = {std::max(1.0, bytes_moved(kind, op))};
  if (has_word(op, "embedding_dense")) size_table(op, sized);
}

}  // namespace

Sized sized_of(const Operator& op) {
  const std::optional<OpKind> kind = kind_of(op.name);
  if (!kind)
    throw InternalError({.what = fmt::format("the planner does not know what {} costs", op.name),
                         .why = "its time would be left out of the plan in silence",
                         .fix = "add it to the table in src/plan/cost_class.cpp"});
  Sized sized;
  sized.work = kind->work;
  sized.kernel = std::string(to_text(kind->work));
  sized.kernels = kind->kernels;
  switch (kind->work) {
    case Work::view:
    case Work::nothing:
      return sized;
    case Work::gemm:
    case Work::batched:
      size_product(op, sized);
      return sized;
    case Work::grouped:
      size_grouped(op, sized);
      return sized;
    case Work::convolution:
    case Work::convolution_backward:
      size_convolution(op, sized);
      return sized;
    case Work::attention:
    case Work::attention_backward:
      size_attention(op, sized);
      return sized;
    case Work::norm:
    case Work::norm_backward:
    case Work::softmax:
    case Work::softmax_backward:
      size_rows(op, sized);
      return sized;
    case Work::reduce:
      size_reduction(op, sized);
      return sized;
    default:
      size_stream(op, *kind, sized);
      return sized;
  }
}

Work work_of(const std::string& kernel) {
  Work best = Work::view;
  size_t longest = 0;  // "norm_backward" begins with "norm", too
  for (int i = static_cast<int>(Work::fill); i <= static_cast<int>(Work::attention_backward); ++i) {
    const auto work = static_cast<Work>(i);
    if (!kernel.starts_with(to_text(work)) || to_text(work).size() <= longest) continue;
    best = work;
    longest = to_text(work).size();
  }
  return best;
}

size_t sizes_of(Work work) {
  switch (work) {
    case Work::gemm:
    case Work::convolution:
    case Work::convolution_backward:
      return 3;
    case Work::batched:
    case Work::grouped:
    case Work::attention:
    case Work::attention_backward:
      return 4;
    case Work::reduce:
    case Work::norm:
    case Work::norm_backward:
    case Work::softmax:
    case Work::softmax_backward:
      return 2;
    default:
      return 1;
  }
}

double estimate(const Roofline& roofline, const Sized& s) {
  if (s.at.empty()) return 0;
  const std::vector<double>& at = s.at;
  const auto rows = [&](double times) {
    const double element = static_cast<double>(c10::elementSize(s.dtype));
    return roofline.stream(times * at[0] * at[1] * element, s.kernels);
  };
  const bool narrow = s.kernel.find("_by") != std::string::npos;
  switch (s.work) {
    case Work::gemm:  // kernels that read and write a few bytes at a time
      return roofline.product({at[0], at[1], at[2]}, s.dtype, narrow ? 1.6 : 1.0);
    case Work::batched:
    case Work::grouped:
      return roofline.product({at[1], at[2], at[3], at[0]}, s.dtype);
    case Work::convolution:
      return roofline.product({at[0], at[1], at[2]}, s.dtype);
    case Work::convolution_backward:
      return 2 * roofline.product({at[0], at[1], at[2]}, s.dtype);
    case Work::attention:
    case Work::attention_backward:
      return roofline.attention({at[0], at[1], at[2], at[3], s.kernel.ends_with("_causal")},
                                s.dtype, s.work == Work::attention_backward,
                                s.kernel.find("cudnn") == std::string::npos);
    case Work::reduce:
      return rows(1);
    case Work::norm:
    case Work::softmax:
      return rows(2);
    case Work::norm_backward:
    case Work::softmax_backward:
      return rows(3);
    default:
      return roofline.stream(at[0], s.kernels);
  }
}

}  // namespace braid::plan
