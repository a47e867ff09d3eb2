// SPDX-License-Identifier: BSD-3-Clause
// Window attention on the CPU, one head of one window at a time; the twin of
// src/cuda/window_attention*.cu.
#include <algorithm>
#include <limits>
#include <tuple>
#include <vector>

#include <ATen/Dispatch.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include "braid/core/in_parts.h"
#include "kernels/small_product.h"
#include "kernels/wide_exp.h"
#include "kernels/window_places.h"

namespace braid::kernels {
namespace {

// Rows of whole vectors: behind their numbers there are zeros.
template <class W>
struct WindowTile {
  WindowTile(int64_t rows, int64_t columns)
      : row(whole_vectors<W>(columns)), values(static_cast<size_t>(rows * row)) {}
  W* operator[](int64_t i) { return values.data() + i * row; }
  const W* operator[](int64_t i) const { return values.data() + i * row; }

  int64_t row;
  std::vector<W> values;
};

template <class W>
void transpose_tile(const WindowTile<W>& from, int64_t rows, int64_t columns, WindowTile<W>& to) {
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j) to[j][i] = from[i][j];
}

// out = a b, or the transposed a times b.
template <class W>
void multiply_tiles(const WindowTile<W>& a, bool turned, const WindowTile<W>& b, int64_t rows,
                    int64_t inner, WindowTile<W>& out) {
  small_product<W>({.a = a[0],
                    .a_row = turned ? 1 : a.row,
                    .a_column = turned ? a.row : 1,
                    .b = b[0],
                    .b_row = b.row},
                   out[0], {rows, inner, out.row});
}

// Rows of the bias table, by query and key.
std::vector<int64_t> window_entries(const WindowPlaces& p) {
  std::vector<int64_t> all;
  for (int64_t i = 0; i < p.tokens(); ++i)
    for (int64_t j = 0; j < p.tokens(); ++j) all.push_back(p.entry(i, j));
  return all;
}

// What is added to the scores of each head; the columns behind those of keys get no weight.
template <class W>
std::vector<WindowTile<W>> window_biases(const WindowPlaces& p, const W* table,
                                         const std::vector<int64_t>& entries) {
  const int64_t n = p.tokens();
  std::vector<WindowTile<W>> all(static_cast<size_t>(p.heads), WindowTile<W>(n, n));
  for (int64_t head = 0; head < p.heads; ++head)
    for (int64_t i = 0; i < n; ++i) {
      W* row = all[static_cast<size_t>(head)][i];
      for (int64_t j = 0; j < n; ++j)
        row[j] = table[entries[static_cast<size_t>(i * n + j)] * p.heads + head];
      std::fill(row + n, row + whole_vectors<W>(n), -std::numeric_limits<W>::infinity());
    }
  return all;
}

// One head of one window.
template <class T>
class WindowHead {
 public:
  using W = WideOf<T>;
  explicit WindowHead(const WindowPlaces& places)
      : p_(places),
        n_(places.tokens()),
        d_(places.head),
        pixels_(static_cast<size_t>(n_)),
        sides_(static_cast<size_t>(whole_vectors<W>(n_))) {}

  void enter(int64_t window) {
    for (int64_t i = 0; i < n_; ++i) {
      pixels_[static_cast<size_t>(i)] = p_.pixel(window, i);
      sides_[static_cast<size_t>(i)] = static_cast<W>(p_.side(window, i));
    }
  }

  void turn_to(int64_t head) { head_ = head; }

  void attend(const T* qkv, const WindowTile<W>& bias, T* out) {
    weigh(qkv, bias);
    sum_up(out);
  }

  // The weighted sums of the weights at hand.
  void sum_up(T* out) {
    multiply_tiles(weights_, false, v_, n_, n_, result_);
    store(result_, out, 1, 0);
  }

