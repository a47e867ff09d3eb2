// SPDX-License-Identifier: BSD-3-Clause
// A ViT spread over ranks beside the same one in one process.
//
//   const Alone alone(options, dropout);
//   expect_same(alone, spread_over(world, {.tensor = 2}), how);
#pragma once
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>

#include "braid/comm/differentiable.h"
#include "braid/nn/options.h"
#include "braid/parallel/mesh.h"
#include "support/drawn.h"

namespace braid::nn {

inline constexpr int64_t vit_samples = 2;

// 5 x 7 patches: 35 tokens, which neither 2 nor 3 nor 4 ranks divide.
inline VitOptions small_vit(double dropout = 0) {
  return {.image = {20, 28},
          .patch = 4,
          .channels_in = 3,
          .channels_out = 2,
          .width = 24,
          .depth = 3,
          .heads = 12,
          .dropout = dropout};
}

inline at::Tensor vit_input(const VitOptions& o, int64_t samples = vit_samples) {
  return test::drawn({samples, o.channels_in, o.image[0], o.image[1]}, 1, "input");
}
inline at::Tensor vit_target(const VitOptions& o, int64_t samples = vit_samples) {
  return test::drawn({samples, o.channels_out, o.image[0], o.image[1]}, 2, "target");
}

inline Pass training_pass() { return {.training = true, .seed = 5, .step = 3, .first_sample = 4}; }

struct Alone {
  explicit Alone(const VitOptions& given) : options(given) {
    const auto model = make_vit(options, {.seed = 1, .precision = precision("fp64")});
    const at::Tensor x = vit_input(options).requires_grad_();
    output = model->forward(x, training_pass());
    const at::Tensor value = loss(Loss::relative_l2, output, vit_target(options));
    value.backward();
    loss_value = value.item<double>();
    input_grad = x.grad();
    for (const Param& param : model->params()) grads[param.name] = param.tensor.grad();
  }
  VitOptions options;
  at::Tensor output, input_grad;
  double loss_value = 0;
  std::map<std::string, at::Tensor> grads;
};

inline Layout spread_over(const comm::Group& world, const parallel::Mesh& mesh,
                          Layout layout = {}) {
  layout.tensor = mesh.group(world, {parallel::Axis::tensor});
  layout.context = mesh.group(world, {parallel::Axis::context});
  return layout;
}

// As large as errors of the last place may become.
inline void expect_close(const at::Tensor& got, const at::Tensor& wanted, const std::string& what) {
  ASSERT_TRUE(got.defined()) << what;
  const double scale = std::max(1.0, wanted.abs().max().item<double>());
  EXPECT_LE(got.sub(wanted).abs().max().item<double>(), 1e-12 * scale) << what;
}

// The elements of the whole that a piece holds, in its order.
inline at::Tensor piece_of(const at::Tensor& whole, const Param& param) {
  if (param.is_whole()) return whole;
  at::Tensor held = test::drawn({param.tensor.numel()}, 0, "overwritten");
  const at::Tensor flat = whole.reshape({-1});
  for (const Run& run : runs_of(param.piece, held.numel()))
    held.narrow(0, run.at, run.count).copy_(flat.narrow(0, run.from, run.count));
  return held.view(param.tensor.sizes());
}

// The gradient as the ranks of context, and of tensor where each has a part, make it together.
inline at::Tensor summed_grad(const Param& param, const Layout& layout) {
  at::Tensor grad = param.tensor.grad().clone();
  layout.context.all_reduce(grad).wait();
  if (param.tensor_partial) layout.tensor.all_reduce(grad).wait();
  return grad;
}

inline void expect_grads(const Alone& alone, const Model& model, const Layout& layout) {
  for (const Param& param : model.params()) {
    ASSERT_TRUE(param.tensor.grad().defined()) << param.name;
    expect_close(summed_grad(param, layout), piece_of(alone.grads.at(param.name), param),
                 param.name);
  }
}

// Each element of the model is counted once over tensor.
inline void expect_counted_once(const Alone& alone, const Model& model, const Layout& layout) {
  double count = 0, all = 0;
  for (const Param& param : model.params())
    if (!param.repeated) count += static_cast<double>(param.tensor.numel());
  for (const auto& [name, grad] : alone.grads) all += static_cast<double>(grad.numel());
  const at::Tensor sum = at::zeros({1}, at::kDouble).fill_(count);
  layout.tensor.all_reduce(sum).wait();
  EXPECT_EQ(sum.item<double>(), all);
}

inline void expect_same(const Alone& alone, const Layout& layout) {
  const auto model =
      make_vit(alone.options, {.seed = 1, .precision = precision("fp64"), .layout = layout});
  const at::Tensor x = vit_input(alone.options).requires_grad_();
  const at::Tensor output = model->forward(x, training_pass());
  const at::Tensor target = model->local_target(vit_target(alone.options));
  const at::Tensor value = loss(Loss::relative_l2, output, target, model->loss_share());
  value.backward();
  EXPECT_NEAR(value.item<double>(), alone.loss_value, 1e-12);
  expect_close(model->whole_output(output.detach()), alone.output, "output");
  at::Tensor input_grad = x.grad().clone();
  layout.context.all_reduce(input_grad).wait();
  if (layout.sequence) layout.tensor.all_reduce(input_grad).wait();
  expect_close(input_grad, alone.input_grad, "input");
  expect_grads(alone, *model, layout);
  expect_counted_once(alone, *model, layout);
}

}  // namespace braid::nn
