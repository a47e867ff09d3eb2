// SPDX-License-Identifier: BSD-3-Clause
// More operators for the tables of op_cases.h: convolutions, losses, attention, optimizers.
#pragma once
#include "support/op_cases.h"
#include "support/op_cases_braid.h"

namespace braid::test {

inline std::vector<OpCase> conv_cases() {
  std::vector<OpCase> cases;
  const std::vector<std::vector<OpInput>> image = {
      {{{2, 4, 7, 7}}, {{6, 4, 3, 3}}, {{6}}},
      {{{2, 4, 7, 7}, f32, last}, {{6, 4, 3, 3}}, {{6}}},
      {{{2, 4, 7, 7}}, {{6, 4, 3, 3}, f32, last}, {{6}}},
      {{{1, 4, 7, 7}, f64}, {{6, 4, 3, 3}, f64}, {{6}, f64}},
      {{{2, 4, 7, 7}, f64}, {{6, 4, 3, 3}, f64}, {{6}, f64}},
      {{{1, 4, 7, 7}, f64, last}, {{6, 4, 3, 3}, f64}, {{6}, f64}},
      {{{2, 4, 7, 7}, b16}, {{6, 4, 3, 3}, b16}, {{6}, b16}},
      {{{1, 4, 7, 7}}, {{6, 4, 1, 1}}, {{6}}},
      {{{2, 4, 7, 7}, f32, swapped, false}, {{6, 4, 3, 3}}, {{6}}}};
  add_cases(
      cases, "conv2d", [](Tensors& x) { return Tensors{at::conv2d(x[0], x[1], x[2])}; }, image);
  add_cases(
      cases, "conv2d_strided",
      [](Tensors& x) { return Tensors{at::conv2d(x[0], x[1], x[2], 2, 1)}; }, image);
  add_cases(
      cases, "conv2d_dilated",
      [](Tensors& x) { return Tensors{at::conv2d(x[0], x[1], at::Tensor(), 1, 2, 2)}; }, image);
  add_cases(cases, "conv2d_groups",
            [](Tensors& x) { return Tensors{at::conv2d(x[0], x[1], x[2], 1, 1, 1, 2)}; },
            {{{{2, 4, 7, 7}}, {{6, 2, 3, 3}}, {{6}}},
             {{{2, 4, 7, 7}, f32, last}, {{6, 2, 3, 3}}, {{6}}}});
  add_cases(cases, "conv1d", [](Tensors& x) { return Tensors{at::conv1d(x[0], x[1], x[2], 2)}; },
            {{{{2, 4, 9}}, {{6, 4, 3}}, {{6}}}, {{{1, 4, 9}, f64}, {{6, 4, 3}, f64}, {{6}, f64}}});
  add_cases(cases, "conv_transpose2d",
            [](Tensors& x) { return Tensors{at::conv_transpose2d(x[0], x[1], x[2], 2, 1, 1)}; },
            {{{{2, 4, 5, 5}}, {{4, 6, 3, 3}}, {{6}}},
             {{{2, 4, 5, 5}, f32, last}, {{4, 6, 3, 3}}, {{6}}},
             {{{1, 4, 5, 5}, f64}, {{4, 6, 3, 3}, f64}, {{6}, f64}}});
  return cases;
}

inline std::vector<OpCase> loss_cases() {
  std::vector<OpCase> cases;
  const OpInput target = {{3, 5}, f32, Layout::contiguous, false};
  const std::vector<std::vector<OpInput>> two = {
      {{{3, 5}}, target},
      {{{3, 5}, f32, swapped}, target},
      {{{1, 5}, f64, gaps}, {{1, 5}, f64, Layout::contiguous, false}},
      {{{3, 5}, b16}, {{3, 5}, b16, Layout::contiguous, false}}};
  const std::vector<std::vector<OpInput>> scores = {{{{6, 9}}, {{6}, i64}},
                                                    {{{1, 9}, f64}, {{1}, i64}},
                                                    {{{6, 9}, b16}, {{6}, i64}},
                                                    {{{6, 9}, f32, gaps}, {{6}, i64}}};
  for (const int64_t kind : {at::Reduction::None, at::Reduction::Mean}) {
    const std::string tail = kind == at::Reduction::None ? "_each" : "_mean";
    add_cases(
        cases, "mse" + tail, [=](Tensors& x) { return Tensors{at::mse_loss(x[0], x[1], kind)}; },
        two);
    add_cases(
        cases, "l1" + tail, [=](Tensors& x) { return Tensors{at::l1_loss(x[0], x[1], kind)}; },
        two);
    add_cases(
        cases, "smooth_l1" + tail,
        [=](Tensors& x) { return Tensors{at::smooth_l1_loss(x[0], x[1], kind)}; }, two);
    add_cases(
        cases, "huber" + tail,
        [=](Tensors& x) { return Tensors{at::huber_loss(x[0], x[1], kind)}; }, two);
    add_cases(
        cases, "binary_cross_entropy" + tail,
        [=](Tensors& x) { return Tensors{at::binary_cross_entropy(x[0], x[1], {}, kind)}; }, two);
    add_cases(
        cases, "cross_entropy" + tail,
        [=](Tensors& x) { return Tensors{at::cross_entropy_loss(x[0], x[1], {}, kind, -100)}; },
        scores);
    add_cases(cases, "nll_loss2d" + tail,
              [=](Tensors& x) { return Tensors{at::nll_loss2d(x[0], x[1], {}, kind)}; },
              {{{{2, 4, 3, 3}}, {{2, 3, 3}, i64}}, {{{1, 4, 3, 3}, f64, last}, {{1, 3, 3}, i64}}});
  }
  return cases;
}

inline std::vector<OpCase> attention_cases() {
  std::vector<OpCase> cases;
  // [B, H, N, D] as a view of [B, N, H, D], as models have it.
  const auto flash = [](Tensors& x) {
    auto [y, sums] = at::_scaled_dot_product_flash_attention_for_cpu(
        x[0].transpose(1, 2), x[1].transpose(1, 2), x[2].transpose(1, 2), 0.0, true);
    return Tensors{y, sums.detach()};
  };
  const auto plain = [](Tensors& x) {
    auto [y, sums] = at::_scaled_dot_product_flash_attention_for_cpu(x[0], x[1], x[2]);
    return Tensors{y, sums.detach()};
  };
  const std::vector<std::vector<OpInput>> all = {
      {{{2, 7, 3, 8}}, {{2, 7, 3, 8}}, {{2, 7, 3, 8}}},
      {{{1, 7, 4, 8}}, {{1, 7, 2, 8}}, {{1, 7, 2, 8}}},  // heads of k and v are shared
      {{{2, 7, 3, 8}, f64}, {{2, 7, 3, 8}, f64}, {{2, 7, 3, 8}, f64}},
      {{{2, 7, 3, 8}, b16}, {{2, 7, 3, 8}, b16}, {{2, 7, 3, 8}, b16}},
      {{{1, 200, 1, 8}}, {{1, 200, 1, 8}}, {{1, 200, 1, 8}}},  // other block sizes
      {{{1, 800, 1, 8}}, {{1, 800, 1, 8}}, {{1, 800, 1, 8}}},
      {{{1, 800, 8, 64}, b16}, {{1, 800, 8, 64}, b16}, {{1, 800, 8, 64}, b16}},
      {{{2, 7, 3, 8}, f32, gaps}, {{2, 7, 3, 8}, f32, gaps}, {{2, 7, 3, 8}, f32, gaps}}};
  add_cases(cases, "flash_attention", flash, all);
  add_cases(cases, "flash_attention_plain", plain,
            {{{{2, 3, 7, 8}}, {{2, 3, 5, 8}}, {{2, 3, 5, 8}}},
             {{{2, 3, 7, 8}, b16}, {{2, 3, 7, 8}, b16}, {{2, 3, 7, 8}, b16}}});
  add_cases(cases, "softmax", [](Tensors& x) { return Tensors{at::softmax(x[0], -1)}; },
            {{{{2, 3, 5, 5}}}, {{{2, 3, 5, 5}, b16}}, {{{2, 3, 5, 5}, f64, swapped}}});
  add_cases(cases, "matmul",
            [](Tensors& x) { return Tensors{at::matmul(x[0], x[1].transpose(-2, -1))}; },
            {{{{2, 3, 5, 4}}, {{2, 3, 7, 4}}},
             {{{2, 3, 5, 4}, b16}, {{2, 3, 7, 4}, b16}},
             {{{2, 5, 4}, f64, gaps}, {{7, 4}, f64}}});
  add_cases(cases, "linear", [](Tensors& x) { return Tensors{at::linear(x[0], x[1], x[2])}; },
            {{{{2, 5, 4}}, {{6, 4}}, {{6}}},
             {{{2, 5, 4}, b16}, {{6, 4}, b16}, {{6}, b16}},
             {{{5, 4}, f64, gaps}, {{6, 4}, f64, swapped}, {{6}, f64}}});
  return cases;
}

// The fused updates change their tensors in place: what is compared is that nothing else is taken.
inline std::vector<OpCase> optim_cases() {
  const OpInput no_grad = {{4, 6}, f32, Layout::contiguous, false};
  const OpInput scalar = {{}, f32, Layout::contiguous, false};
  std::vector<OpCase> cases;
  const auto adam = [](auto update) {
    return [=](Tensors& x) {
      update(at::TensorList{x[0]}, at::TensorList{x[1]}, at::TensorList{x[2]}, at::TensorList{x[3]},
             at::TensorList{}, at::TensorList{x[4]}, 1e-3, 0.9, 0.999, 0.01, 1e-8, false, false,
             std::optional<at::Tensor>{}, std::optional<at::Tensor>{});
      return Tensors{x[0]};
    };
  };
  const std::vector<std::vector<OpInput>> states = {{no_grad, no_grad, no_grad, no_grad, scalar}};
  add_cases(cases, "fused_adam", adam([](auto&&... a) { at::_fused_adam_(a...); }), states);
  add_cases(cases, "fused_adamw", adam([](auto&&... a) { at::_fused_adamw_(a...); }), states);
  const auto own = [](Tensors& x) {
    kernels::adam({.targets = {x[0]},
                   .grads = {x[1]},
                   .exp_avgs = {x[2]},
                   .exp_avg_sqs = {x[3]},
                   .weights = {x[5]},
                   .steps = {x[4]}},
                  {.lr = 1e-3});
    return Tensors{x[0]};
  };
  const OpInput narrow = {{4, 6}, b16, Layout::contiguous, false};
  add_cases(cases, "adam", own,
            {{no_grad, no_grad, no_grad, no_grad, scalar, narrow},
             {no_grad, narrow, no_grad, no_grad, scalar, narrow},
             {narrow, narrow, narrow, narrow, scalar, narrow}});
  add_cases(cases, "fused_sgd",
            [](Tensors& x) {
              at::_fused_sgd_({x[0]}, {x[1]}, {x[2]}, 0.1, 0.9, 1e-3, 0, false, false, false);
              return Tensors{x[0]};
            },
            {{no_grad, no_grad, no_grad}});
  return cases;
}

inline std::vector<OpCase> gradient_cases() {
  const OpInput no_grad = {{4, 6}, f32, Layout::contiguous, false};
  const OpInput scalar = {{}, f32, Layout::contiguous, false};
  std::vector<OpCase> cases;
  add_cases(cases, "unscale",
            [](Tensors& x) {
              at::_amp_foreach_non_finite_check_and_unscale_({x[0]}, x[1], x[2]);
              return Tensors{x[0]};
            },
            {{no_grad, scalar, scalar}});
  add_cases(cases, "update_scale",
            [](Tensors& x) {
              at::_amp_update_scale_(x[0], x[1], x[2], 2.0, 0.5, 10);
              return Tensors{x[0]};
            },
            {{scalar, {{}, c10::kInt}, scalar}});
  add_cases(cases, "foreach",
            [](Tensors& x) {
              const Tensors norms = at::_foreach_norm({x[0], x[1]}, 2);
              at::_foreach_mul_({x[0], x[1]}, norms[0]);
              at::_foreach_lerp_({x[0]}, {x[1]}, 0.1);
              at::_foreach_copy_({x[0]}, {x[1]});
              return Tensors{at::linalg_vector_norm(at::stack(norms), 2)};
            },
            {{no_grad, no_grad}});
  return cases;
}

inline std::vector<OpCase> all_op_cases() {
  std::vector<OpCase> all;
  for (auto* family :
       {unary_cases, binary_cases, norm_cases, shape_cases, conv_cases, loss_cases, attention_cases,
        optim_cases, gradient_cases, braid_cases, window_cases, metric_cases})
    for (OpCase& c : family()) all.push_back(std::move(c));
  return all;
}

}  // namespace braid::test
