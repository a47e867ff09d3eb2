// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/activation_cpu.h"

#include <algorithm>
#include <array>
#include <tuple>

#include "braid/core/in_parts.h"
#include "kernels/column_sum.h"
#include "kernels/cpu_rows.h"
#include "kernels/meta.h"
#include "kernels/rows.h"
#include "kernels/wide_normal.h"

namespace braid::kernels {
namespace {

template <class T>
BRAID_INLINE WideOf<T> wide(T x) {
  return static_cast<WideOf<T>>(x);
}
template <class T>
BRAID_INLINE void store(T& to, WideOf<T> value) {
  to = static_cast<T>(value);
}

// Where a row of each begins.
template <class Pointer, size_t count>
std::array<Pointer, count> at_row(int64_t row, std::array<Pointer, count> begins,
                                  const std::array<at::Tensor, count>& of) {
  for (size_t k = 0; k < count; ++k) begins[k] += row * of[k].stride(0);
  return begins;
}

// body(in..., out..., width) for each row, with pointers to its numbers: inputs and outputs are
// [..., width] of one dtype. Outputs have evenly spaced rows; what is read of them is what was.
template <size_t ins, size_t outs, class Body>
void map_cpu_rows(const std::array<at::Tensor, ins>& inputs,
                  const std::array<at::Tensor, outs>& outputs, const Body& body) {
  if (inputs[0].numel() == 0) return;
  std::array<at::Tensor, ins> from;
  std::array<at::Tensor, outs> to;
  std::transform(inputs.begin(), inputs.end(), from.begin(), side_by_side_rows);
  std::transform(outputs.begin(), outputs.end(), to.begin(),
                 [](const at::Tensor& x) { return x.view({-1, x.size(-1)}); });
  const int64_t rows = from[0].size(0), width = from[0].size(1);
  of_dtype(from[0].scalar_type(), [&](auto kind) {
    using T = decltype(kind);
    std::array<const T*, ins> read;
    std::array<T*, outs> written;
    for (size_t k = 0; k < ins; ++k) read[k] = from[k].template const_data_ptr<T>();
    for (size_t k = 0; k < outs; ++k) written[k] = to[k].template mutable_data_ptr<T>();
    in_parts(rows, std::max<int64_t>(1, (1 << 13) / width), [&](int64_t first, int64_t last) {
      for (int64_t row = first; row < last; ++row)
        std::apply([&](auto*... at) { widest([&] { body(at..., width); }); },
                   std::tuple_cat(at_row(row, read, from), at_row(row, written, to)));
    });
  });
}

// x times the logistic function of 2 sqrt(2 / pi) (x + 0.044715 x^3), which is GELU by tanh.
template <class W>
struct TanhGelu {
  static constexpr W slope = W(1.59576912160573071176), cubic = W(0.044715);
  BRAID_INLINE explicit TanhGelu(W x) : x(x), share(sigmoid(slope * (x + cubic * x * x * x))) {}
  BRAID_INLINE W value() const { return x * share; }
  BRAID_INLINE W derivative() const {
    return share + x * share * (1 - share) * (slope * (1 + 3 * cubic * x * x));
  }
  W x, share;
};

template <class W>
struct NormalGelu : private Normal<W> {
  BRAID_INLINE explicit NormalGelu(W x) : Normal<W>(x), x(x) {}
  BRAID_INLINE W value() const { return x * this->share; }
  BRAID_INLINE W derivative() const { return this->share + x * this->density; }
  W x;
};

template <class W>
struct Silu {
  BRAID_INLINE explicit Silu(W x) : x(x), share(sigmoid(x)) {}
  BRAID_INLINE W value() const { return x * share; }
  BRAID_INLINE W derivative() const { return share * (1 + x * (1 - share)); }
  W x, share;
};

template <template <class> class Curve>
void map_values(const at::Tensor& h, const at::Tensor& value) {
  map_cpu_rows<1, 1>({h}, {value}, [](auto* x, auto* y, int64_t width) {
    along(width, [&](int64_t i) { store(y[i], Curve(wide(x[i])).value()); });
  });
}

template <template <class> class Curve>
void map_gradients(const at::Tensor& h, const at::Tensor& grad, const at::Tensor& d_h) {
  map_cpu_rows<2, 1>({h, grad}, {d_h}, [](auto* x, auto* g, auto* to, int64_t width) {
    along(width, [&](int64_t i) { store(to[i], wide(g[i]) * Curve(wide(x[i])).derivative()); });
  });
}

template <template <class> class Curve>
void map_gradients_in_place(const at::Tensor& h, const at::Tensor& grad, const at::Tensor& value) {
  map_cpu_rows<1, 2>({h}, {grad, value}, [](auto* x, auto* g, auto* y, int64_t width) {
    along(width, [&](int64_t i) {
      const Curve curve(wide(x[i]));
      store(g[i], wide(g[i]) * curve.derivative());
      store(y[i], curve.value());
    });
  });
}

}  // namespace

at::Tensor gelu_cpu(const at::Tensor& h, bool tanh) {
  const at::Tensor value = fresh_contiguous(h);
  tanh ? map_values<TanhGelu>(h, value) : map_values<NormalGelu>(h, value);
  return value;
}

at::Tensor gelu_grad_cpu(const at::Tensor& h, const at::Tensor& grad, bool tanh) {
  const at::Tensor d_h = fresh_contiguous(h);
  tanh ? map_gradients<TanhGelu>(h, grad, d_h) : map_gradients<NormalGelu>(h, grad, d_h);
  return d_h;
}

TwoTensors gelu_grad_in_place_cpu(const at::Tensor& h, at::Tensor& grad, bool tanh, SumDtype sum) {
  const at::Tensor value = fresh_contiguous(h);
  tanh ? map_gradients_in_place<TanhGelu>(h, grad, value)
       : map_gradients_in_place<NormalGelu>(h, grad, value);
  return {value, sum ? column_sum_cpu(as_rows(grad), *sum) : at::Tensor()};
}

at::Tensor swiglu_cpu(const at::Tensor& gate, const at::Tensor& up) {
  at::Tensor value = fresh_contiguous(gate);
  map_cpu_rows<2, 1>({gate, up}, {value}, [](auto* x, auto* u, auto* y, int64_t width) {
    along(width, [&](int64_t i) { store(y[i], Silu(wide(x[i])).value() * wide(u[i])); });
  });
  return value;
}

TwoTensors swiglu_grad_cpu(const at::Tensor& gate, const at::Tensor& up, const at::Tensor& grad) {
  at::Tensor d_gate = fresh_contiguous(gate), d_up = fresh_contiguous(up);
  map_cpu_rows<3, 2>({gate, up, grad}, {d_gate, d_up},
                     [](auto* x, auto* u, auto* g, auto* to_x, auto* to_u, int64_t width) {
                       along(width, [&](int64_t i) {
                         const Silu curve(wide(x[i]));
                         store(to_x[i], wide(g[i]) * wide(u[i]) * curve.derivative());
                         store(to_u[i], wide(g[i]) * curve.value());
                       });
                     });
  return {d_gate, d_up};
}

TwoTensors swiglu_grad_in_place_cpu(const at::Tensor& gate, const at::Tensor& up,
                                    at::Tensor& grad) {
  at::Tensor value = fresh_contiguous(gate), d_gate = fresh_contiguous(gate);
  map_cpu_rows<2, 3>({gate, up}, {grad, value, d_gate},
                     [](auto* x, auto* u, auto* g, auto* y, auto* to_x, int64_t width) {
                       along(width, [&](int64_t i) {
                         const Silu curve(wide(x[i]));
                         const auto given = wide(g[i]);
                         store(to_x[i], given * wide(u[i]) * curve.derivative());
                         store(g[i], given * curve.value());
                         store(y[i], curve.value() * wide(u[i]));
                       });
                     });
  return {value, d_gate};
}

}  // namespace braid::kernels
