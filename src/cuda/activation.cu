// SPDX-License-Identifier: BSD-3-Clause
// Activations of kernels/linear.h on the GPU: the gradient passes give the activation once more, so
// that it need not be kept.
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <optional>
#include <tuple>

#include "cuda/activation.h"
#include "cuda/map_and_sum.cuh"
#include "cuda/ptx.cuh"

namespace braid::cuda {
namespace {

constexpr float log2_e = 1.44269504f;

__device__ inline float logistic(float x) { return one_over(1.0f + power_of_two(-log2_e * x)); }
__device__ inline double logistic(double x) { return 1.0 / (1.0 + exp(-x)); }

template <class A>
struct CurveAt {
  A cdf, slope;  // the activation is x cdf, its derivative slope
};

// Which curve is known when the kernel is compiled: a branch for each number would keep their
// exponentials from overlapping.
struct TanhCurve {  // 0.5 (1 + tanh u) = logistic(2 u)
  template <class T>
  static constexpr bool takes = true;
  template <class A>
  __device__ static CurveAt<A> at(A x) {
    const A two_k = A(1.59576912160573071176), cube = A(0.044715), square = x * x;
    const A s = logistic(two_k * x * (A(1) + cube * square));
    return {s, s + x * s * (A(1) - s) * two_k * (A(1) + A(3) * cube * square)};
  }
};

struct ErfCurve {  // of fp32 and fp64
  template <class T>
  static constexpr bool takes = sizeof(T) >= 4;
  __device__ static CurveAt<float> at(float x) {
    const float cdf = 0.5f * erfcf(-0.70710678f * x);
    return {cdf, cdf + x * 0.39894228f * expf(-0.5f * x * x)};
  }
  __device__ static CurveAt<double> at(double x) {
    const double cdf = 0.5 * erfc(-0.70710678118654752440 * x);
    return {cdf, cdf + x * 0.39894228040143267794 * exp(-0.5 * x * x)};
  }
};

// Of 16 bits. The normal distribution, its integral by erfc(z) = t poly(t) exp(-z^2) (Abramowitz,
// Stegun 7.1.26: off by 1.5e-7), so that one exponential serves both.
struct ErfCurveOfHalf {
  template <class T>
  static constexpr bool takes = sizeof(T) == 2;
  __device__ static CurveAt<float> at(float x) {
    const float z = 0.70710678f * fabsf(x), e = power_of_two(-log2_e * z * z);
    const float t = one_over(1.0f + 0.3275911f * z);
    const float poly =
        t * (0.254829592f +
             t * (-0.284496736f + t * (1.421413741f + t * (-1.453152027f + t * 1.061405429f))));
    const float tail = 0.5f * poly * e;
    const float cdf = x < 0 ? tail : 1.0f - tail;
    return {cdf, cdf + x * 0.39894228f * e};
  }
};

template <class Curve>
struct Gelu {
  template <class T>
  static constexpr bool takes = Curve::template takes<T>;
  template <class A>
  __device__ void operator()(const A (&x)[1], A (&y)[1]) const {
    y[0] = x[0] * Curve::at(x[0]).cdf;
  }
};

template <class Curve>
struct GeluGrad {  // (h, grad) -> grad of h
  template <class T>
  static constexpr bool takes = Curve::template takes<T>;
  template <class A>
  __device__ void operator()(const A (&x)[2], A (&y)[1]) const {
    y[0] = x[1] * Curve::at(x[0]).slope;
  }
};

template <class Curve>
struct GeluGradAndValue {  // (h, grad) -> activation, grad of h
  template <class T>
  static constexpr bool takes = Curve::template takes<T>;
  template <class A>
  __device__ void operator()(const A (&x)[2], A (&y)[2]) const {
    const auto curve = Curve::at(x[0]);
    y[0] = x[0] * curve.cdf;
    y[1] = x[1] * curve.slope;
  }
};

struct Swiglu {
  template <class T>
  static constexpr bool takes = true;
  template <class A>
  __device__ void operator()(const A (&x)[2], A (&y)[1]) const {
    y[0] = x[0] * logistic(x[0]) * x[1];
  }
};

template <bool Value>
struct SwigluGrad {  // (gate, up, grad) -> grad of gate, of up, and the activation
  template <class T>
  static constexpr bool takes = true;
  template <class A>
  __device__ void operator()(const A (&x)[3], A (&y)[Value ? 3 : 2]) const {
    const A s = logistic(x[0]), silu = x[0] * s;
    y[0] = x[2] * x[1] * (s + silu * (A(1) - s));
    y[1] = x[2] * silu;
    if constexpr (Value) y[2] = silu * x[1];
  }
};

at::Tensor same(const at::Tensor& x) { return at::empty(x.sizes(), x.options()); }

// Calls map(curve) with the curve of the dtype.
template <class Map>
void with_curve(const at::Tensor& h, bool tanh, const Map& map) {
  if (tanh) return map(TanhCurve());
  if (h.element_size() == 2) return map(ErfCurveOfHalf());
  map(ErfCurve());
}

at::Tensor gelu(const at::Tensor& h, bool tanh) {
  at::Tensor y = same(h);
  gelu_into(h, y, tanh);
  return y;
}

at::Tensor gelu_grad(const at::Tensor& h, const at::Tensor& grad, bool tanh) {
  at::Tensor dh = same(h);
  with_curve(h, tanh,
             [&](auto curve) { map_rows<GeluGrad<decltype(curve)>, 2, 1>({h, grad}, {dh}, {}); });
  return dh;
}

std::tuple<at::Tensor, at::Tensor> gelu_grad_(const at::Tensor& h, at::Tensor& grad, bool tanh,
                                              std::optional<c10::ScalarType> dtype) {
  at::Tensor y = same(h), sum;
  with_curve(h, tanh, [&](auto curve) {
    using Map = GeluGradAndValue<decltype(curve)>;
    if (dtype)
      sum = map_and_sum<Map, 2, 2>({h, grad}, {y, grad}, {}, *dtype);
    else
      map_rows<Map, 2, 2>({h, grad}, {y, grad}, {});
  });
  return {y, sum};
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

void gelu_into(const at::Tensor& h, const at::Tensor& y, bool tanh) {
  with_curve(h, tanh, [&](auto curve) { map_rows<Gelu<decltype(curve)>, 1, 1>({h}, {y}, {}); });
}

}  // namespace braid::cuda
