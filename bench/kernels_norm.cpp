// SPDX-License-Identifier: BSD-3-Clause
// Norms with and without the addition before them, in the dtypes that training has: a residual
// stream of fp32 with branches of bf16, and all of bf16 for Llama. "wide" is a stream of fp32, too,
// as wide as Llama's: a row fills the registers of a block.
#include <ATen/TensorOperators.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/rms_norm.h>

#include "braid/kernels/norm.h"
#include "kernel_case.h"

namespace braid::bench {
namespace {

struct NormTensors {
  at::Tensor x, branch, weight, bias;
};

NormTensors norm_tensors(const ModelShape& m, const KernelPlace& place) {
  const bool rms = m.name == "llama_8l";
  const auto wide = rms ? c10::kBFloat16 : c10::kFloat;
  NormTensors t = {leaf({m.rows(), m.width}, wide, place.device),
                   leaf({m.rows(), m.width}, c10::kBFloat16, place.device),
                   leaf({m.width}, wide, place.device),
                   {}};
  if (!rms) t.bias = leaf({m.width}, wide, place.device);
  return t;
}

at::Tensor aten_norm(const at::Tensor& x, const NormTensors& t) {
  const at::Tensor y = t.bias.defined() ? at::layer_norm(x, t.weight.sizes(), t.weight, t.bias)
                                        : at::rms_norm(x, t.weight.sizes(), t.weight, 1e-5);
  return y.to(c10::kBFloat16);
}

std::vector<at::Tensor> with_weights(std::vector<at::Tensor> leaves, const NormTensors& t) {
  leaves.push_back(t.weight);
  if (t.bias.defined()) leaves.push_back(t.bias);
  return leaves;
}

KernelCase norm_case(const ModelShape& m, const KernelPlace& place) {
  const NormTensors t = norm_tensors(m, place);
  const double wide = bytes_of({t.x}), narrow = bytes_of({t.branch});
  return {.leaves = with_weights({t.x}, t),
          .ours =
              [=] {
                return std::vector<at::Tensor>{
                    kernels::norm_rows(t.x, {t.weight, t.bias}, {.dtype = c10::kBFloat16})};
              },
          .aten = [=] { return std::vector<at::Tensor>{aten_norm(t.x, t)}; },
          .forward = {.bytes = wide + narrow},
          .backward = {.bytes = 2 * wide + narrow}};
}

// Backward: the gradients of sum and norm come in, that of both x and branch goes out.
KernelCase add_norm_case(const ModelShape& m, const KernelPlace& place) {
  const NormTensors t = norm_tensors(m, place);
  const double wide = bytes_of({t.x}), narrow = bytes_of({t.branch});
  return {.leaves = with_weights({t.x, t.branch}, t),
          .ours =
              [=] {
                const kernels::NormOfSum both = kernels::add_norm_rows(
                    t.x, t.branch, {t.weight, t.bias}, {.dtype = c10::kBFloat16});
                return std::vector<at::Tensor>{both.sum, both.y};
              },
          .aten =
              [=] {
                const at::Tensor sum = t.x + t.branch;
                return std::vector<at::Tensor>{sum, aten_norm(sum, t)};
              },
          .forward = {.bytes = 2 * wide + 2 * narrow},
          .backward = {.bytes = 3 * wide + 2 * narrow}};
}

}  // namespace

std::vector<NamedCase> norm_cases(const KernelPlace& place) {
  std::vector<NamedCase> all;
  std::vector<ModelShape> shapes = model_shapes(place);
  shapes.push_back(shapes.back());
  shapes.back().name = "wide";
  for (const ModelShape& m : shapes) {
    all.push_back({"norm", m.name, [=] { return norm_case(m, place); }});
    all.push_back({"add and norm", m.name, [=] { return add_norm_case(m, place); }});
  }
  return all;
}

}  // namespace braid::bench
