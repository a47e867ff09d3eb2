// SPDX-License-Identifier: BSD-3-Clause
// Which dtype each kind of number has. Casts are explicit: modules compute in `compute`, losses and
// norms in fp32 or better.
//
//   Precision p = precision("bf16");   // parameters fp32, computation bf16
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <c10/core/ScalarType.h>

namespace braid {

// Linear layers of blocks as products of 8-bit floats: off, with one scale a tensor, or with one a
// row (a token, an output) and gradients of weights in bf16.
enum class Fp8 : uint8_t { off, tensor, row };

struct Precision {
  std::string name = "fp32";
  c10::ScalarType param = c10::kFloat;    // what the model holds
  c10::ScalarType compute = c10::kFloat;  // matmuls, convolutions, attention
  c10::ScalarType stream = c10::kFloat;   // what blocks add their branches to
  c10::ScalarType reduce = c10::kFloat;   // gradients on the wire
  c10::ScalarType master = c10::kFloat;   // what the optimizer updates; equal to param: no copy
  bool tf32 = false;                      // fp32 matmuls on tensor cores (CUDA)
  bool main_gradients = false;            // held, and summed over passes, in the dtype of master
  bool scaled_loss = false;               // fp16: small gradients need the dynamic loss scaler
  Fp8 fp8 = Fp8::off;                     // with compute in bf16
  bool operator==(const Precision&) const = default;
};

std::vector<std::string> precision_names();  // fp64, fp32, tf32, bf16, fp16, bf16_masters, ...
Precision precision(std::string_view name);  // throws ConfigError with the nearest name
std::string_view dtype_name(c10::ScalarType type);  // fp32, bf16, int64, ...
void check(const Precision& policy);  // throws ConfigError for a policy that loses bits in silence

}  // namespace braid
