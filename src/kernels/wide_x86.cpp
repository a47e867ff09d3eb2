// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/wide.h"

namespace braid::kernels {
namespace {

Instructions ask_instructions() {
  const auto all = [](auto... has) { return (has && ...); };
  if (!all(__builtin_cpu_supports("avx2"), __builtin_cpu_supports("fma"),
           __builtin_cpu_supports("f16c")))
    return Instructions::any;
  return all(__builtin_cpu_supports("avx512f"), __builtin_cpu_supports("avx512bw"),
             __builtin_cpu_supports("avx512dq"), __builtin_cpu_supports("avx512vl"))
             ? Instructions::avx512
             : Instructions::avx2;
}

}  // namespace

Instructions widest_instructions() {
  static const Instructions found = ask_instructions();
  return found;
}

}  // namespace braid::kernels
