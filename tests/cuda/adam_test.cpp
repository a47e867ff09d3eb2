// SPDX-License-Identifier: BSD-3-Clause
// The update in one pass on the GPU against its CPU twin: every mix of dtypes, addresses that are
// no multiple of 16 bytes, more tensors than one launch takes.
#include "braid/kernels/adam.h"

#include <gtest/gtest.h>

#include <ATen/ops/allclose.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <optional>

#include "support/cuda.h"
#include "support/drawn.h"

namespace braid {
namespace {

using kernels::AdamTensors;

struct AdamDtypes {
  c10::ScalarType target, grad;
  std::optional<c10::ScalarType> weight;
};

// `shift`: elements that stand before the first one in memory.
at::Tensor drawn_at(int64_t size, int64_t shift, const std::string& name, c10::ScalarType dtype) {
  return test::drawn({size + shift}, 1, name).to(dtype).narrow(0, shift, size);
}

AdamTensors adam_states(const AdamDtypes& dtypes, int64_t shift) {
  AdamTensors all;
  for (int i = 0; i < 130; ++i) {
    const int64_t size = i == 7 ? 50'001 : i == 9 ? 0 : 1 + 37 * i;
    const auto name = [&](const char* what) { return what + std::to_string(i); };
    all.targets.push_back(drawn_at(size, shift, name("p"), dtypes.target));
    all.grads.push_back(drawn_at(size, shift, name("g"), dtypes.grad));
    all.exp_avgs.push_back(drawn_at(size, shift, name("m"), dtypes.target));
    all.exp_avg_sqs.push_back(drawn_at(size, shift, name("v"), dtypes.target).square());
    if (dtypes.weight) all.weights.push_back(drawn_at(size, shift, name("w"), *dtypes.weight));
    all.steps.push_back(at::full({}, 1.0 + i, c10::kFloat));
  }
  return all;
}

AdamTensors adam_on(const AdamTensors& from, c10::Device device) {
  AdamTensors all = from;
  for (auto* list :
       {&all.targets, &all.grads, &all.exp_avgs, &all.exp_avg_sqs, &all.weights, &all.steps})
    for (at::Tensor& tensor : *list) {
      // The same place within 16 bytes as on the host.
      const at::Tensor whole = at::zeros({tensor.numel() + 8}, tensor.options().device(device));
      const int64_t shift = tensor.storage_offset() % 8;
      const at::Tensor there = whole.narrow(0, shift, tensor.numel()).view(tensor.sizes());
      there.copy_(tensor);
      tensor = there;
    }
  return all;
}

void expect_same(const std::vector<at::Tensor>& found, const std::vector<at::Tensor>& wanted) {
  for (size_t i = 0; i < wanted.size(); ++i) {
    const auto dtype = wanted[i].scalar_type();
    const double tolerance = dtype == at::kDouble ? 1e-13 : dtype == at::kFloat ? 2e-6 : 1e-2;
    EXPECT_TRUE(at::allclose(found[i].cpu(), wanted[i], tolerance, tolerance)) << i << dtype;
  }
}

TEST_F(OnGpu, AdamEqualsItsCpuTwin) {
  using at::kBFloat16, at::kDouble, at::kFloat, at::kHalf;
  const std::vector<AdamDtypes> all = {{kDouble, kDouble, {}},     {kFloat, kFloat, {}},
                                       {kFloat, kBFloat16, {}},    {kFloat, kFloat, kBFloat16},
                                       {kFloat, kHalf, kHalf},     {kFloat, kBFloat16, kBFloat16},
                                       {kBFloat16, kBFloat16, {}}, {kBFloat16, kFloat, {}},
                                       {kHalf, kHalf, {}},         {kDouble, kBFloat16, kBFloat16}};
  for (const AdamDtypes& dtypes : all)
    for (const int64_t shift : {0, 3})
      for (const bool decoupled : {true, false}) {
        const AdamTensors host = adam_states(dtypes, shift), there = adam_on(host, gpu());
        kernels::AdamNumbers numbers{.lr = 0.01, .decay = 0.1, .decoupled = decoupled};
        numbers.factor = at::full({}, 0.37, kFloat);
        numbers.found_inf = at::full({}, 0.0, kFloat);
        kernels::adam(host, numbers);
        numbers.lr_there = at::full({}, 0.01, kDouble).to(gpu());
        numbers.factor = numbers.factor.to(gpu());
        numbers.found_inf = numbers.found_inf.to(gpu());
        kernels::adam(there, numbers);
        expect_same(there.targets, host.targets);
        expect_same(there.exp_avgs, host.exp_avgs);
        expect_same(there.exp_avg_sqs, host.exp_avg_sqs);
        expect_same(there.weights, host.weights);
      }
}

TEST_F(OnGpu, AdamLeavesAllAsItIsAfterAnInfinity) {
  const AdamTensors host = adam_states({at::kFloat, at::kFloat, {}}, 0);
  const AdamTensors there = adam_on(host, gpu());
  kernels::adam(there, {.found_inf = at::full({}, 1.0, at::kFloat).to(gpu())});
  for (size_t i = 0; i < host.targets.size(); ++i)
    EXPECT_TRUE(there.targets[i].cpu().equal(host.targets[i]));
}

}  // namespace
}  // namespace braid
