// SPDX-License-Identifier: BSD-3-Clause
// A layer that gives gelu_tanh on the way, by one product or by two passes, against its CPU twin in
// fp64.
#include <ATen/Context.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/linear.h>
#include <torch/csrc/autograd/autograd.h>

#include "braid/kernels/linear.h"
#include "support/cuda.h"
#include "support/drawn.h"

namespace braid {
namespace {

using kernels::Activation;
using test::drawn;
using Tensors = std::vector<at::Tensor>;

struct GeluSizes {
  int64_t rows, in, out;
};

class LinearGeluOnGpu : public OnGpu {
 protected:
  void SetUp() override {
    OnGpu::SetUp();
    if (accelerator() != nullptr) accelerator()->tune_products(true);
  }
  void TearDown() override {
    if (accelerator() == nullptr) return;
    accelerator()->tune_products(false);
    at::globalContext().setDeterministicAlgorithms(false, false);
  }

  static double away(const at::Tensor& found, const at::Tensor& expected) {
    const at::Tensor wide = expected.to(at::kCPU).to(at::kDouble);
    return found.to(at::kCPU).to(at::kDouble).sub(wide).norm().div(wide.norm()).item<double>();
  }

  // x, weight (a transposed view if `turned`) and bias, rounded to `dtype`.
  static Tensors inputs_of(const GeluSizes& n, at::ScalarType dtype, bool turned) {
    const at::Tensor w = turned ? drawn({n.in, n.out}, 1, "w").t() : drawn({n.out, n.in}, 1, "w");
    Tensors all = {drawn({n.rows, n.in}, 1, "x"), w.mul(0.05), drawn({n.out}, 1, "b")};
    for (at::Tensor& each : all)
      each = each.to(gpu(), dtype, false, false, at::MemoryFormat::Preserve);
    return all;
  }

  static std::tuple<at::Tensor, at::Tensor> by_op(const Tensors& in) {
    return c10::Dispatcher::singleton()
        .findSchemaOrThrow("braid::linear_gelu", "")
        .typed<std::tuple<at::Tensor, at::Tensor>(const at::Tensor&, const at::Tensor&,
                                                  const at::Tensor&)>()
        .call(in[0], in[1], in[2]);
  }

  // The second time by the way that the first one found.
  static void expect_twin(const GeluSizes& n, at::ScalarType dtype, bool turned, double limit) {
    const Tensors in = inputs_of(n, dtype, turned);
    ASSERT_EQ(in[1].stride(0), turned ? 1 : n.in);
    const auto [h, value] = by_op(in);
    Tensors host;
    for (const at::Tensor& each : in) host.push_back(each.to(at::kCPU).to(at::kDouble));
    const auto [wanted_h, wanted] = by_op(host);
    EXPECT_EQ(h.scalar_type(), dtype);
    EXPECT_LT(away(h, wanted_h), limit) << n.rows << " x " << n.in << " x " << n.out << turned;
    EXPECT_LT(away(value, wanted), limit) << n.rows << " x " << n.in << " x " << n.out << turned;
    const auto [again, again_value] = by_op(in);
    EXPECT_TRUE(again.equal(h) && again_value.equal(value)) << "the second time";
  }
};

TEST_F(LinearGeluOnGpu, EqualsItsCpuTwinInBothOrdersOfTheWeight) {
  for (const bool turned : {false, true}) {
    expect_twin({2048, 256, 1024}, at::kBFloat16, turned, 1e-2);
    expect_twin({1030, 768, 3072}, at::kBFloat16, turned, 1e-2);
    expect_twin({2048, 256, 1024}, at::kHalf, turned, 2e-3);
  }
}

TEST_F(LinearGeluOnGpu, OddAndSmallSizesAndOtherDtypes) {
  for (const bool turned : {false, true}) {
    expect_twin({2048, 256, 1027}, at::kBFloat16, turned, 1e-2);  // rows of no whole 16 bytes
    expect_twin({2047, 255, 1028}, at::kBFloat16, turned, 1e-2);
    expect_twin({3, 8, 16}, at::kBFloat16, turned, 1e-2);
    expect_twin({512, 72, 40}, at::kDouble, turned, 1e-12);
    expect_twin({512, 72, 40}, at::kFloat, turned, 1e-5);
  }
  const auto [h, value] = by_op(inputs_of({0, 8, 16}, at::kBFloat16, false));
  EXPECT_EQ(value.sizes(), (std::vector<int64_t>{0, 16}));
}

TEST_F(LinearGeluOnGpu, InTwoPassesIfTheSameBitsAreWantedOrNothingIsTuned) {
  const Tensors in = inputs_of({2048, 512, 2048}, at::kBFloat16, true);
  const auto [tuned_h, tuned] = by_op(in);
  at::globalContext().setDeterministicAlgorithms(true, false);
  const auto [h, value] = by_op(in);
  EXPECT_TRUE(value.equal(kernels::activation_value({Activation::gelu_tanh, h})));
  at::globalContext().setDeterministicAlgorithms(false, false);
  accelerator()->tune_products(false);
  const auto [plain_h, plain] = by_op(in);
  EXPECT_TRUE(plain_h.equal(at::linear(in[0], in[1], in[2])));
  EXPECT_TRUE(plain.equal(kernels::activation_value({Activation::gelu_tanh, plain_h})));
  EXPECT_LT(away(tuned_h, h), 4e-3);
  EXPECT_LT(away(tuned, value), 6e-3);
}

TEST_F(LinearGeluOnGpu, TakesTheMemoryOfItsResultsAlone) {
  by_op(inputs_of({2048, 512, 1024}, at::kBFloat16, true));
  const Tensors in = inputs_of({4096, 520, 1024}, at::kBFloat16, true);
  accelerator()->reset_peak(0);
  const int64_t before = accelerator()->requested(0);
  const auto [h, value] = by_op(in);  // a shape that is timed here
  EXPECT_EQ(accelerator()->peak_requested(0) - before, 4 * h.numel());
}

TEST_F(LinearGeluOnGpu, GradientsOfTwoLayersEqualTheirCpuTwins) {
  const auto results = [](c10::Device device, at::ScalarType dtype) {
    Tensors in = {drawn({2, 512, 256}, 1, "x"), drawn({256, 1024}, 1, "w1").mul(0.05),
                  drawn({1024}, 1, "b1"), drawn({1024, 256}, 1, "w2").mul(0.05),
                  drawn({256}, 1, "b2")};
    for (at::Tensor& each : in)
      each = each.to(at::kBFloat16).to(device, dtype).detach().requires_grad_();
    const auto h = kernels::linear_to(in[0], {in[1].t(), in[2]}, Activation::gelu_tanh);
    EXPECT_EQ(h.value.defined(), dtype == at::kBFloat16);
    const at::Tensor y = kernels::linears(h, {{in[3].t(), in[4]}})[0];
    const at::Tensor dy = drawn(y.sizes(), 2, "dy").to(at::kBFloat16).to(y.options());
    Tensors all = torch::autograd::grad({y}, in, {dy});
    all.push_back(y);
    return all;
  };
  const Tensors got = results(gpu(), at::kBFloat16), wanted = results(at::kCPU, at::kDouble);
  for (size_t i = 0; i < got.size(); ++i) EXPECT_LT(away(got[i], wanted[i]), 1e-2) << i;
}

}  // namespace
}  // namespace braid
