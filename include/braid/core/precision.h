// SPDX-License-Identifier: BSD-3-Clause
// Which dtype each kind of number has. Casts are explicit: modules compute in `compute`, losses and
// norms in fp32 or better.
//
//   Precision p = precision("bf16");   // parameters fp32, computation bf16
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include <c10/core/ScalarType.h>

namespace braid {

struct Precision {
  std::string name = "fp32";
  c10::ScalarType param = c10::kFloat;    // what the model holds
  c10::ScalarType compute = c10::kFloat;  // matmuls, convolutions, attention
  c10::ScalarType reduce = c10::kFloat;   // gradients on the wire
  c10::ScalarType master = c10::kFloat;   // what the optimizer updates; equal to param: no copy
  bool tf32 = false;                      // fp32 matmuls on tensor cores (CUDA)
  bool scaled_loss = false;               // fp16: small gradients need the dynamic loss scaler
  bool operator==(const Precision&) const = default;
};

std::vector<std::string> precision_names();         // fp64, fp32, tf32, bf16, fp16, bf16_params
Precision precision(std::string_view name);         // throws ConfigError with the nearest name
std::string_view dtype_name(c10::ScalarType type);  // fp32, bf16, int64, ...
void check(const Precision& policy);  // throws ConfigError for a policy that loses bits in silence

}  // namespace braid
