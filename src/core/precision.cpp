// SPDX-License-Identifier: BSD-3-Clause
#include "braid/core/precision.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>

#include "braid/core/error.h"

namespace braid {
namespace {

Precision uniform(std::string name, c10::ScalarType type) {
  return {.name = std::move(name),
          .param = type,
          .compute = type,
          .stream = type,
          .reduce = type,
          .master = type};
}

Precision mixed(std::string name, c10::ScalarType compute) {
  Precision policy;
  policy.name = std::move(name);
  policy.compute = compute;
  policy.scaled_loss = compute == c10::kHalf;
  return policy;
}

Precision with_tf32() {
  Precision policy = uniform("tf32", c10::kFloat);
  policy.tf32 = true;
  return policy;
}

// Weights in bf16; sums of gradients, states and the weights that are updated in fp32.
Precision with_masters() {
  Precision policy = mixed("bf16_masters", c10::kBFloat16);
  policy.param = policy.stream = c10::kBFloat16;
  policy.main_gradients = true;
  return policy;
}

// Weights, gradients and optimizer states all in bf16: half the memory, for those who accept the
// rounding.
const std::array<Precision, 7>& policies() {
  static const std::array<Precision, 7> all = {
      uniform("fp64", c10::kDouble),         uniform("fp32", c10::kFloat), with_tf32(),
      mixed("bf16", c10::kBFloat16),         mixed("fp16", c10::kHalf),    with_masters(),
      uniform("bf16_params", c10::kBFloat16)};
  return all;
}

}  // namespace

std::vector<std::string> precision_names() {
  std::vector<std::string> names;
  for (const Precision& policy : policies()) names.push_back(policy.name);
  return names;
}

Precision precision(std::string_view name) {
  for (const Precision& policy : policies())
    if (policy.name == name) return policy;
  const std::string guess = nearest(name, precision_names());
  throw ConfigError({.what = fmt::format("precision \"{}\" is not known", name),
                     .why = fmt::format("the policies are {}", fmt::join(precision_names(), ", ")),
                     .fix = fmt::format("train.precision: {}", guess.empty() ? "fp32" : guess)});
}

std::string_view dtype_name(c10::ScalarType type) {
  switch (type) {
    case c10::kDouble:
      return "fp64";
    case c10::kFloat:
      return "fp32";
    case c10::kHalf:
      return "fp16";
    case c10::kBFloat16:
      return "bf16";
    case c10::kLong:
      return "int64";
    case c10::kInt:
      return "int32";
    case c10::kShort:
      return "int16";
    case c10::kChar:
      return "int8";
    case c10::kByte:
      return "uint8";
    case c10::kBool:
      return "bool";
    case c10::kFloat8_e4m3fn:
    case c10::kFloat8_e5m2:
      return "fp8";
    default:
      return c10::toString(type);
  }
}

void check(const Precision& policy) {
  if (policy.compute == c10::kHalf && !policy.scaled_loss)
    throw ConfigError(
        {.what = fmt::format("precision {} computes in fp16 without a loss scaler", policy.name),
         .why = "gradients below 6e-8 vanish in fp16",
         .fix = "use precision fp16 (scaled) or bf16"});
  if (policy.fp8 != Fp8::off && policy.compute != c10::kBFloat16)
    throw ConfigError(
        {.what = fmt::format("train.fp8 with computation in {}", dtype_name(policy.compute)),
         .why = "what stands between products of 8-bit floats is bf16",
         .fix = "set train.precision=bf16, bf16_masters or bf16_params, or train.fp8=off"});
  if (c10::promoteTypes(policy.stream, policy.compute) != policy.stream)
    throw ConfigError(
        {.what = fmt::format("a residual stream in {} under computation in {}",
                             dtype_name(policy.stream), dtype_name(policy.compute)),
         .why = "what a block adds to the stream would lose bits on top of the sum's",
         .fix = fmt::format("set train.stream={} or a wider dtype", dtype_name(policy.compute))});
  if (c10::elementSize(policy.master) < c10::elementSize(policy.param))
    throw ConfigError({.what = fmt::format("master weights in {} under parameters in {}",
                                           dtype_name(policy.master), dtype_name(policy.param)),
                       .why = "an update would lose bits that the parameter holds",
                       .fix = "give master the dtype of the parameters or a wider one"});
}

}  // namespace braid
