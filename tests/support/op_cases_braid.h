// SPDX-License-Identifier: BSD-3-Clause
// The functions of braid/kernels and the operators of metrics, for the tables of op_cases.h.
#pragma once
#include "braid/kernels/activation.h"
#include "braid/kernels/adam.h"
#include "braid/kernels/attention.h"
#include "braid/kernels/dropout.h"
#include "braid/kernels/head_loss.h"
#include "braid/kernels/linear.h"
#include "braid/kernels/masks.h"
#include "braid/kernels/norm.h"
#include "braid/kernels/rotary.h"
#include "braid/kernels/window_attention.h"
#include "support/op_cases.h"

namespace braid::test {

inline std::vector<OpCase> braid_cases() {
  std::vector<OpCase> cases;
  const kernels::Drop drop = {.rate = 0.25, .key = {7}, .first_sample = 3};
  const auto one = one_input();
  add_cases(
      cases, "keep_mask", [](Tensors& x) { return Tensors{kernels::keep_mask(x[0], 0.5, {7}, 3)}; },
      one);
  add_cases(
      cases, "dropout", [=](Tensors& x) { return Tensors{kernels::dropout(x[0], drop)}; }, one);
  add_cases(
      cases, "drop_path", [=](Tensors& x) { return Tensors{kernels::drop_path(x[0], drop)}; }, one);
  add_cases(
      cases, "pack_bits",
      [](Tensors& x) {
        const at::Tensor bits = kernels::pack_bits(x[0]);
        return Tensors{bits, kernels::unpack_bits(bits, x[0].sizes())};
      },
      one);
  add_cases(
      cases, "quantize_blocks",
      [](Tensors& x) {
        const kernels::Blocks blocks = kernels::quantize_blocks(x[0]);
        return Tensors{blocks.codes, blocks.scales,
                       kernels::dequantize_blocks(blocks, x[0].scalar_type())};
      },
      one);
  add_cases(
      cases, "packed_relu", [](Tensors& x) { return Tensors{kernels::relu(x[0], true)}; }, one);
  add_cases(
      cases, "packed_leaky_relu",
      [](Tensors& x) { return Tensors{kernels::leaky_relu(x[0], 0.1, true)}; }, one);
  const kernels::NormOptions to_b16 = {.dtype = b16};
  add_cases(cases, "braid_rms_norm",
            [](Tensors& x) { return Tensors{kernels::norm_rows(x[0], {x[1]})}; },
            {{{{2, 5, 8}}, {{8}}}, {{{2, 5, 8}, b16}, {{8}}}, {{{5, 8}, f64, gaps}, {{8}, f64}}});
  add_cases(cases, "braid_layer_norm",
            [=](Tensors& x) { return Tensors{kernels::norm_rows(x[0], {x[1], x[2]}, to_b16)}; },
            {{{{2, 5, 8}}, {{8}}, {{8}}}, {{{500, 7}, f32, swapped}, {{7}}, {{7}}}});
  add_cases(cases, "braid_add_norm",
            [=](Tensors& x) {
              const auto both = kernels::add_norm_rows(x[0], x[1], {x[2], x[3]}, to_b16);
              return Tensors{both.sum, both.y};
            },
            {{{{2, 5, 8}}, {{2, 5, 8}, b16}, {{8}}, {{8}}},
             {{{2, 5, 8}, b16}, {{2, 5, 8}, b16}, {{8}, b16}, {{8}, b16}},
             {{{5, 8}, f64, gaps}, {{5, 8}, f32, swapped}, {{8}}, {{8}}}});
  add_cases(
      cases, "swiglu",
      [](Tensors& x) {
        return Tensors{kernels::activated({kernels::Activation::swiglu, x[0], x[1]})};
      },
      {{{{3, 5}}, {{3, 5}}}, {{{3, 5}, b16}, {{3, 5}, b16}}, {{{3, 5}, f64, gaps}, {{3, 5}, f64}}});
  add_cases(cases, "head_loss",
            [](Tensors& x) { return Tensors{kernels::head_loss(x[0], x[1], x[2], {.rows = 3})}; },
            {{{{5, 4}}, {{7, 4}}, {{5}, i64}},
             {{{5, 4}, f64, gaps}, {{7, 4}, f64}, {{5}, i64}},
             {{{5, 4}, b16}, {{7, 4}, b16}, {{5}, i64}},
             {{{5, 4}, b16}, {{7, 4}}, {{5}, i64}}});
  for (const auto kind : {kernels::Activation::gelu, kernels::Activation::gelu_tanh})
    add_cases(
        cases, kind == kernels::Activation::gelu ? "braid_gelu" : "braid_gelu_tanh",
        [=](Tensors& x) { return Tensors{kernels::activated({kind, x[0]})}; }, one);
  add_cases(cases, "linear_gelu",
            [](Tensors& x) {
              const auto h = kernels::linear_to(x[0], {x[1], x[2]}, kernels::Activation::gelu_tanh);
              return kernels::linears(h, {{x[3]}});
            },
            {{{{2, 3, 8}, b16}, {{16, 8}, b16}, {{16}, b16}, {{8, 16}, b16}},
             {{{6, 8}, b16}, {{16, 8}}, {{16}}, {{8, 16}}},
             {{{6, 8}}, {{16, 8}}, {{16}}, {{8, 16}}}});
  const OpInput table = {{5, 4}, f32, Layout::contiguous, false};
  add_cases(cases, "rotary",
            [](Tensors& x) {
              const auto [q, k] = kernels::rotary(x[0], x[1], {x[2], x[3]});
              return Tensors{q, k};
            },
            {{{{2, 5, 3, 8}}, {{2, 5, 1, 8}}, table, table},
             {{{2, 5, 3, 8}, b16}, {{2, 5, 3, 8}, b16}, table, table},
             {{{2, 5, 3, 8}, f32, gaps}, {{2, 5, 2, 8}}, table, table}});
  const auto attend = [=](Tensors& x) {
    return Tensors{kernels::attention(x[0].transpose(1, 2), x[1].transpose(1, 2),
                                      x[2].transpose(1, 2), {.causal = true, .drop = drop})};
  };
  add_cases(cases, "attention_written_out", attend,
            {{{{2, 7, 4, 8}}, {{2, 7, 2, 8}}, {{2, 7, 2, 8}}},
             {{{2, 7, 4, 8}, b16}, {{2, 7, 4, 8}, b16}, {{2, 7, 4, 8}, b16}},
             {{{2, 7, 3, 8}, f32, gaps}, {{2, 7, 3, 8}, f32, gaps}, {{2, 7, 3, 8}, f32, gaps}}});
  return cases;
}

inline std::vector<OpCase> window_cases() {
  std::vector<OpCase> cases;
  const auto attend = [](Tensors& x) {
    return Tensors{kernels::window_attention(x[0], x[1], kernels::shifted_windows(8, 0.2))};
  };
  add_cases(cases, "window_attention", attend,
            {{{{2, 16, 24, 180}}, {{225, 2}}},
             {{{2, 16, 24, 192}, b16}, {{225, 2}}},
             {{{2, 16, 24, 36}, b16}, {{225, 2}, b16}},
             {{{1, 8, 8, 18}, f64}, {{225, 2}, f64}}});
  return cases;
}

inline std::vector<OpCase> metric_cases() {
  std::vector<OpCase> cases;
  const std::vector<std::vector<OpInput>> fields = {
      {{{2, 3, 12, 12}, f32, Layout::contiguous, false}, {{2, 3, 12, 12}}},
      {{{2, 3, 12, 12}, f64, last, false}, {{2, 3, 12, 12}, f64}}};
  add_cases(
      cases, "error",
      [](Tensors& x) {
        const at::Tensor difference = x[0] - x[1];
        const at::Tensor norm = at::linalg_vector_norm(difference.flatten(1), 2, {1});
        return Tensors{norm, difference.square().mean({2, 3}).sqrt().log10() * 20};
      },
      fields);
  add_cases(
      cases, "range",
      [](Tensors& x) { return Tensors{x[0].amax({2, 3}, true) - x[0].amin({2, 3}, true)}; },
      fields);
  add_cases(cases, "hits",
            [](Tensors& x) {
              const at::Tensor counted = x[1].ne(-100);
              const at::Tensor right = x[0].argmax(-1).eq(x[1]).logical_and_(counted);
              return Tensors{right.flatten(1).sum(1) / counted.flatten(1).sum(1).clamp_min(1)};
            },
            {{{{2, 7, 9}, f32, Layout::contiguous, false}, {{2, 7}, i64}}});
  add_cases(cases, "count", [](Tensors& x) { return Tensors{x[0].ne(-100).sum().clamp_min(1)}; },
            {{{{6, 9}, i64}}, {{{0}, i64}}, {{{6, 9}, i64, swapped}}});
  return cases;
}

}  // namespace braid::test
