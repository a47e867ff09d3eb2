// SPDX-License-Identifier: BSD-3-Clause
#include <ATen/ops/cos.h>
#include <ATen/ops/erf.h>
#include <ATen/ops/erfc.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/expm1.h>
#include <ATen/ops/full.h>
#include <ATen/ops/log.h>
#include <ATen/ops/log1p.h>
#include <ATen/ops/log2.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/sqrt.h>
#include <ATen/ops/tanh.h>

#include <mutex>

#include "braid/core/cpu.h"

namespace braid {

void settle_math() {
  static std::once_flag once;
  std::call_once(once, [] {
    using Function = at::Tensor (*)(const at::Tensor&);
    const Function functions[] = {at::exp, at::expm1, at::log,  at::log1p, at::log2, at::tanh,
                                  at::erf, at::erfc,  at::sqrt, at::sin,   at::cos};
    for (const c10::ScalarType dtype : {c10::kFloat, c10::kDouble}) {
      const at::Tensor half = at::full({64}, 0.5, at::TensorOptions(c10::kCPU).dtype(dtype));
      for (const Function function : functions) function(half);
    }
  });
}

}  // namespace braid
