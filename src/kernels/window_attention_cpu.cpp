// SPDX-License-Identifier: BSD-3-Clause
// Window attention on the CPU, one head of one window at a time; the twin of
// src/cuda/window_attention*.cu.
#include <algorithm>
#include <array>
#include <cmath>
#include <type_traits>
#include <vector>

#include <ATen/Dispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include "braid/core/in_parts.h"
#include "kernels/window_places.h"

namespace braid::kernels {
namespace {

template <class T>
using WindowSum = std::conditional_t<std::is_same_v<T, double>, double, float>;

// out [n, m] += a [n, k] b [k, m]: rows of b are added up, so that neighbours are computed
// together.
template <class W>
void add_product(W* out, const W* a, const W* b, const std::array<int64_t, 3>& nkm) {
  const auto [n, k, m] = nkm;
  for (int64_t i = 0; i < n; ++i)
    for (int64_t c = 0; c < k; ++c) {
      const W factor = a[i * k + c];
      const W* row = b + c * m;
      W* to = out + i * m;
      for (int64_t j = 0; j < m; ++j) to[j] += factor * row[j];
    }
}

template <class W>
std::vector<W> transposed(const std::vector<W>& x, int64_t rows, int64_t columns) {
  std::vector<W> out(x.size());
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j) out[j * rows + i] = x[i * columns + j];
  return out;
}

// One head of one window.
template <class T>
class WindowHead {
 public:
  using W = WindowSum<T>;
  explicit WindowHead(const WindowPlaces& places)
      : p_(places),
        n_(places.tokens()),
        d_(places.head),
        pixels_(n_),
        sides_(n_),
        entries_(n_ * n_) {
    for (int64_t i = 0; i < n_; ++i)
      for (int64_t j = 0; j < n_; ++j) entries_[i * n_ + j] = p_.entry(i, j);
  }

  void enter(int64_t window, int64_t head) {
    head_ = head;
    for (int64_t i = 0; i < n_; ++i) {
      pixels_[i] = p_.pixel(window, i);
      sides_[i] = p_.side(window, i);
    }
  }

  void attend(const T* qkv, const W* table, T* out) {
    weigh(qkv, table);
    sum_up(out);
  }

  // The weighted sums of the weights at hand.
  void sum_up(T* out) const {
    std::vector<W> sum(n_ * d_);
    add_product(sum.data(), weights_.data(), v_.data(), {n_, n_, d_});
    store(sum, out, 1, 0);
  }

  void gradients(const T* grad, const T* qkv, const W* table, T* to_qkv, W* to_table) {
    weigh(qkv, table);
    const std::vector<W> out = load(grad, 1, 0);
    std::vector<W> scores(n_ * n_), q(n_ * d_), k(n_ * d_), v(n_ * d_);
    add_product(v.data(), transposed(weights_, n_, n_).data(), out.data(), {n_, n_, d_});
    add_product(scores.data(), out.data(), transposed(v_, n_, d_).data(), {n_, d_, n_});
    through_softmax(scores);
    for (int64_t i = 0; i < n_ * n_; ++i) to_table[entries_[i] * p_.heads + head_] += scores[i];
    for (W& score : scores) score *= static_cast<W>(p_.scale);
    add_product(q.data(), scores.data(), k_.data(), {n_, n_, d_});
    add_product(k.data(), transposed(scores, n_, n_).data(), q_.data(), {n_, n_, d_});
    store(q, to_qkv, 3, 0);
    store(k, to_qkv, 3, 1);
    store(v, to_qkv, 3, 2);
  }

 private:
  int64_t place(int64_t token, int64_t of, int64_t which) const {
    return ((pixels_[token] * of + which) * p_.heads + head_) * d_;
  }
  std::vector<W> load(const T* from, int64_t of, int64_t which) const {
    std::vector<W> rows(n_ * d_);
    for (int64_t i = 0; i < n_; ++i)
      for (int64_t c = 0; c < d_; ++c)
        rows[i * d_ + c] = static_cast<W>(from[place(i, of, which) + c]);
    return rows;
  }
  void store(const std::vector<W>& rows, T* to, int64_t of, int64_t which) const {
    for (int64_t i = 0; i < n_; ++i)
      for (int64_t c = 0; c < d_; ++c)
        to[place(i, of, which) + c] = static_cast<T>(rows[i * d_ + c]);
  }