  // The gradient of the bias is added to `to_bias`.
  void gradients(const T* grad, const T* qkv, const WindowTile<W>& bias, T* to_qkv,
                 WindowTile<W>& to_bias) {
    weigh(qkv, bias);
    load(grad, 1, 0, grad_);
    multiply_tiles(weights_, true, grad_, n_, n_, result_);
    store(result_, to_qkv, 3, 2);
    transpose_tile(v_, n_, d_, turned_);
    multiply_tiles(grad_, false, turned_, n_, d_, scores_);
    through_softmax(to_bias);
    multiply_tiles(scores_, false, k_, n_, n_, result_);
    store(result_, to_qkv, 3, 0);
    multiply_tiles(scores_, true, q_, n_, n_, result_);
    store(result_, to_qkv, 3, 1);
  }

 private:
  int64_t place(int64_t token, int64_t of, int64_t which) const {
    return ((pixels_[static_cast<size_t>(token)] * of + which) * p_.heads + head_) * d_;
  }
  void load(const T* from, int64_t of, int64_t which, WindowTile<W>& to) const {
    for (int64_t i = 0; i < n_; ++i) {
      const T* row = from + place(i, of, which);
      for (int64_t c = 0; c < d_; ++c) to[i][c] = static_cast<W>(row[c]);
    }
  }
  void store(const WindowTile<W>& from, T* to, int64_t of, int64_t which) const {
    for (int64_t i = 0; i < n_; ++i) {
      T* row = to + place(i, of, which);
      for (int64_t c = 0; c < d_; ++c) row[c] = static_cast<T>(from[i][c]);
    }
  }

  // Softmax of the scores.
  void weigh(const T* qkv, const WindowTile<W>& bias) {
    load(qkv, 3, 0, q_);
    load(qkv, 3, 1, k_);
    load(qkv, 3, 2, v_);
    transpose_tile(k_, n_, d_, turned_);
    multiply_tiles(q_, false, turned_, n_, d_, weights_);
    widest([&] {
      for (int64_t i = 0; i < n_; ++i)
        normalise(weights_[i], bias[i], sides_[static_cast<size_t>(i)]);
    });
  }
  BRAID_INLINE void normalise(W* row, const W* bias, W side) const {
    const int64_t count = weights_.row;
    const W scale = static_cast<W>(p_.scale), hidden = static_cast<W>(hidden_score);
    const W* sides = sides_.data();
    along(count, [&](int64_t j) {
      row[j] = row[j] * scale + bias[j] + (sides[j] == side ? W(0) : hidden);
    });
    const W top = largest_along(count, row[0], [&](int64_t j) { return row[j]; });
    along(count, [&](int64_t j) { row[j] = exponential(row[j] - top); });
    const W sum = sum_along<W>(count, [&](int64_t j) { return row[j]; });
    along(count, [&](int64_t j) { row[j] /= sum; });
  }
  // From gradients of the weights to those of the products of q and k.
  void through_softmax(WindowTile<W>& to_bias) {
    const W scale = static_cast<W>(p_.scale);
    widest([&] {
      for (int64_t i = 0; i < n_; ++i) {
        const W* weights = weights_[i];
        W *row = scores_[i], *sums = to_bias[i];
        const W common = sum_along<W>(scores_.row, [&](int64_t j) { return weights[j] * row[j]; });
        along(scores_.row, [&](int64_t j) {
          const W grad = weights[j] * (row[j] - common);
          sums[j] += grad;
          row[j] = grad * scale;
        });
      }
    });
  }

