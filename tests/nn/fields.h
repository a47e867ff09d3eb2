// SPDX-License-Identifier: BSD-3-Clause
// For models of fields: one pass against a golden file, by largest difference over largest value.
#pragma once
#include <cstdlib>

#include "nn/golden.h"

namespace braid::test {

// Some sandboxes report AMX and then lose the tile registers, which ends 16-bit convolutions of
// oneDNN with SIGILL. It reads this before its first kernel; a value given from outside stays.
inline const int no_amx = setenv("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16", /*overwrite=*/0);

inline double largest_difference(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor x = a.detach().to(c10::kDouble), y = b.detach().to(c10::kDouble);
  if (x.sizes() != y.sizes()) return 1e300;
  return x.sub(y).abs().max().item<double>() / y.abs().max().item<double>();
}

// Output, loss and the gradient of every parameter but those whose true gradient is 0 (names that
// end in `zero`).
inline void expect_golden_fields(nn::Model& model, const Golden& golden, nn::Loss kind,
                                 double tolerance, std::string_view zero = "attn.k.bias") {
  load_golden(model, golden);
  const at::Tensor output = model.forward(golden.at("input"), {});
  EXPECT_LT(largest_difference(output, golden.at("output")), tolerance);
  const at::Tensor loss = nn::loss(kind, output, golden.at("target"));
  EXPECT_NEAR(loss.item<double>() / golden.at("loss").item<double>(), 1, tolerance);
  loss.backward();
  for (const Param& param : model.params()) {
    ASSERT_TRUE(param.tensor.grad().defined()) << param.name;
    if (param.name.ends_with(zero)) continue;
    EXPECT_LT(largest_difference(param.tensor.grad(), golden.at("grad." + param.name)), tolerance)
        << param.name;
  }
}

}  // namespace braid::test