  // Softmax of the scores.
  void weigh(const T* qkv, const W* table) {
    q_ = load(qkv, 3, 0);
    k_ = load(qkv, 3, 1);
    v_ = load(qkv, 3, 2);
    weights_.assign(n_ * n_, W(0));
    add_product(weights_.data(), q_.data(), transposed(k_, n_, d_).data(), {n_, d_, n_});
    for (int64_t i = 0; i < n_; ++i) {
      W* row = weights_.data() + i * n_;
      for (int64_t j = 0; j < n_; ++j) {
        row[j] = row[j] * static_cast<W>(p_.scale) + table[entries_[i * n_ + j] * p_.heads + head_];
        if (sides_[i] != sides_[j]) row[j] += static_cast<W>(hidden_score);
      }
      normalise(row);
    }
  }
  void normalise(W* row) const {
    const W top = *std::max_element(row, row + n_);
    W sum = 0;
    for (int64_t j = 0; j < n_; ++j) {
      row[j] = std::exp(row[j] - top);
      sum += row[j];
    }
    for (int64_t j = 0; j < n_; ++j) row[j] /= sum;
  }
  // From gradients of the weights to those of the scores.
  void through_softmax(std::vector<W>& grads) const {
    for (int64_t i = 0; i < n_; ++i) {
      const W* weights = weights_.data() + i * n_;
      W* row = grads.data() + i * n_;
      W common = 0;
      for (int64_t j = 0; j < n_; ++j) common += weights[j] * row[j];
      for (int64_t j = 0; j < n_; ++j) row[j] = weights[j] * (row[j] - common);
    }
  }

  const WindowPlaces& p_;
  int64_t n_, d_, head_ = 0;
  std::vector<int64_t> pixels_;
  std::vector<int> sides_;
  std::vector<int64_t> entries_;
  std::vector<W> q_, k_, v_, weights_;
};

at::Tensor window_attention_cpu(const at::Tensor& qkv, const at::Tensor& table, int64_t window,
                                at::IntArrayRef edges, double scale) {
  const WindowPlaces places = window_places(qkv, table, window, edges, scale);
  at::Tensor out = at::empty(
      {places.batch, places.height, places.width, places.heads * places.head}, qkv.options());
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, qkv.scalar_type(), "window_attention",
                                  [&] {
                                    const auto* from = qkv.const_data_ptr<scalar_t>();
                                    const auto* bias = table.const_data_ptr<WindowSum<scalar_t>>();
                                    auto* to = out.mutable_data_ptr<scalar_t>();
                                    in_parts(places.windows(), 1, [&](int64_t begin, int64_t end) {
                                      WindowHead<scalar_t> one(places);
                                      for (int64_t w = begin; w < end; ++w)
                                        for (int64_t head = 0; head < places.heads; ++head) {
                                          one.enter(w, head);
                                          one.attend(from, bias, to);
                                        }
                                    });
                                  });
  return out;
}

template <class T>
struct WindowGradPointers {
  const T *grad, *qkv;
  const WindowSum<T>* table;
  T *to_qkv, *value;  // value: null if it is not wanted
};

// The windows of one part, and their sum for the table.
template <class T>
void grads_of_part(const WindowPlaces& places, int64_t part, const WindowGradPointers<T>& x,
                   WindowSum<T>* to_table) {
  WindowHead<T> one(places);
  for (int64_t w = part; w < places.windows(); w += places.parts())
    for (int64_t head = 0; head < places.heads; ++head) {
      one.enter(w, head);
      one.gradients(x.grad, x.qkv, x.table, x.to_qkv, to_table);
      if (x.value != nullptr) one.sum_up(x.value);
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
        using W = WindowSum<scalar_t>;
        std::vector<W> sums(places.parts() * table.numel());
        const WindowGradPointers<scalar_t> pointers = {
            grad.const_data_ptr<scalar_t>(), qkv.const_data_ptr<scalar_t>(),
            table.const_data_ptr<W>(), to_qkv.mutable_data_ptr<scalar_t>(),
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
