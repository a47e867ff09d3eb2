// SPDX-License-Identifier: BSD-3-Clause
// Long products of 8-bit floats on the GPU: what they lose against fp64 is what rounding of their
// operands explains.
#include "braid/kernels/fp8.h"

#include <ATen/ops/randn.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>

#include "braid/kernels/linear.h"
#include "support/cuda.h"

namespace braid {
namespace {

using kernels::Coded;
using Tensors = std::vector<at::Tensor>;

class Fp8OnGpu : public OnGpu {
 protected:
  static at::Tensor random(at::IntArrayRef sizes, double size = 1) {
    return at::randn(sizes, at::TensorOptions(c10::kBFloat16).device(gpu())).mul_(size);
  }
  static at::Tensor exact(const at::Tensor& a, const at::Tensor& b) {
    return a.to(c10::kDouble).mm(b.to(c10::kDouble));
  }
};

struct Loss {
  double norm;    // of the difference, over that of what is wanted
  double shrunk;  // share that is missing in the mean
};

Loss loss_of(const at::Tensor& got, const at::Tensor& wanted) {
  const at::Tensor y = got.to(c10::kDouble), square = wanted.mul(wanted).sum();
  return {y.sub(wanted).norm().div_(square.sqrt()).item<double>(),
          1 - y.mul(wanted).sum().div_(square).item<double>()};
}

// The same codes in fp64: what is left is the way of summing and the result in bf16 (0.17 %).
TEST_F(Fp8OnGpu, SumsOfLongProducts) {
  for (const int64_t length : {4096, 14336, 16384})
    for (const bool rows : {false, true}) {
      const at::Tensor x = random({1024, length}), w = random({2048, length});
      const Coded a = rows ? kernels::coded_rows({x}) : kernels::coded({x}),
                  b = rows ? kernels::coded_rows({w}) : kernels::coded({w});
      const at::Tensor scale_b = rows ? b.scale.t() : b.scale;
      const at::Tensor wanted =
          exact(a.plain.to(c10::kFloat).mul_(a.scale), b.plain.to(c10::kFloat).mul_(b.scale).t());
      for (const bool fast : {false, true}) {
        const Loss loss = loss_of(
            kernels::coded_product({a.plain, b.plain.t(), a.scale, scale_b}, {.fast = fast}),
            wanted);
        fmt::print("length {} scales of {}, sums {}: off by {:.3f} %, shrunk by {:.3f} %\n", length,
                   rows ? "rows" : "tensors", fast ? "fast" : "exact", 100 * loss.norm,
                   100 * loss.shrunk);
        EXPECT_LT(loss.norm, fast ? 0.005 : 0.0025) << length << " " << rows;
        EXPECT_LT(std::abs(loss.shrunk), fast ? 0.001 : 0.0002) << length << " " << rows;
      }
    }
}

TEST_F(Fp8OnGpu, LayersLoseWhatRoundingExplains) {
  const at::Tensor x = random({2048, 4096}), w = random({1024, 4096}),
                   dy = random({2048, 1024}, 1e-9);
  const Tensors wanted = {exact(x, w.t()), exact(dy, w), exact(dy.t(), x)};
  for (const Fp8 how : {Fp8::tensor, Fp8::row}) {
    const at::Tensor a = x.detach().clone().requires_grad_(),
                     b = w.detach().clone().requires_grad_();
    const Tensors y = kernels::linears(a, {{b}}, {.fp8 = how});
    const Tensors grads = torch::autograd::grad(y, {a, b}, {dy});
    const double limits[] = {0.04, how == Fp8::row ? 0.04 : 0.065, how == Fp8::row ? 0.005 : 0.065};
    const Tensors got = {y[0], grads[0], grads[1]};
    for (size_t i = 0; i < got.size(); ++i) {
      const Loss loss = loss_of(got[i], wanted[i]);
      fmt::print("fp8 by {}, {}: off by {:.2f} %, shrunk by {:.2f} %\n",
                 how == Fp8::row ? "rows" : "tensors",
                 i == 0   ? "output"
                 : i == 1 ? "gradient of the input"
                          : "gradient of the weight",
                 100 * loss.norm, 100 * loss.shrunk);
      EXPECT_LT(loss.norm, limits[i]) << static_cast<int>(how) << " result " << i;
    }
  }
}

}  // namespace
}  // namespace braid
