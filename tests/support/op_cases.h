// SPDX-License-Identifier: BSD-3-Clause
// The operators that braid's models, losses, metrics and optimizers use on the CPU, with the
// layouts and dtypes that tell kernels apart. Those for which LibTorch has no Meta kernel in C++
// are all here; of the others, what surrounds them.
#pragma once
#include "support/op_case.h"

namespace braid::test {

inline constexpr auto f32 = c10::kFloat, f64 = c10::kDouble, b16 = c10::kBFloat16, i64 = c10::kLong,
                      b1 = c10::kBool;
inline constexpr auto swapped = Layout::transposed, last = Layout::channels_last,
                      gaps = Layout::gaps;

// One operator with several sets of inputs.
inline void add_cases(std::vector<OpCase>& cases, const std::string& name, const OpRun& run,
                      std::vector<std::vector<OpInput>> all) {
  for (size_t i = 0; i < all.size(); ++i)
    cases.push_back({name + "/" + std::to_string(i), std::move(all[i]), run});
}

// Layouts and dtypes of one input.
inline std::vector<std::vector<OpInput>> one_input() {
  return {{{{3, 5}}}, {{{3, 5}, f32, swapped}},   {{{3, 5}, b16, gaps}}, {{{1, 7}, f64}},
          {{{0, 7}}}, {{{2, 3, 4, 4}, f32, last}}};
}

inline std::vector<std::vector<OpInput>> two_inputs() {
  return {{{{3, 5}}, {{3, 5}}},
          {{{3, 5}, f32, swapped}, {{3, 5}, f32, swapped}},
          {{{3, 5}}, {{3, 5}, f32, swapped}},
          {{{3, 5}, b16}, {{5}, b16}},
          {{{3, 1}, f64}, {{1, 5}, f64}},
          {{{0, 5}}, {{0, 5}}}};
}

inline std::vector<OpCase> unary_cases() {
  std::vector<OpCase> cases;
  const auto one = one_input();
  add_cases(cases, "relu", [](Tensors& x) { return Tensors{x[0].relu()}; }, one);
  add_cases(cases, "relu_", [](Tensors& x) { return Tensors{x[0].mul(2).relu_()}; }, one);
  add_cases(cases, "abs", [](Tensors& x) { return Tensors{x[0].abs()}; }, one);
  add_cases(cases, "isnan", [](Tensors& x) { return Tensors{x[0].isnan()}; }, one);
  add_cases(cases, "isfinite", [](Tensors& x) { return Tensors{at::isfinite(x[0])}; }, one);
  add_cases(cases, "logical_not", [](Tensors& x) { return Tensors{x[0].logical_not()}; }, one);
  add_cases(cases, "nan_to_num", [](Tensors& x) { return Tensors{x[0].nan_to_num()}; }, one);
  add_cases(cases, "gelu", [](Tensors& x) { return Tensors{at::gelu(x[0], "tanh")}; }, one);
  add_cases(cases, "silu", [](Tensors& x) { return Tensors{at::silu(x[0])}; }, one);
  add_cases(
      cases, "leaky_relu", [](Tensors& x) { return Tensors{at::leaky_relu(x[0], 0.2)}; }, one);
  add_cases(cases, "log_sigmoid", [](Tensors& x) { return Tensors{at::log_sigmoid(x[0])}; }, one);
  add_cases(cases, "native_dropout",
            [](Tensors& x) {
              auto [y, mask] = at::native_dropout(x[0], 0.5, true);
              return Tensors{y, mask};
            },
            {one[0], one[1], one[2], one[3], one[5]});
  add_cases(cases, "glu", [](Tensors& x) { return Tensors{at::glu(x[0], 0)}; },
            {{{{4, 5}}}, {{{4, 5}, f32, swapped}}, {{{2, 7}, b16, gaps}}});
  return cases;
}

inline std::vector<OpCase> binary_cases() {
  std::vector<OpCase> cases;
  const auto one = one_input(), two = two_inputs();
  add_cases(cases, "mul", [](Tensors& x) { return Tensors{x[0].mul(x[1])}; }, two);
  add_cases(
      cases, "masked", [](Tensors& x) { return Tensors{x[0].mul(x[1]).mul_(2)}; },
      {{{{3, 5}}, {{3, 5}, b1}}, {{{3, 5}, b16, gaps}, {{3, 1}, b1}}, {{{3, 5}, b16}, {{5}}}});
  add_cases(cases, "mixed_in_place",
            [](Tensors& x) { return Tensors{x[0].add_(x[1]).div_(x[1]).sub_(x[2])}; },
            {{{{3, 5}, b16, Layout::contiguous, false}, {{3, 5}}, {{3, 5}, i64}},
             {{{3, 5}, f32, Layout::contiguous, false}, {{3, 1}, f64}, {{5}, b16}}});
  add_cases(
      cases, "mean", [](Tensors& x) { return Tensors{x[0].mean(-1, true), x[0].mean()}; }, one);
  add_cases(cases, "logical_and", [](Tensors& x) { return Tensors{x[0].logical_and(x[1])}; }, two);
  add_cases(
      cases, "logical_or", [](Tensors& x) { return Tensors{x[0].ne(1).logical_or_(x[0].ne(0))}; },
      one);
  add_cases(cases, "floor_divide",
            [](Tensors& x) { return Tensors{at::floor_divide(x[0].add(4), 3)}; },
            {{{{9}, i64}}, {{{3, 5}, i64, swapped}}, {{{3, 5}, f32, swapped, false}}});
  add_cases(cases, "where", [](Tensors& x) { return Tensors{at::where(x[0], x[1], x[2])}; },
            {{{{3, 5}, b1}, {{3, 5}}, {{3, 5}}},
             {{{3, 1}, b1}, {{3, 5}, f32, swapped}, {{5}}},
             {{{3, 5}, b1}, {{3, 5}, b16, gaps}, {{}, b16}},
             {{{3, 5}, b1}, {{3, 5}, f64, swapped}, {{3, 5}, f64, swapped}}});
  return cases;
}

inline std::vector<OpCase> norm_cases() {
  std::vector<OpCase> cases;
  const auto layer_norm = [](Tensors& x) {
    auto [y, mean, scale] = at::native_layer_norm(x[0], x[1].sizes(), x[1], x[2], 1e-5);
    return Tensors{y, mean.detach(), scale.detach()};
  };
  add_cases(cases, "layer_norm", layer_norm,
            {{{{2, 5, 8}}, {{8}}, {{8}}},
             {{{2, 5, 8}, b16}, {{8}, b16}, {{8}, b16}},
             {{{2, 5, 8}, b16}, {{8}}, {{8}}},
             {{{2, 5, 8}, f64}, {{8}, f64}, {{8}, f64}},
             {{{5, 8}, f32, swapped}, {{8}}, {{8}}},
             {{{5, 8}, f32, gaps}, {{8}}, {{8}, f32, Layout::contiguous, false}},
             {{{1, 3, 4, 8}}, {{4, 8}}, {{4, 8}}},
             {{{64, 32, 16}}, {{16}}, {{16}}},
             {{{0, 8}}, {{8}}, {{8}}}});
  add_cases(cases, "layer_norm_plain",
            [](Tensors& x) { return Tensors{at::layer_norm(x[0], {x[0].size(-1)})}; },
            {{{{2, 5, 8}}}, {{{5, 8}, b16, swapped}}});
  add_cases(cases, "group_norm",
            [](Tensors& x) { return Tensors{at::group_norm(x[0], 2, x[1], x[2])}; },
            {{{{2, 4, 3, 3}}, {{4}}, {{4}}},
             {{{2, 4, 3, 3}, f32, last}, {{4}}, {{4}}},
             {{{1, 4, 5}, f64}, {{4}, f64}, {{4}, f64}},
             {{{2, 4, 3, 3}, b16}, {{4}}, {{4}}}});
  const std::vector<std::vector<OpInput>> one = {
      {{{3, 5, 4}}}, {{{3, 5, 4}, f32, swapped}}, {{{3, 5, 4}, b16}}, {{{1, 5, 4}, f64, gaps}}};
  add_cases(
      cases, "var", [](Tensors& x) { return Tensors{x[0].var(at::IntArrayRef{1}, 1, true)}; }, one);
  add_cases(
      cases, "std", [](Tensors& x) { return Tensors{x[0].std(at::IntArrayRef{0, 2}, 0, false)}; },
      one);
  add_cases(
      cases, "var_mean",
      [](Tensors& x) {
        auto [variance, mean] = at::var_mean(x[0], at::IntArrayRef{-1}, 1, false);
        return Tensors{variance, mean};
      },
      one);
  return cases;
}

inline std::vector<OpCase> shape_cases() {
  std::vector<OpCase> cases;
  const std::vector<std::vector<OpInput>> image = {{{{2, 6, 4, 4}}},
                                                   {{{2, 6, 4, 4}, f32, last}},
                                                   {{{1, 6, 4, 4}, b16}},
                                                   {{{2, 6, 4, 4}, f64, swapped}}};
  add_cases(cases, "index_select", [](Tensors& x) { return Tensors{x[0].index_select(0, x[1])}; },
            {{{{9, 4}}, {{7}, i64}},
             {{{9, 4}, b16, swapped}, {{7}, i64}},
             {{{9, 4}, b16}, {{7}, i64}},
             {{{9}, f64}, {{1}, i64}}});
  add_cases(
      cases, "embedding", [](Tensors& x) { return Tensors{at::embedding(x[0], x[1])}; },
      {{{{9, 4}}, {{2, 7}, i64}}, {{{9, 4}, b16}, {{2, 7}, i64}}, {{{9, 4}, f64}, {{0, 7}, i64}}});
  add_cases(
      cases, "roll", [](Tensors& x) { return Tensors{at::roll(x[0], {-1, 2}, {1, 2})}; }, image);
  add_cases(cases, "roll_one", [](Tensors& x) { return Tensors{at::roll(x[0], {1}, {3})}; }, image);
  add_cases(cases, "roll_flat", [](Tensors& x) { return Tensors{at::roll(x[0], {5}, {})}; }, image);
  add_cases(cases, "flip", [](Tensors& x) { return Tensors{at::flip(x[0], {1, -1})}; }, image);
  add_cases(
      cases, "reflection_pad2d",
      [](Tensors& x) { return Tensors{at::reflection_pad2d(x[0], {1, 2, 3, 0})}; }, image);
  add_cases(
      cases, "replication_pad2d",
      [](Tensors& x) { return Tensors{at::replication_pad2d(x[0], {1, 2, 3, 0})}; }, image);
  add_cases(
      cases, "adaptive_avg_pool2d",
      [](Tensors& x) { return Tensors{at::adaptive_avg_pool2d(x[0], {2, 3})}; }, image);
  add_cases(
      cases, "upsample_nearest2d",
      [](Tensors& x) { return Tensors{at::upsample_nearest2d(x[0], {8, 8})}; }, image);
  add_cases(
      cases, "pixel_shuffle",
      [](Tensors& x) { return Tensors{at::pixel_shuffle(x[0].narrow(1, 0, 4), 2)}; }, image);
  add_cases(
      cases, "pixel_unshuffle",
      [](Tensors& x) { return Tensors{at::pixel_shuffle(at::pixel_unshuffle(x[0], 2), 2)}; },
      image);
  add_cases(cases, "bincount", [](Tensors& x) { return Tensors{at::bincount(x[0], {}, 5)}; },
            {{{{9}, i64}}});
  add_cases(
      cases, "cat", [](Tensors& x) { return Tensors{at::cat({x[0], x[0].flip({2})}, 2)}; }, image);
  return cases;
}

}  // namespace braid::test
