// SPDX-License-Identifier: BSD-3-Clause
// kernels/norm.h on the GPU against its CPU twin in fp64: values and gradients, all dtypes that
// meet, widths for each way a row is spread over threads, odd ones, rows too long for registers.
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/autograd.h>

#include <vector>

#include "braid/core/rng.h"
#include "braid/kernels/norm.h"
#include "support/cuda.h"

namespace braid {
namespace {

using Many = std::vector<at::Tensor>;

struct NormCase {
  int64_t rows, width;
  c10::ScalarType stream, compute, weights;
  bool layer = true, added = true;
  bool dropped = false;  // samples of three rows, of the branch
};

at::Tensor on_host(at::IntArrayRef shape, std::string_view name, c10::ScalarType dtype) {
  at::Tensor values = at::empty(shape, c10::kDouble);
  fill_normal(values, random_key(11, name));
  return values.to(dtype);
}

Many host_inputs(const NormCase& of) {
  std::vector<int64_t> shape = {of.rows, of.width};
  if (of.dropped) shape = {of.rows / 3, 3, of.width};
  Many inputs = {on_host(shape, "x", of.stream), on_host({of.width}, "w", of.weights)};
  if (of.layer) inputs.push_back(on_host({of.width}, "b", of.weights));
  if (of.added) inputs.push_back(on_host(shape, "branch", of.compute));
  return inputs;
}

// Results and gradients of all inputs; in fp64 `to` says otherwise.
Many norm_results(const NormCase& of, Many inputs, c10::ScalarType result) {
  for (at::Tensor& input : inputs) input = input.detach().requires_grad_();
  kernels::NormWeights weights = {inputs[1]};
  if (of.layer) weights.bias = inputs[2];
  Many results;
  if (of.added) {
    kernels::Branch branch(inputs.back());
    if (of.dropped) branch = kernels::drop_branch(inputs.back(), {.rate = 0.4, .key = {5}});
    const auto both = kernels::add_norm_rows(inputs[0], branch, weights, {.dtype = result});
    results = {both.sum, both.y};
  } else {
    results = {kernels::norm_rows(inputs[0], weights, {.dtype = result})};
  }
  Many grads;
  for (const at::Tensor& one : results)
    grads.push_back(on_host(one.sizes(), "grad", of.compute).to(one.options()));
  for (const at::Tensor& grad : torch::autograd::grad(results, inputs, grads))
    results.push_back(grad);
  return results;
}

void expect_twins(const NormCase& of) {
  SCOPED_TRACE(testing::Message() << of.rows << " x " << of.width << " " << of.stream << " "
                                  << of.compute << " " << of.weights
                                  << (of.layer ? " layer" : " rms") << (of.added ? " of a sum" : "")
                                  << (of.dropped ? " dropped" : ""));
  Many host = host_inputs(of), device;
  for (at::Tensor& input : host) {
    device.push_back(input.to(c10::Device(c10::kCUDA, 0)));
    input = input.to(c10::kDouble);
  }
  const Many exact = norm_results(of, host, c10::kDouble),
             found = norm_results(of, device, of.compute);
  ASSERT_EQ(exact.size(), found.size());
  for (size_t i = 0; i < exact.size(); ++i) {
    const double norm = exact[i].norm().item<double>();
    const double off = found[i].cpu().to(c10::kDouble).sub(exact[i]).norm().item<double>();
    const bool narrow = c10::elementSize(of.compute) == 2 || c10::elementSize(of.stream) == 2 ||
                        c10::elementSize(of.weights) == 2;
    EXPECT_LT(off, (narrow ? 1e-2 : 1e-5) * norm + 1e-12) << "result " << i;
  }
}

constexpr auto f64 = c10::kDouble, f32 = c10::kFloat, b16 = c10::kBFloat16, h16 = c10::kHalf;

TEST_F(OnGpu, NormEqualsItsTwinForAllWidths) {
  for (const int64_t width :  // not 2: (x - mean) / std of two numbers is their order alone
       {1, 5, 7, 48, 180, 384, 513, 768, 1536, 2050, 4096, 5000, 8192, 9001, 20000})
    for (const bool layer : {true, false}) {
      expect_twins({33, width, f32, b16, f32, layer});
      expect_twins({33, width, f32, f32, f32, layer, false});
      expect_twins({9, width, b16, b16, b16, layer});
      expect_twins({33, width, b16, b16, f32, layer});
      expect_twins({33, width, f32, b16, b16, layer});
      expect_twins({9, width, f64, f64, f64, layer});
    }
}

TEST_F(OnGpu, NormEqualsItsTwinForAllDtypes) {
  for (const auto stream : {f64, f32, b16, h16})
    for (const auto compute : {f64, f32, b16, h16})
      for (const auto weights : {f64, f32, b16, h16}) {
        expect_twins({17, 64, stream, compute, weights});
        expect_twins({17, 65, stream, compute, weights, false, false});
      }
}

TEST_F(OnGpu, NormDropsSamplesOfTheBranch) {
  for (const int64_t width : {7, 180, 768, 20000})
    for (const bool layer : {true, false}) {
      expect_twins({63, width, f32, b16, f32, layer, true, true});
      expect_twins({63, width, f32, f32, f32, layer, true, true});
    }
}

TEST_F(OnGpu, NormOfManyRowsAddsUpAllOfThem) {
  expect_twins({on_gpu_or(70001, 5001), 96, f32, b16, f32});
  expect_twins({on_gpu_or(5000, 800), 768, f32, f32, f32});
  expect_twins({on_gpu_or(3000, 300), 4096, b16, b16, b16, false});
  expect_twins({1, 384, f32, b16, f32});
}

TEST_F(OnGpu, NormIsTheSameEachTime) {
  const NormCase of = {3000, 384, f32, b16, f32};
  Many inputs = host_inputs(of);
  for (at::Tensor& input : inputs) input = input.to(gpu());
  const Many once = norm_results(of, inputs, b16), again = norm_results(of, inputs, b16);
  for (size_t i = 0; i < once.size(); ++i) EXPECT_TRUE(once[i].equal(again[i])) << i;
}

TEST_F(OnGpu, NormOfStridedAndShiftedRows) {
  const at::Tensor wide = on_host({40, 65}, "wide", f32).to(gpu()),
                   w = on_host({64}, "w", f32).to(gpu());
  const at::Tensor shifted = wide.narrow(1, 1, 64),
                   turned = wide.narrow(0, 0, 32).narrow(1, 0, 40).t();
  for (const at::Tensor& x : {shifted, wide.flatten().narrow(0, 1, 640).view({10, 64})}) {
    const at::Tensor exact = kernels::norm_rows(x.cpu().to(f64), {w.cpu().to(f64)});
    EXPECT_LT(kernels::norm_rows(x, {w}).cpu().to(f64).sub(exact).abs().max().item<double>(), 1e-5);
  }
  const at::Tensor v = w.narrow(0, 0, 32);
  const at::Tensor exact = kernels::norm_rows(turned.cpu().to(f64), {v.cpu().to(f64)});
  EXPECT_LT(kernels::norm_rows(turned, {v}).cpu().to(f64).sub(exact).abs().max().item<double>(),
            1e-5);
}

}  // namespace
}  // namespace braid
