// SPDX-License-Identifier: BSD-3-Clause
// Activations of kernels/linear.h on the GPU: the gradient passes give the activation once more, so
// that it need not be kept.
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <tuple>

#include "cuda/map_rows.cuh"

namespace braid::cuda {
namespace {

struct Curve {
  template <class A>
  struct Of {
    A cdf, slope;  // the activation is x cdf, its derivative slope
  };
};

// The normal distribution, its integral by erfc(z) = t poly(t) exp(-z^2) (Abramowitz, Stegun
// 7.1.26: off by 1.5e-7), so that one exponential serves both.
__device__ inline Curve::Of<float> erf_curve(float x, bool exact) {
  if (exact) {
    const float cdf = 0.5f * erfcf(-0.70710678f * x);
    return {cdf, cdf + x * 0.39894228f * expf(-0.5f * x * x)};
  }
  const float z = 0.70710678f * fabsf(x), e = __expf(-z * z);
  const float t = __fdividef(1.0f, 1.0f + 0.3275911f * z);
  const float poly =
      t * (0.254829592f +
           t * (-0.284496736f + t * (1.421413741f + t * (-1.453152027f + t * 1.061405429f))));
  const float tail = 0.5f * poly * e;
  const float cdf = x < 0 ? tail : 1.0f - tail;
  return {cdf, cdf + x * 0.39894228f * e};
}

__device__ inline Curve::Of<double> erf_curve(double x, bool) {
  const double cdf = 0.5 * erfc(-0.70710678118654752440 * x);
  return {cdf, cdf + x * 0.39894228040143267794 * exp(-0.5 * x * x)};
}

__device__ inline float logistic(float x) { return __fdividef(1.0f, 1.0f + __expf(-x)); }
__device__ inline double logistic(double x) { return 1.0 / (1.0 + exp(-x)); }

// 0.5 (1 + tanh u) = logistic(2 u).
template <class A>
__device__ inline Curve::Of<A> tanh_curve(A x) {
  const A two_k = A(1.59576912160573071176), cube = A(0.044715), square = x * x;
  const A s = logistic(two_k * x * (A(1) + cube * square));
  return {s, s + x * s * (A(1) - s) * two_k * (A(1) + A(3) * cube * square)};
}

struct Gelu {
  bool tanh, exact;
  template <class A>
  __device__ Curve::Of<A> at(A x) const {
    if (tanh) return tanh_curve(x);
    return erf_curve(x, exact);
  }
  template <class A>
  __device__ void operator()(const A (&x)[1], A (&y)[1]) const {
    y[0] = x[0] * at(x[0]).cdf;
  }
};

struct GeluGrad {  // (h, grad) -> grad of h
  Gelu gelu;
  template <class A>
  __device__ void operator()(const A (&x)[2], A (&y)[1]) const {
    y[0] = x[1] * gelu.at(x[0]).slope;
  }
};

struct GeluGradAndValue {  // (h, grad) -> activation, grad of h
  Gelu gelu;
  template <class A>
  __device__ void operator()(const A (&x)[2], A (&y)[2]) const {
    const auto curve = gelu.at(x[0]);
    y[0] = x[0] * curve.cdf;
    y[1] = x[1] * curve.slope;
  }
};

struct Swiglu {
  template <class A>
  __device__ void operator()(const A (&x)[2], A (&y)[1]) const {
    y[0] = x[0] * logistic(x[0]) * x[1];
  }
};

template <bool Value>
struct SwigluGrad {  // (gate, up, grad) -> grad of gate, of up, and the activation
  template <class A>
  __device__ void operator()(const A (&x)[3], A (&y)[Value ? 3 : 2]) const {
    const A s = logistic(x[0]), silu = x[0] * s;
    y[0] = x[2] * x[1] * (s + silu * (A(1) - s));
    y[1] = x[2] * silu;
    if constexpr (Value) y[2] = silu * x[1];
  }
};

at::Tensor same(const at::Tensor& x) { return at::empty(x.sizes(), x.options()); }

Gelu gelu_of(const at::Tensor& h, bool tanh) { return {tanh, h.scalar_type() == at::kFloat}; }

at::Tensor gelu(const at::Tensor& h, bool tanh) {
  at::Tensor y = same(h);
  map_rows<Gelu, 1, 1>({h}, {y}, gelu_of(h, tanh));
  return y;
}

at::Tensor gelu_grad(const at::Tensor& h, const at::Tensor& grad, bool tanh) {
  at::Tensor dh = same(h);
  map_rows<GeluGrad, 2, 1>({h, grad}, {dh}, {gelu_of(h, tanh)});
  return dh;
}

at::Tensor gelu_grad_(const at::Tensor& h, at::Tensor& grad, bool tanh) {
  at::Tensor y = same(h);
  map_rows<GeluGradAndValue, 2, 2>({h, grad}, {y, grad}, {gelu_of(h, tanh)});
  return y;
}

at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up) {
  at::Tensor y = same(gate);
  map_rows<Swiglu, 2, 1>({gate, up}, {y}, {});
  return y;
}

std::tuple<at::Tensor, at::Tensor> swiglu_grad(const at::Tensor& gate, const at::Tensor& up,
                                               const at::Tensor& grad) {
  at::Tensor d_gate = same(gate), d_up = same(up);
  map_rows<SwigluGrad<false>, 3, 2>({gate, up, grad}, {d_gate, d_up}, {});
  return {d_gate, d_up};
}

std::tuple<at::Tensor, at::Tensor> swiglu_grad_(const at::Tensor& gate, const at::Tensor& up,
                                                at::Tensor& grad) {
  at::Tensor y = same(gate), d_gate = same(gate);
  map_rows<SwigluGrad<true>, 3, 3>({gate, up, grad}, {d_gate, grad, y}, {});
  return {y, d_gate};
}

TORCH_LIBRARY_IMPL(braid, CUDA, library) {
  library.impl("gelu", &gelu);
  library.impl("gelu_grad", &gelu_grad);
  library.impl("gelu_grad_", &gelu_grad_);
  library.impl("swiglu", &swiglu);
  library.impl("swiglu_grad", &swiglu_grad);
  library.impl("swiglu_grad_", &swiglu_grad_);
}

}  // namespace
}  // namespace braid::cuda
