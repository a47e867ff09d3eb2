// SPDX-License-Identifier: BSD-3-Clause
// model.kernels: reference computes what braid's own operators do; the way there is PyTorch's.
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <map>
#include <mutex>

#include "braid/comm/backend.h"
#include "braid/core/dry.h"
#include "braid/memory/instruments.h"
#include "braid/memory/operator_log.h"
#include "braid/memory/recompute.h"
#include "braid/nn/options.h"
#include "nn/swinir_layouts.h"
#include "support/drawn.h"
#include "support/expect.h"
#include "support/ranks.h"

namespace braid::nn {
namespace {

using test::contains;
using test::error_of;

ModelOptions small_vit() {
  ModelOptions options;
  options.name = ModelName::vit;
  options.vit = {.image = {8, 12},
                 .patch = 4,
                 .channels_in = 2,
                 .channels_out = 2,
                 .width = 16,
                 .depth = 2,
                 .heads = 4,
                 .dropout = 0.1};
  return options;
}

ModelOptions small_swinir(Residual residual = Residual::conv1) {
  ModelOptions options;
  options.name = ModelName::swinir;
  options.swinir = test::swin_of(Upsampler::pixelshuffle, residual);
  return options;
}

ModelOptions with_kernels(ModelOptions options, Kernels kernels) {
  options.kernels = kernels;
  return options;
}

struct Result {
  double loss = 0;
  std::map<std::string, at::Tensor> grads;
};

at::Tensor image_for(const ModelOptions& options) {
  if (options.name == ModelName::vit) return test::drawn({3, 2, 8, 12}, 1, "image");
  return test::drawn({3, 2, options.swinir.image[0], options.swinir.image[1]}, 1, "image");
}

at::Tensor target_for(const ModelOptions& options) {
  if (options.name == ModelName::vit) return test::drawn({3, 2, 8, 12}, 2, "target");
  const auto& o = options.swinir;
  return test::drawn({3, 2, o.scale * o.image[0], o.scale * o.image[1]}, 2, "target");
}

Result trained(const ModelOptions& options, const Build& build, SegmentRunner* segments = nullptr) {
  const auto model = make_model(options, build);
  const Pass pass = {
      .training = true, .seed = 8, .step = 4, .first_sample = 5, .segments = segments};
  const c10::ScalarType dtype = build.precision.param;
  const at::Tensor output = model->forward(image_for(options).to(dtype), pass);
  const at::Tensor value = loss(Loss::mse, output, target_for(options).to(dtype));
  value.backward();
  Result result{value.item<double>(), {}};
  for (const Param& param : model->params()) result.grads[param.name] = param.tensor.grad();
  return result;
}

void expect_close(const Result& got, const Result& wanted, double tolerance) {
  EXPECT_NEAR(got.loss, wanted.loss, tolerance * std::abs(wanted.loss));
  ASSERT_EQ(got.grads.size(), wanted.grads.size());
  double whole = 0;
  for (const auto& [name, grad] : wanted.grads)
    whole = std::max(whole, grad.abs().max().item<double>());
  for (const auto& [name, grad] : wanted.grads)
    EXPECT_LE(got.grads.at(name).sub(grad).abs().max().item<double>(), tolerance * whole) << name;
}

TEST(Reference, LossAndGradientsAreThoseOfBraidsKernelsInFp64) {
  const Build build = {.seed = 3, .precision = precision("fp64")};
  for (const ModelOptions& options : {small_vit(), small_swinir(), small_swinir(Residual::conv3)}) {
    const Result own = trained(with_kernels(options, Kernels::braid), build);
    const Result reference = trained(with_kernels(options, Kernels::reference), build);
    expect_close(reference, own, 1e-12);
  }
}

TEST(Reference, AutocastStaysCloseToExplicitCasts) {
  for (const ModelOptions& options : {small_vit(), small_swinir()}) {
    const Build build = {.seed = 3, .precision = precision("bf16")};
    const Result own = trained(with_kernels(options, Kernels::braid), build);
    const Result reference = trained(with_kernels(options, Kernels::reference), build);
    expect_close(reference, own, 0.05);
  }
}

TEST(Reference, ComputesTheSameAgainInTheBackwardPass) {
  for (const char* dtype : {"fp64", "bf16"})
    for (const ModelOptions& options : {small_vit(), small_swinir()})
      for (const auto again : {memory::Again::blocks, memory::Again::attention}) {
        const Build build = {.seed = 3, .precision = precision(dtype)};
        const ModelOptions reference = with_kernels(options, Kernels::reference);
        memory::Recompute recompute({.what = again});
        expect_close(trained(reference, build, &recompute), trained(reference, build), 0);
        EXPECT_GT(recompute.counts().again, 0);
      }
}

TEST(Reference, Trains) {
  ModelOptions swinir = small_swinir();
  swinir.swinir.mean = {0, 0};
  swinir.swinir.std = {1, 1};
  for (const ModelOptions& options : {small_vit(), swinir}) {
    const auto model = make_model(with_kernels(options, Kernels::reference),
                                  {.seed = 3, .precision = precision("bf16")});
    const at::Tensor image = image_for(options).to(c10::kFloat);
    const at::Tensor target = target_for(options).to(c10::kFloat);
    double first = 0, last = 0;
    for (int64_t step = 0; step < 30; ++step) {
      const at::Tensor output = model->forward(image, {.training = true, .seed = 1, .step = step});
      const at::Tensor value = loss(Loss::mse, output, target);
      value.backward();
      const at::NoGradGuard update;
      for (const Param& param : model->params()) {
        param.tensor.sub_(param.tensor.grad().sign(), 0.003);
        param.tensor.mutable_grad().reset();
      }
      (step == 0 ? first : last) = value.item<double>();
    }
    EXPECT_LT(last, 0.9 * first);
  }
}

// Operators of a step on dry tensors with the keys of a GPU, by name and dtype of the result.
std::map<std::string, int64_t> operators_of(const ModelOptions& options) {
  const std::vector<int64_t> sizes = image_for(options).sizes().vec();
  memory::OperatorLog log;
  const memory::Instruments dry({.log = &log, .dry = true});
  const auto model =
      make_model(with_kernels(options, Kernels::reference),
                 {.precision = precision("fp16"), .device = c10::Device(c10::kCUDA, 0)});
  const at::Tensor image =
      at::zeros(sizes, at::TensorOptions(c10::kFloat).device(c10::Device(c10::kCUDA, 0)));
  model->forward(image, {.training = true});
  std::map<std::string, int64_t> count;
  for (const memory::Operator& op : log.operators())
    for (const memory::TensorShape& result : op.outputs)
      ++count[op.name + " " + std::string(dtype_name(result.dtype))];
  return count;
}

TEST(Reference, CastsByTheListsOfAutocastOnAGpu) {
  const auto swinir = operators_of(small_swinir());
  EXPECT_EQ(swinir.at("aten::_softmax fp32"), 4);
  EXPECT_FALSE(swinir.contains("aten::_softmax fp16"));
  EXPECT_FALSE(swinir.contains("aten::gelu fp32"));
  EXPECT_EQ(swinir.at("aten::gelu fp16"), 4);
  EXPECT_FALSE(swinir.contains("aten::bmm fp32"));
  EXPECT_FALSE(swinir.contains("aten::convolution fp32"));
  EXPECT_FALSE(swinir.contains("aten::native_layer_norm fp16"));
}

TEST(Reference, RanksOfTensorGiveTheGradientsOfOne) {
  const ModelOptions options = with_kernels(small_vit(), Kernels::reference);
  const Result whole = trained(options, {.seed = 3, .precision = precision("fp64")});
  test::on_ranks(2, [&](const comm::Group& world) {
    const auto model = make_model(
        options, {.seed = 3, .precision = precision("fp64"), .layout = {.tensor = world}});
    const at::Tensor output = model->forward(
        image_for(options), {.training = true, .seed = 8, .step = 4, .first_sample = 5});
    const at::Tensor value = loss(Loss::mse, output, target_for(options));
    value.backward();
    EXPECT_NEAR(value.item<double>(), whole.loss, 1e-12);
    for (const Param& param : model->params()) {
      at::Tensor wanted = whole.grads.at(param.name);
      for (const Cut& cut : param.piece.cuts)
        wanted = wanted.narrow(cut.dim, cut.ranges.at(0).begin, cut.ranges.at(0).size());
      EXPECT_LE(param.tensor.grad().sub(wanted).abs().max().item<double>(), 1e-12) << param.name;
    }
  });
}

TEST(Reference, RefusesWhatTheOriginalsDoNotHave) {
  const auto refused = [](ModelOptions options, const Layout& layout) {
    return error_of([&] {
      make_model(with_kernels(std::move(options), Kernels::reference), {.layout = layout});
    });
  };
  const comm::Group two(comm::dry(0, 2));
  EXPECT_TRUE(contains(refused(ModelOptions{}, {}), "reference with model.name = mlp"));
  EXPECT_TRUE(contains(refused(small_vit(), {.context = two}), "mesh.context = 2"));
  EXPECT_TRUE(contains(refused(small_vit(), {.stages = {{0, 1}}}), "a pipeline"));
  EXPECT_TRUE(contains(refused(small_swinir(), {.tensor = two}), "mesh.tensor = 2 for swinir"));
  EXPECT_TRUE(contains(refused(small_vit(), {.tensor = two, .sequence = true}),
                       "set parallel.sequence=false"));
}

}  // namespace
}  // namespace braid::nn
