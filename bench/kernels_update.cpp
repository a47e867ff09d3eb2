// SPDX-License-Identifier: BSD-3-Clause
// Both ends of a step: the head with its cross-entropy, and the update.
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>

#include "braid/kernels/adam.h"
#include "braid/kernels/head_loss.h"
#include "kernel_case.h"

namespace braid::bench {
namespace {

KernelCase head_case(const ModelShape& m, const KernelPlace& place) {
  const auto held = m.name == "llama_8l" ? c10::kBFloat16 : c10::kFloat;
  const at::Tensor x = leaf({m.rows(), m.width}, c10::kBFloat16, place.device),
                   weight = leaf({m.vocabulary, m.width}, held, place.device),
                   target = at::randint(m.vocabulary, {m.rows()},
                                        at::TensorOptions(c10::kLong).device(place.device));
  const at::Tensor count = at::full({}, static_cast<double>(m.rows()),
                                    at::TensorOptions(c10::kFloat).device(place.device));
  const double flops = 2.0 * static_cast<double>(m.rows()) * static_cast<double>(m.vocabulary) *
                       static_cast<double>(m.width);
  return {
      .leaves = {x, weight},
      .ours =
          [=] {
            return std::vector<at::Tensor>{kernels::head_loss(x, weight, target, {}).div(count)};
          },
      .aten =
          [=] {
            const at::Tensor scores = at::linear(x, weight.to(c10::kBFloat16));
            return std::vector<at::Tensor>{at::cross_entropy_loss(scores.to(c10::kFloat), target)};
          },
      .forward = {.flops = 3 * flops},  // the products of backward are made here
      .backward = {}};
}

struct AdamSizes {
  int64_t tensors, elements;  // of each
  c10::ScalarType dtype;
};

KernelCase adam_case(const AdamSizes& sizes, const KernelPlace& place) {
  kernels::AdamTensors t;
  for (int64_t i = 0; i < sizes.tensors; ++i) {
    const at::Tensor one =
        random_tensor({sizes.elements / place.shrink}, sizes.dtype, place.device);
    t.targets.push_back(one);
    t.grads.push_back(one.clone());
    t.exp_avgs.push_back(at::zeros_like(one));
    t.exp_avg_sqs.push_back(at::zeros_like(one));
    t.steps.push_back(at::full({}, 1.0, at::TensorOptions(c10::kFloat).device(place.device)));
  }
  return {.leaves = {},
          .ours =
              [=] {
                const c10::NoGradGuard no_grad;
                kernels::adam(t, {.lr = 1e-4, .decay = 0.1});
                return std::vector<at::Tensor>{};
              },
          .aten =
              [=] {
                const c10::NoGradGuard no_grad;
                at::_fused_adamw_(t.targets, t.grads, t.exp_avgs, t.exp_avg_sqs, {}, t.steps, 1e-4,
                                  0.9, 0.999, 0.1, 1e-8, false, false);
                return std::vector<at::Tensor>{};
              },
          .forward = {.bytes = 7 * bytes_of(t.targets)}};
}

}  // namespace

std::vector<NamedCase> update_cases(const KernelPlace& place) {
  std::vector<NamedCase> all;
  for (const ModelShape& m : model_shapes(place))
    if (m.vocabulary > 0) all.push_back({"head loss", m.name, [=] { return head_case(m, place); }});
  const AdamSizes small = {148, 160 * 150, c10::kFloat}, gpt = {148, 840'000, c10::kFloat},
                  vit = {200, 1'750'000, c10::kFloat}, llama = {74, 37'777'777, c10::kBFloat16};
  for (const auto& [name, sizes] : {std::pair{"swinir", small}, std::pair{"gpt", gpt},
                                    std::pair{"vit_d1536", vit}, std::pair{"llama_8l", llama}})
    all.push_back({"adam", name, [=, sizes = sizes] { return adam_case(sizes, place); }});
  return all;
}

}  // namespace braid::bench
