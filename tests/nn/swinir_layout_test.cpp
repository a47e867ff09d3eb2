// SPDX-License-Identifier: BSD-3-Clause
// SwinIR over the tensor axis, over tensor and context, and in stages, against one process.
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "braid/comm/counting.h"
#include "braid/parallel/mesh.h"
#include "nn/swinir_layouts.h"
#include "support/expect.h"
#include "support/ranks.h"

namespace braid::nn {
namespace {

using parallel::Axis;

TEST(SwinirTensor, HasTheLossOutputAndGradientsOfOneProcess) {
  const test::SwinWhole whole(test::swin_of(Upsampler::pixelshuffle, Residual::conv3));
  for (const int ranks : {2, 3})
    for (const int64_t overlap : {1, 2})
      test::on_ranks(ranks, [&](const comm::Group& world) {
        SCOPED_TRACE(fmt::format("rank {} of {}", world.rank(), ranks));
        // `sequence` shares out tokens, which an image does not have: it changes nothing.
        const Layout layout = {.tensor = world, .sequence = overlap > 1, .overlap = overlap};
        test::expect_like_one_process(layout, whole);
      });
}

TEST(SwinirTensor, HoldsAShareOfTheHeadsAndTheRestAgain) {
  test::on_ranks(3, [&](const comm::Group& world) {
    const auto model = make_swinir(test::swin_of(), test::swin_build({.tensor = world}));
    const std::string block = "layers.1.residual_group.blocks.0.";
    std::map<std::string, Param> params;
    for (const Param& param : model->params()) params[param.name] = param;
    const Param& table = params.at(block + "attn.relative_position_bias_table");
    EXPECT_EQ(table.tensor.sizes(), at::IntArrayRef({49, 2}));
    EXPECT_FALSE(table.repeated);
    EXPECT_EQ(params.at(block + "attn.qkv.weight").tensor.sizes(), at::IntArrayRef({12, 12}));
    EXPECT_EQ(params.at(block + "attn.proj.weight").tensor.sizes(), at::IntArrayRef({12, 4}));
    EXPECT_EQ(params.at(block + "mlp.fc1.weight").tensor.sizes(), at::IntArrayRef({8, 12}));
    for (const char* name : {"conv_first.weight", "norm.weight", "layers.0.conv.bias"}) {
      EXPECT_EQ(params.at(name).repeated, world.rank() > 0) << name;
      EXPECT_FALSE(params.at(name).tensor_partial) << name;
    }
  });
}

TEST(SwinirTensor, TakesFourReductionsABlock) {
  auto traffic = std::make_shared<comm::Traffic>();
  test::on_ranks(2, [&](const comm::Group& world) {
    const comm::Group tensor(comm::counting(world.backend(), traffic));
    const auto model = make_swinir(test::swin_of(), test::swin_build({.tensor = tensor}));
    model->forward(test::drawn({1, 2, 13, 10}, 1, "input"), test::swin_pass()).sum().backward();
    world.barrier().wait();
    // Four blocks: attention and MLP leave the split region forward, and enter it backward.
    EXPECT_EQ(traffic->calls(comm::Kind::all_reduce), 2 * 4 * 4);
    EXPECT_EQ(traffic->bytes(comm::Kind::all_reduce), 2 * 4 * 4 * (16 * 12 * 12 * 8));
  });
}

TEST(SwinirTensor, HeadsThatDoNotDivideAreRefused) {
  test::on_ranks(4, [&](const comm::Group& world) {
    EXPECT_TRUE(test::contains(
        test::error_of([&] { make_swinir(test::swin_of(), test::swin_build({.tensor = world})); }),
        "mesh.tensor = 4 does not divide model.heads = 6"));
  });
}

TEST(SwinirTensorAndBands, HaveTheLossOutputAndGradientsOfOneProcess) {
  for (const Upsampler upsampler : {Upsampler::pixelshuffle, Upsampler::none}) {
    const test::SwinWhole whole(test::swin_of(upsampler));
    test::on_ranks(4, [&](const comm::Group& world) {
      const parallel::Mesh mesh({.tensor = 2, .context = 2}, 4, world.rank());
      test::expect_like_one_process({.tensor = mesh.group(world, {Axis::tensor}),
                                     .context = mesh.group(world, {Axis::context})},
                                    whole);
    });
  }
}

Carry leaves_of(const Carry& carry) {
  Carry leaves;
  for (const at::Tensor& tensor : carry)
    leaves.push_back(tensor.detach().contiguous().requires_grad_(true));
  return leaves;
}

void expect_specs(const std::vector<CarrySpec>& specs, const Carry& carry) {
  ASSERT_EQ(specs.size(), carry.size());
  for (size_t i = 0; i < specs.size(); ++i) {
    EXPECT_EQ(carry[i].sizes(), at::IntArrayRef(specs[i].shape));
    EXPECT_EQ(carry[i].scalar_type(), specs[i].dtype);
  }
}

// Stages of one group each, one after the other, as a pipeline would run them.
void expect_swin_stages(Layout layout, const test::SwinWhole& whole) {
  const auto count = static_cast<int64_t>(whole.options.depths.size());
  std::vector<std::unique_ptr<Model>> stages;
  std::vector<Carry> in, out;
  for (int64_t i = 0; i < count; ++i) {
    layout.stages = {{i, i + 1}};
    stages.push_back(make_swinir(whole.options, test::swin_build(layout)));
    in.push_back(i == 0 ? Carry{whole.input} : leaves_of(out.back()));
    out.push_back(stages.back()->stage({i, i + 1}, in.back(), test::swin_pass()));
    if (i + 1 < count) expect_specs(stages.back()->carried(whole.input), out.back());
  }
  Model& last = *stages.back();
  EXPECT_LT(test::largest_difference(last.whole_output(out.back()[0].detach()), whole.output),
            1e-12);
  const at::Tensor value =
      loss(whole.kind, out.back()[0], last.local_target(whole.target), last.loss_share());
  EXPECT_NEAR(value.item<double>() / whole.loss, 1, 1e-12);
  value.backward();
  for (size_t i = stages.size() - 1; i > 0; --i)
    for (size_t k = 0; k < in[i].size(); ++k)
      if (out[i - 1][k].requires_grad())
        out[i - 1][k].backward(in[i][k].grad(), /*retain_graph=*/true);
  size_t params = 0;
  for (const auto& stage : stages) {
    EXPECT_EQ(stage->blocks().size(), stages.size());
    test::expect_swin_params(*stage, layout, whole);
    params += stage->params().size();
  }
  EXPECT_EQ(params, whole.values.size()) << "every parameter is in one stage";
}

TEST(SwinirStages, RunOneAfterTheOtherAsOneProcess) {
  for (const Upsampler upsampler : {Upsampler::nearest_conv, Upsampler::none}) {
    SwinirOptions options = test::swin_of(upsampler);
    expect_swin_stages({}, test::SwinWhole(options));
    options.depths = {2, 1, 2};
    options.heads = {6, 3, 6};
    const test::SwinWhole whole(options);
    expect_swin_stages({}, whole);
    test::on_ranks(
        2, [&](const comm::Group& world) { expect_swin_stages({.context = world}, whole); });
  }
}

TEST(SwinirStages, OfHalfPrecisionAreCarriedAsTheyAre) {
  for (const char* policy : {"fp32", "bf16", "bf16_params"}) {
    const auto model =
        make_swinir(test::swin_of(Upsampler::none),
                    {.precision = precision(policy), .layout = {.stages = {{0, 1}}}});
    const at::Tensor input = test::drawn({1, 2, 13, 10}, 1, "input").to(c10::kFloat);
    expect_specs(model->carried(input), model->stage({0, 1}, {input}, {}));
  }
}

TEST(SwinirStages, WantTheSizeOfTheConfig) {
  const auto model = make_swinir(test::swin_of(), test::swin_build({.stages = {{0, 1}}}));
  EXPECT_TRUE(test::contains(
      test::error_of([&] { model->stage({0, 1}, {test::drawn({1, 2, 8, 8}, 1, "x")}, {}); }),
      "set model.image=[8,8]"));
}

}  // namespace
}  // namespace braid::nn
