// SPDX-License-Identifier: BSD-3-Clause
// Window attention against roll, windows, scores and masks written out in plain operators, values
// and gradients.
#include "braid/kernels/window_attention.h"

#include <cmath>

#include <ATen/Functions.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "support/drawn.h"

namespace braid::kernels {
namespace {

struct WindowCase {
  int64_t batch = 2, rows = 8, columns = 12, heads = 2, head = 3;
  WindowOptions options = {.window = 4, .scale = 0.7};
};

// [window, i, j]: whether token j is of another side of the image than token i.
at::Tensor hidden_by(const WindowCase& one) {
  const WindowOptions& o = one.options;
  const int64_t down = one.rows / o.window, across = one.columns / o.window,
                n = o.window * o.window;
  at::Tensor side = at::zeros({down, across, o.window, o.window}, at::kLong);
  if (o.seam_rows > 0) side[down - 1].narrow(1, o.window - o.seam_rows, o.seam_rows).add_(1);
  if (o.seam_columns > 0)
    side.select(1, across - 1).narrow(2, o.window - o.seam_columns, o.seam_columns).add_(2);
  side = side.view({down * across, n});
  return side.unsqueeze(2).ne(side.unsqueeze(1));
}

at::Tensor bias_of(const at::Tensor& table, int64_t window) {
  const int64_t n = window * window;
  const at::Tensor token = at::arange(n, at::kLong), row = token.div(window, "floor"),
                   column = token.remainder(window);
  const auto apart = [&](const at::Tensor& x) {
    return x.unsqueeze(1).sub(x.unsqueeze(0)).add(window - 1);
  };
  const at::Tensor entry = apart(row).mul(2 * window - 1).add(apart(column)).flatten();
  return table.index_select(0, entry).view({n, n, table.size(1)}).permute({2, 0, 1});
}

at::Tensor written_out(const at::Tensor& qkv, const at::Tensor& table, const WindowCase& one) {
  const WindowOptions& o = one.options;
  const int64_t down = one.rows / o.window, across = one.columns / o.window,
                n = o.window * o.window;
  const at::Tensor parts =
      qkv.roll({-o.roll_rows, -o.roll_columns}, {1, 2})
          .view({one.batch, down, o.window, across, o.window, 3, one.heads, one.head})
          .permute({5, 0, 1, 3, 6, 2, 4, 7})
          .reshape({3, one.batch, down * across, one.heads, n, one.head});
  at::Tensor scores = at::matmul(parts[0].mul(o.scale), parts[1].transpose(-2, -1));
  scores = scores.add(bias_of(table, o.window)).sub(hidden_by(one).unsqueeze(1).mul(100));
  return at::matmul(at::softmax(scores, -1), parts[2])
      .view({one.batch, down, across, one.heads, o.window, o.window, one.head})
      .permute({0, 1, 4, 2, 5, 3, 6})
      .reshape({one.batch, one.rows, one.columns, one.heads * one.head})
      .roll({o.roll_rows, o.roll_columns}, {1, 2});
}

struct Windowed {
  at::Tensor out, to_qkv, to_table;
};

template <class Attend>
Windowed windowed(const WindowCase& one, c10::ScalarType dtype, const Attend& attend) {
  const int64_t entries = (2 * one.options.window - 1) * (2 * one.options.window - 1);
  const auto drawn = [&](at::IntArrayRef sizes, const char* name) {
    return test::drawn(sizes, 4, name).to(dtype);
  };
  const at::Tensor qkv =
      drawn({one.batch, one.rows, one.columns, 3 * one.heads * one.head}, "qkv").requires_grad_();
  const at::Tensor table = drawn({entries, one.heads}, "table").requires_grad_();
  const at::Tensor out = attend(qkv, table);
  const at::Tensor grad = drawn(out.sizes(), "grad");
  const auto grads = torch::autograd::grad({out}, {qkv, table}, {grad});
  return {out.detach(), grads[0], grads[1]};
}

double windows_off_by(const at::Tensor& a, const at::Tensor& b) {
  return a.to(at::kDouble).sub(b.to(at::kDouble)).norm().item<double>() /
         std::max(b.to(at::kDouble).norm().item<double>(), 1e-300);
}

void expect_as_written_out(const WindowCase& one, c10::ScalarType dtype, double tolerance) {
  const Windowed got = windowed(one, dtype, [&](const at::Tensor& qkv, const at::Tensor& table) {
    return window_attention(qkv, table, one.options);
  });
  const auto plain = [&](const at::Tensor& qkv, const at::Tensor& table) {
    return written_out(qkv.to(at::kDouble), table.to(at::kDouble), one).to(dtype);
  };
  const Windowed wanted = windowed(one, dtype, plain);
  EXPECT_LE(windows_off_by(got.out, wanted.out), tolerance);
  EXPECT_LE(windows_off_by(got.to_qkv, wanted.to_qkv), tolerance);
  EXPECT_LE(windows_off_by(got.to_table, wanted.to_table), tolerance);
  EXPECT_EQ(got.to_table.scalar_type(), dtype);
}

std::vector<WindowCase> window_cases() {
  WindowCase plain, shifted, band, odd, one_window, tiny;
  shifted.options = shifted_windows(4, 0.7);
  band.options = {.window = 4, .scale = 0.7, .roll_columns = 2, .seam_columns = 2};
  odd = {.batch = 1, .rows = 9, .columns = 6, .heads = 3, .head = 5};
  odd.options = shifted_windows(3, 0.4);
  one_window = {.rows = 8, .columns = 8, .heads = 1, .head = 30};
  one_window.options = shifted_windows(8, 0.2);
  tiny = {.batch = 1, .rows = 1, .columns = 3, .heads = 1, .head = 1};
  tiny.options = {.window = 1, .scale = 1};
  return {plain, shifted, band, odd, one_window, tiny};
}

TEST(WindowAttention, IsTheOneWrittenOut) {
  for (const WindowCase& one : window_cases()) {
    SCOPED_TRACE(one.options.window);
    expect_as_written_out(one, at::kDouble, 1e-13);
    expect_as_written_out(one, at::kFloat, 2e-6);
    expect_as_written_out(one, at::kBFloat16, 1e-2);
    expect_as_written_out(one, at::kHalf, 2e-3);
  }
}

TEST(WindowAttention, GradientsGiveTheValueOnceMore) {
  for (const WindowCase& one : window_cases())
    for (const auto dtype : {at::kDouble, at::kBFloat16}) {
      const auto attend = [&](const at::Tensor& qkv, const at::Tensor& table) {
        return window_attention(qkv, table, one.options);
      };
      const auto by_hand = [&](const at::Tensor& qkv, const at::Tensor& table) {
        const at::Tensor out = attend(qkv, table);
        const at::Tensor grad = test::drawn(out.sizes(), 4, "grad").to(dtype);
        const WindowGrads grads = window_attention_grads(grad, qkv, table, one.options);
        EXPECT_TRUE(grads.value.equal(out));
        EXPECT_FALSE(grads.value.requires_grad());
        const Windowed wanted = windowed(one, dtype, attend);
        EXPECT_TRUE(grads.qkv.equal(wanted.to_qkv));
        EXPECT_TRUE(grads.table.equal(wanted.to_table));
        return out;
      };
      windowed(one, dtype, by_hand);
    }
}

TEST(WindowAttention, HoldsLargeScoresAndAnEmptyBatch) {
  WindowCase one;
  const at::Tensor qkv = test::drawn({1, 4, 4, 18}, 1, "qkv").mul_(300);
  const at::Tensor table = test::drawn({49, 2}, 2, "table").mul_(1e4);
  EXPECT_TRUE(window_attention(qkv, table, one.options).isfinite().all().item<bool>());
  const at::Tensor none = at::zeros({0, 4, 4, 18}, at::kDouble).requires_grad_();
  const at::Tensor rows = table.clone().requires_grad_();
  const at::Tensor out = window_attention(none, rows, one.options);
  EXPECT_EQ(out.sizes(), at::IntArrayRef({0, 4, 4, 6}));
  out.sum().backward();
  EXPECT_EQ(rows.grad().abs().sum().item<double>(), 0);
}

TEST(WindowAttention, RefusesWhatHasNoWholeWindows) {
  const at::Tensor table = at::zeros({49, 2});
  EXPECT_THROW(window_attention(at::zeros({1, 6, 4, 18}), table, {.window = 4}), c10::Error);
  EXPECT_THROW(window_attention(at::zeros({1, 4, 4, 15}), table, {.window = 4}), c10::Error);
  EXPECT_THROW(window_attention(at::zeros({1, 4, 4, 18}), table, {.window = 2}), c10::Error);
}

}  // namespace
}  // namespace braid::kernels
