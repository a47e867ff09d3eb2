// SPDX-License-Identifier: BSD-3-Clause
#include "plan/cost_class.h"

#include <algorithm>
#include <array>
#include <map>

namespace braid::plan {
namespace {

using Table = std::map<std::string_view, OpKind>;

void add_all(Table& table, OpKind kind, std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) table[name] = kind;
}

// Their results are an argument's memory, or memory that nobody has written.
void add_free(Table& table) {
  add_all(
      table, {Work::view, Moves::nothing, 0},
      {"_unsafe_view",     "view",         "t",         "transpose",     "permute",
       "expand",           "detach",       "slice",     "select",        "split",
       "split_with_sizes", "chunk",        "unsqueeze", "squeeze",       "as_strided",
       "_reshape_alias",   "alias",        "unbind",    "narrow",        "view_as",
       "reshape",          "flatten",      "detach_",   "lift_fresh",    "set_",
       "resize_",          "unfold",       "diagonal",  "view_as_real",  "view_as_complex",
       "expand_as",        "unsafe_split", "movedim",   "is_same_size",  "unflatten",
       "swapaxes",         "real",         "_conj",     "record_stream", "_local_scalar_dense"});
  add_all(table, {Work::nothing, Moves::nothing, 0},
          {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"});
}

void add_pointwise(Table& table) {
  add_all(table, {Work::pointwise, Moves::all, 1},
          {"add",
           "add_",
           "sub",
           "sub_",
           "rsub",
           "mul",
           "mul_",
           "div",
           "div_",
           "neg",
           "neg_",
           "abs",
           "sgn",
           "sign",
           "exp",
           "exp_",
           "log",
           "log_",
           "log1p",
           "expm1",
           "logaddexp",
           "sqrt",
           "sqrt_",
           "rsqrt",
           "rsqrt_",
           "square",
           "pow",
           "pow_",
           "reciprocal",
           "reciprocal_",
           "sin",
           "cos",
           "tanh",
           "tanh_backward",
           "sigmoid",
           "sigmoid_backward",
           "relu",
           "relu_",
           "threshold_backward",
           "leaky_relu",
           "leaky_relu_backward",
           "gelu",
           "gelu_backward",
           "silu",
           "silu_backward",
           "softplus",
           "softplus_backward",
           "clamp",
           "clamp_",
           "clamp_min",
           "clamp_min_",
           "clamp_max",
           "clamp_max_",
           "minimum",
           "maximum",
           "where",
           "masked_fill",
           "masked_fill_",
           "eq",
           "ne",
           "lt",
           "le",
           "gt",
           "ge",
           "eq_",
           "ne_",
           "logical_and",
           "logical_and_",
           "logical_or",
           "logical_or_",
           "logical_not",
           "logical_not_",
           "bitwise_and",
           "bitwise_or",
           "bitwise_not",
           "bitwise_xor",
           "bitwise_and_",
           "bitwise_or_",
           "bitwise_left_shift",
           "bitwise_right_shift",
           "__rshift__",
           "__lshift__",
           "__and__",
           "__or__",
           "addcmul",
           "addcmul_",
           "addcdiv",
           "addcdiv_",
           "lerp",
           "lerp_",
           "erf",
           "erfinv",
           "floor",
           "floor_",
           "ceil",
           "round",
           "round_",
           "remainder",
           "fmod",
           "floor_divide",
           "isnan",
           "isinf",
           "isfinite",
           "triu",
           "triu_",
           "tril",
           "tril_",
           "glu",
           "glu_backward",
           "hardtanh",
           "mse_loss",
           "mse_loss_backward",
           "copysign",
           "atan2",
           "nan_to_num",
           "nan_to_num_",
           "xlogy"});
  add_all(table, {Work::fill, Moves::written, 1},
          {"zeros", "zeros_like", "ones", "ones_like", "full", "full_like", "new_zeros", "new_ones",
           "new_full", "fill_", "zero_", "arange", "eye", "scalar_tensor", "linspace", "uniform_",
           "normal_", "bernoulli_", "randint"});
}

void add_copies(Table& table) {
  add_all(table, {Work::copy, Moves::twice, 1},
          {"copy_", "clone", "contiguous", "cat", "stack", "roll", "repeat", "flip",
           "pixel_shuffle", "pixel_unshuffle", "constant_pad_nd", "index_fill", "index_fill_",
           "_pad_circular", "reflection_pad2d", "im2col", "col2im", "repeat_interleave"});
  table["_to_copy"] = {Work::copy, Moves::all, 1};
  table["to"] = {Work::copy, Moves::all, 1};
  // A tensor of zeros, then the piece into its place.
  add_all(table, {Work::copy, Moves::all, 2},
          {"slice_backward", "select_backward", "narrow_backward", "split_backward",
           "diagonal_backward", "unfold_backward"});
  add_all(table, {Work::copy, Moves::all, 1},
          {"upsample_nearest2d", "upsample_nearest2d_backward", "upsample_bilinear2d",
           "upsample_bilinear2d_backward", "avg_pool2d", "avg_pool2d_backward"});
}

void add_reductions(Table& table) {
  add_all(
      table, {Work::reduce, Moves::all, 1},
      {"sum",    "mean",      "amax",          "amin",         "max",          "min",
       "argmax", "argmin",    "prod",          "any",          "all",          "linalg_vector_norm",
       "norm",   "logsumexp", "count_nonzero", "var",          "var_mean",     "std",
       "equal",  "bincount",  "histc",         "_is_all_true", "_is_any_true", "dot",
       "vdot"});
  add_all(table, {Work::norm, Moves::all, 1},
          {"native_layer_norm", "_fused_rms_norm", "native_group_norm", "native_batch_norm"});
  add_all(table, {Work::norm_backward, Moves::all, 3},
          {"native_layer_norm_backward", "_fused_rms_norm_backward", "native_group_norm_backward",
           "native_batch_norm_backward"});
  add_all(table, {Work::softmax, Moves::all, 1}, {"_softmax", "_log_softmax"});
  add_all(table, {Work::softmax_backward, Moves::all, 1},
          {"_softmax_backward_data", "_log_softmax_backward_data"});
  add_all(table, {Work::scan, Moves::all, 2}, {"cumsum", "cumsum_", "cumprod", "logcumsumexp"});
  add_all(table, {Work::sort, Moves::all, 6},
          {"sort", "argsort", "topk", "kthvalue", "unique", "_unique2", "nonzero", "multinomial",
           "randperm", "searchsorted", "bucketize"});
}

void add_indexing(Table& table) {
  add_all(
      table, {Work::lookup, Moves::twice, 1},
      {"embedding", "index_select", "gather", "index", "take", "take_along_dim", "masked_select"});
  add_all(table, {Work::scatter, Moves::all, 1},
          {"index_add", "index_add_", "index_put", "index_put_", "_index_put_impl_", "scatter",
           "scatter_", "scatter_add", "scatter_add_", "index_copy", "index_copy_", "scatter_reduce",
           "masked_scatter", "one_hot"});
  // Indices are sorted, equal ones are found and their rows added.
  table["embedding_dense_backward"] = {Work::scatter, Moves::all, 10};
  table["nll_loss_forward"] = {Work::lookup, Moves::twice, 1};
  table["nll_loss_backward"] = {Work::fill, Moves::written, 2};
}

void add_updates(Table& table) {
  add_all(table, {Work::update, Moves::adam, 1},
          {"_fused_adam_", "_fused_adamw_", "_fused_sgd_", "_fused_adagrad_"});
  add_all(table, {Work::update, Moves::updated, 1},
          {"_foreach_mul_", "_foreach_add_", "_foreach_sub_", "_foreach_div_", "_foreach_copy_",
           "_foreach_lerp_", "_foreach_addcmul_", "_foreach_addcdiv_", "_foreach_sqrt_",
           "_foreach_zero_", "_foreach_clamp_max_", "_foreach_neg_", "_foreach_sqrt",
           "_foreach_add", "_foreach_mul", "_foreach_div", "_foreach_maximum_",
           "_amp_foreach_non_finite_check_and_unscale_"});
  add_all(table, {Work::update, Moves::read, 2}, {"_foreach_norm", "_foreach_max", "_foreach_abs"});
  table["_amp_update_scale_"] = {Work::pointwise, Moves::all, 1};
}

void add_products(Table& table) {
  add_all(table, {Work::gemm, Moves::all, 1},
          {"mm", "addmm", "addmm_", "linear", "matmul", "mv", "addmv", "addmv_",
           "_addmm_activation", "_int_mm", "_scaled_mm", "_scaled_mm_v2"});
  add_all(table, {Work::batched, Moves::all, 1},
          {"bmm", "baddbmm", "baddbmm_", "addbmm", "addbmm_"});
  add_all(table, {Work::grouped, Moves::all, 1},
          {"_grouped_mm", "_scaled_grouped_mm", "_scaled_grouped_mm_v2"});
  add_all(table, {Work::convolution, Moves::all, 1},
          {"convolution", "convolution_overrideable", "cudnn_convolution"});
  table["convolution_backward"] = {Work::convolution_backward, Moves::all, 3};
  add_all(table, {Work::attention, Moves::all, 1},
          {"scaled_dot_product_attention", "_scaled_dot_product_flash_attention",
           "_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_efficient_attention",
           "_scaled_dot_product_cudnn_attention", "_flash_attention_forward",
           "_efficient_attention_forward"});
  add_all(table, {Work::attention_backward, Moves::all, 3},
          {"_scaled_dot_product_flash_attention_backward",
           "_scaled_dot_product_flash_attention_for_cpu_backward",
           "_scaled_dot_product_efficient_attention_backward",
           "_scaled_dot_product_cudnn_attention_backward", "_flash_attention_backward",
           "_efficient_attention_backward"});
}

const Table& aten_kinds() {
  static const Table table = [] {
    Table all;
    add_free(all);
    add_pointwise(all);
    add_copies(all);
    add_reductions(all);
    add_indexing(all);
    add_updates(all);
    add_products(all);
    return all;
  }();
  return table;
}

// braid's own kernels.
const Table& braid_kinds() {
  static const Table table = {
      {"adam_", {Work::update, Moves::adam, 1}},
      {"keep_mask", {Work::mask, Moves::written, 1}},
      {"row_logsumexp", {Work::loss, Moves::all, 1}},
      {"cross_entropy_in_place", {Work::loss_backward, Moves::updated, 1}},
      {"scale_in_place", {Work::pointwise, Moves::nothing, 1}},  // by 1, mostly
      {"cross_entropy_grad", {Work::loss_backward, Moves::all, 1}},
      {"pack_bits", {Work::mask, Moves::all, 1}},
      {"unpack_bits", {Work::mask, Moves::all, 1}},
      {"gate_by_bits", {Work::mask, Moves::all, 1}},
      {"quantize_blocks", {Work::mask, Moves::all, 1}},
      {"dequantize_blocks", {Work::mask, Moves::all, 1}},
      {"layer_norm", {Work::norm, Moves::all, 1}},
      {"rms_norm", {Work::norm, Moves::all, 1}},
      {"layer_norm_grad", {Work::norm_backward, Moves::all, 2}},
      {"rms_norm_grad", {Work::norm_backward, Moves::all, 2}},
      {"keep_part", {Work::mask, Moves::written, 1}},
      {"linear_gelu", {Work::gemm, Moves::all, 1}},
      {"gelu", {Work::pointwise, Moves::all, 1}},
      {"gelu_grad", {Work::pointwise, Moves::all, 1}},
      {"gelu_grad_", {Work::pointwise, Moves::last_too, 1}},
      {"swiglu", {Work::pointwise, Moves::all, 1}},
      {"swiglu_grad", {Work::pointwise, Moves::all, 1}},
      {"swiglu_grad_", {Work::pointwise, Moves::last_too, 1}},
      {"rotary", {Work::pointwise, Moves::all, 1}},
      {"column_sum", {Work::reduce, Moves::all, 1}},
      {"fp8_scale", {Work::reduce, Moves::read, 2}},
      {"fp8_codes", {Work::copy, Moves::all, 1}},
      {"fp8_rows", {Work::copy, Moves::all, 1}},
      {"pad_lanes", {Work::copy, Moves::all, 1}},
      {"trim_lanes", {Work::copy, Moves::all, 1}},
      {"attention", {Work::attention, Moves::all, 1}},
      {"attention_grad", {Work::attention_backward, Moves::all, 3}},
      {"window_attention", {Work::attention, Moves::all, 1}},
      {"window_attention_grad", {Work::attention_backward, Moves::all, 2}},
  };
  return table;
}

double sum_bytes(const std::vector<memory::TensorShape>& tensors) {
  double bytes = 0;
  for (const memory::TensorShape& tensor : tensors) bytes += static_cast<double>(tensor.bytes());
  return bytes;
}

}  // namespace

std::string_view to_text(Work work) {
  constexpr std::array<std::string_view, 25> names = {"view",
                                                      "nothing",
                                                      "fill",
                                                      "pointwise",
                                                      "copy",
                                                      "reduce",
                                                      "norm",
                                                      "norm_backward",
                                                      "softmax",
                                                      "softmax_backward",
                                                      "lookup",
                                                      "scatter",
                                                      "sort",
                                                      "scan",
                                                      "update",
                                                      "mask",
                                                      "loss",
                                                      "loss_backward",
                                                      "gemm",
                                                      "batched",
                                                      "grouped",
                                                      "convolution",
                                                      "convolution_backward",
                                                      "attention",
                                                      "attention_backward"};
  return names.at(static_cast<size_t>(work));
}

std::optional<OpKind> kind_of(std::string_view name) {
  const bool own = name.starts_with("braid::");
  const Table& table = own ? braid_kinds() : aten_kinds();
  const size_t colons = name.find("::");
  if (colons != std::string_view::npos) name.remove_prefix(colons + 2);
  auto found = table.find(name);
  if (found == table.end() && name.ends_with('_')) {  // in place, as its result elsewhere
    name.remove_suffix(1);
    found = table.find(name);
  }
  if (found == table.end()) return std::nullopt;
  return found->second;
}

double bytes_moved(const OpKind& kind, const memory::Operator& op) {
  switch (kind.moves) {
    case Moves::nothing:
      return 0;
    case Moves::written:
      return sum_bytes(op.outputs);
    case Moves::twice:
      return 2 * sum_bytes(op.outputs);
    case Moves::updated:
      return 2 * sum_bytes(op.inputs);
    case Moves::read:
      return sum_bytes(op.inputs);
    case Moves::adam:
      return sum_bytes(op.inputs) * 7 / 4;
    case Moves::last_too:
      return sum_bytes(op.inputs) + sum_bytes(op.outputs) +
             (op.inputs.empty() ? 0 : static_cast<double>(op.inputs.back().bytes()));
    case Moves::all:
      break;
  }
  return sum_bytes(op.inputs) + sum_bytes(op.outputs);
}

}  // namespace braid::plan
