// SPDX-License-Identifier: BSD-3-Clause
// What bench_kernels times: an operator at the shape of a model, beside the ATen operators that do
// the same.
//
//   KernelCase one = {.leaves = {x}, .ours = [=] { return list_of(kernels::norm_rows(x, w)); }};
//   one.forward.bytes = bytes_of({x}) + bytes_of({y});
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace braid::bench {

struct Work {
  double flops = 0;  // of products; else
  double bytes = 0;  // that have to be read and written once
};

struct KernelCase {
  std::vector<at::Tensor> leaves;  // whose gradients are wanted; none: forward alone
  std::function<std::vector<at::Tensor>()> ours;
  std::function<std::vector<at::Tensor>()> aten = {};  // null: there is no such operator
  Work forward = {}, backward = {};
};

// Sizes of a model of bench/models.json, and how much smaller to try them on a CPU.
struct ModelShape {
  std::string name;
  int64_t batch = 0, tokens = 0, width = 0, heads = 0, hidden = 0;
  int64_t kv_heads = 0, vocabulary = 0;
  bool causal = false;
  int64_t rows() const { return batch * tokens; }
  int64_t head() const { return width / heads; }
};

struct NamedCase {
  std::string op, model;
  std::function<KernelCase()> make;  // its tensors live as long as the case
};

// Where and how large.
struct KernelPlace {
  c10::Device device = c10::kCPU;
  int64_t shrink = 1;  // batches and tokens are divided by it
};

std::vector<ModelShape> model_shapes(const KernelPlace& place);

at::Tensor random_tensor(at::IntArrayRef sizes, c10::ScalarType dtype, c10::Device device);
at::Tensor leaf(at::IntArrayRef sizes, c10::ScalarType dtype, c10::Device device);
double bytes_of(const std::vector<at::Tensor>& tensors);

std::vector<NamedCase> product_cases(const KernelPlace& place);
std::vector<NamedCase> attention_cases(const KernelPlace& place);
std::vector<NamedCase> norm_cases(const KernelPlace& place);
std::vector<NamedCase> linear_cases(const KernelPlace& place);
std::vector<NamedCase> window_cases(const KernelPlace& place);
std::vector<NamedCase> update_cases(const KernelPlace& place);

}  // namespace braid::bench