  const WindowPlaces& p_;
  int64_t n_, d_, head_ = 0;
  std::vector<int64_t> pixels_;
  std::vector<W> sides_;
  WindowTile<W> q_{n_, d_}, k_{n_, d_}, v_{n_, d_}, grad_{n_, d_}, result_{n_, d_};
  WindowTile<W> turned_{d_, n_}, weights_{n_, n_}, scores_{n_, n_};
};

at::Tensor window_attention_cpu(const at::Tensor& qkv, const at::Tensor& table, int64_t window,
                                at::IntArrayRef edges, double scale) {
  const WindowPlaces places = window_places(qkv, table, window, edges, scale);
  at::Tensor out = at::empty(
      {places.batch, places.height, places.width, places.heads * places.head}, qkv.options());
  AT_DISPATCH_FLOATING_TYPES_AND2(
      at::kHalf, at::kBFloat16, qkv.scalar_type(), "window_attention", [&] {
        using W = WideOf<scalar_t>;
        const auto* from = qkv.const_data_ptr<scalar_t>();
        const auto biases =
            window_biases<W>(places, table.const_data_ptr<W>(), window_entries(places));
        auto* to = out.mutable_data_ptr<scalar_t>();
        in_parts(places.windows(), 1, [&](int64_t begin, int64_t end) {
          WindowHead<scalar_t> one(places);
          for (int64_t w = begin; w < end; ++w) {
            one.enter(w);
            for (int64_t head = 0; head < places.heads; ++head) {
              one.turn_to(head);
              one.attend(from, biases[static_cast<size_t>(head)], to);
            }
          }
        });
      });
  return out;
}

template <class T>
struct WindowGradPointers {
  const T *grad, *qkv;
  const std::vector<WindowTile<WideOf<T>>>& biases;
  const std::vector<int64_t>& entries;
  T *to_qkv, *value;  // value: null if it is not wanted
};

// The windows of one part, and their sum for the table.
template <class T>
void grads_of_part(const WindowPlaces& places, int64_t part, const WindowGradPointers<T>& x,
                   WideOf<T>* to_table) {
  const int64_t n = places.tokens(), heads = places.heads;
  std::vector<WindowTile<WideOf<T>>> to_biases(static_cast<size_t>(heads), {n, n});
  WindowHead<T> one(places);
  for (int64_t w = part; w < places.windows(); w += places.parts()) {
    one.enter(w);
    for (int64_t head = 0; head < heads; ++head) {
      const auto which = static_cast<size_t>(head);
      one.turn_to(head);
      one.gradients(x.grad, x.qkv, x.biases[which], x.to_qkv, to_biases[which]);
      if (x.value != nullptr) one.sum_up(x.value);
    }
  }
  for (int64_t head = 0; head < heads; ++head)
    for (int64_t i = 0; i < n; ++i) {
      const auto* row = to_biases[static_cast<size_t>(head)][i];
      for (int64_t j = 0; j < n; ++j)
        to_table[x.entries[static_cast<size_t>(i * n + j)] * heads + head] += row[j];
    }
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> window_attention_grad_cpu(
    const at::Tensor& grad, const at::Tensor& qkv, const at::Tensor& table, int64_t window,
    at::IntArrayRef edges, double scale, bool again) {
  const WindowPlaces places = window_places(qkv, table, window, edges, scale);
  at::Tensor to_qkv = at::empty(qkv.sizes(), qkv.options()),
             to_table = at::empty(table.sizes(), table.options()), value;
  if (again) value = at::empty(grad.sizes(), grad.options());
  AT_DISPATCH_FLOATING_TYPES_AND2(
      at::kHalf, at::kBFloat16, qkv.scalar_type(), "window_attention_grad", [&] {
        using W = WideOf<scalar_t>;
        std::vector<W> sums(static_cast<size_t>(places.parts() * table.numel()));
        const std::vector<int64_t> entries = window_entries(places);
        const auto biases = window_biases<W>(places, table.const_data_ptr<W>(), entries);
        const WindowGradPointers<scalar_t> pointers = {
            grad.const_data_ptr<scalar_t>(),
            qkv.const_data_ptr<scalar_t>(),
            biases,
            entries,
            to_qkv.mutable_data_ptr<scalar_t>(),
            again ? value.mutable_data_ptr<scalar_t>() : nullptr};
        in_parts(places.parts(), 1, [&](int64_t begin, int64_t end) {
          for (int64_t part = begin; part < end; ++part)
            grads_of_part(places, part, pointers, sums.data() + part * table.numel());
        });
        W* total = to_table.mutable_data_ptr<W>();
        std::fill_n(total, table.numel(), W(0));
        for (int64_t part = 0; part < places.parts(); ++part)
          for (int64_t i = 0; i < table.numel(); ++i) total[i] += sums[part * table.numel() + i];
      });
  return {to_qkv, to_table, value};
}

TORCH_LIBRARY_IMPL(braid, CPU, library) {
  library.impl("window_attention", &window_attention_cpu);
  library.impl("window_attention_grad", &window_attention_grad_cpu);
}

}  // namespace
}  // namespace braid::kernels
