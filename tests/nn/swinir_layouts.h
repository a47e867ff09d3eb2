// SPDX-License-Identifier: BSD-3-Clause
// A small SwinIR in one process, and the same model spread over ranks beside it: loss, output, the
// gradients of the input and of every parameter.
#pragma once
#include <ATen/ops/cat.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "braid/nn/options.h"
#include "nn/fields.h"
#include "support/drawn.h"

namespace braid::test {

inline nn::SwinirOptions swin_of(nn::Upsampler upsampler = nn::Upsampler::pixelshuffle,
                                 nn::Residual residual = nn::Residual::conv1) {
  return {.image = {13, 10},  // neither side is a multiple of the window
          .channels = 2,
          .scale = upsampler == nn::Upsampler::none ? 1 : 2,
          .window = 4,
          .width = 12,
          .depths = {2, 2},
          .heads = {6, 6},
          .drop_path = 0.3,
          .upsampler = upsampler,
          .residual = residual,
          .features = 4,
          .mean = {6.3024, 278.3945},
          .std = {3.7376, 21.0588}};
}

inline nn::Build swin_build(const nn::Layout& layout = {}) {
  return {.seed = 1, .precision = precision("fp64"), .layout = layout};
}

inline nn::Pass swin_pass() { return {.training = true, .seed = 2, .step = 3, .first_sample = 5}; }

// One pass in one process.
struct SwinWhole {
  explicit SwinWhole(const nn::SwinirOptions& given, nn::Loss loss_kind = nn::Loss::mse)
      : options(given), kind(loss_kind) {
    input = drawn({3, options.channels, options.image[0], options.image[1]}, 1, "input");
    target = drawn(
        {3, options.channels, options.scale * options.image[0], options.scale * options.image[1]},
        1, "target");
    const auto model = nn::make_swinir(options, swin_build());
    const at::Tensor x = input.clone().requires_grad_(true);
    output = model->forward(x, swin_pass());
    const at::Tensor value = nn::loss(kind, output, target);
    value.backward();
    loss = value.item<double>();
    input_grad = x.grad();
    for (const Param& param : model->params()) {
      values[param.name] = param.tensor.detach();
      grads[param.name] = param.tensor.grad();
    }
  }
  nn::SwinirOptions options;
  nn::Loss kind;
  at::Tensor input, target, output, input_grad;
  double loss = 0;
  std::map<std::string, at::Tensor> values, grads;
};

// Over the largest value; a branch that all samples drop has gradients of 0 in both.
inline double swin_difference(const at::Tensor& got, const at::Tensor& wanted) {
  if (wanted.eq(0).all().item<bool>()) return got.abs().max().item<double>();
  return largest_difference(got, wanted);
}

// What a rank holds of a whole parameter.
inline at::Tensor held_of(at::Tensor whole, const Piece& piece) {
  for (const Cut& cut : piece.cuts) {
    std::vector<at::Tensor> parts;
    for (const Range& range : cut.ranges)
      parts.push_back(whole.narrow(cut.dim, range.begin, range.size()));
    whole = at::cat(parts, cut.dim);
  }
  return whole;
}

// Initial values now, and gradients after a backward pass; each rank of context has a part of them.
inline void expect_swin_params(const nn::Model& model, const nn::Layout& layout,
                               const SwinWhole& whole) {
  for (const Param& param : model.params()) {
    SCOPED_TRACE(param.name);
    ASSERT_TRUE(whole.values.contains(param.name));
    EXPECT_TRUE(param.tensor.equal(held_of(whole.values.at(param.name), param.piece)));
    ASSERT_TRUE(param.tensor.grad().defined());
    const at::Tensor grad = param.tensor.grad().clone();
    layout.context.all_reduce(grad).wait();
    EXPECT_LT(swin_difference(grad, held_of(whole.grads.at(param.name), param.piece)), 1e-12);
  }
}

// One pass of a rank's part of the model.
inline void expect_like_one_process(const nn::Layout& layout, const SwinWhole& whole) {
  const auto model = nn::make_swinir(whole.options, swin_build(layout));
  const at::Tensor x = whole.input.clone().requires_grad_(true);
  const at::Tensor output = model->forward(x, swin_pass());
  const at::Tensor joined = model->whole_output(output.detach());
  EXPECT_LT(largest_difference(joined, whole.output), 1e-12);
  const at::Tensor target = model->local_target(whole.target);
  ASSERT_EQ(output.sizes(), target.sizes());
  const at::Tensor value = nn::loss(whole.kind, output, target, model->loss_share());
  EXPECT_NEAR(value.item<double>() / whole.loss, 1, 1e-12);
  value.backward();
  expect_swin_params(*model, layout, whole);
  const at::Tensor grad = x.grad().clone();
  layout.context.all_reduce(grad).wait();
  EXPECT_LT(largest_difference(grad, whole.input_grad), 1e-12);
}

}  // namespace braid::test
