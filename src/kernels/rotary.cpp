// SPDX-License-Identifier: BSD-3-Clause
#include "braid/kernels/rotary.h"

#include <ATen/Dispatch.h>
#include <ATen/OpMathType.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <tuple>

#include "braid/core/in_parts.h"
#include "kernels/dtype.h"

namespace braid::kernels {
namespace {

using QueriesAndKeys = std::tuple<at::Tensor, at::Tensor>;

// What the turns of one token meet: a head, and where its second half begins.
template <class Scalar, class Wide>
void turn_head(const Scalar* in, Scalar* out, const Wide* cos, const Wide* sin, int64_t half,
               int64_t step, Wide direction) {
  for (int64_t i = 0; i < half; ++i) {
    const auto first = static_cast<Wide>(in[i * step]);
    const auto second = static_cast<Wide>(in[(i + half) * step]);
    const Wide s = direction * sin[i];
    out[i] = static_cast<Scalar>(first * cos[i] - second * s);
    out[i + half] = static_cast<Scalar>(second * cos[i] + first * s);
  }
}

at::Tensor turned_cpu(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin,
                      bool back) {
  at::Tensor out = at::empty(x.sizes(), x.options());
  if (x.numel() == 0) return out;
  const int64_t tokens = x.size(1), heads = x.size(2), width = x.size(3), half = width / 2;
  AT_DISPATCH_FLOATING_TYPES_AND2(c10::kHalf, c10::kBFloat16, x.scalar_type(), "rotary", [&] {
    using Wide = at::opmath_type<scalar_t>;
    const auto* in = x.const_data_ptr<scalar_t>();
    const auto *c = cos.const_data_ptr<Wide>(), *s = sin.const_data_ptr<Wide>();
    auto* to = out.mutable_data_ptr<scalar_t>();
    in_parts(x.size(0) * tokens, std::max<int64_t>(1, 4096 / (heads * width)),
             [&](int64_t begin, int64_t end) {
               for (int64_t at = begin; at < end; ++at)
                 for (int64_t head = 0; head < heads; ++head)
                   turn_head<scalar_t, Wide>(in + at / tokens * x.stride(0) +
                                                 at % tokens * x.stride(1) + head * x.stride(2),
                                             to + (at * heads + head) * width,
                                             c + at % tokens * half, s + at % tokens * half, half,
                                             x.stride(3), back ? Wide(-1) : Wide(1));
             });
  });
  return out;
}

QueriesAndKeys rotary_cpu(const at::Tensor& q, const at::Tensor& k, const at::Tensor& cos,
                          const at::Tensor& sin, bool back) {
  return {turned_cpu(q, cos, sin, back), turned_cpu(k, cos, sin, back)};
}

QueriesAndKeys rotary_meta(const at::Tensor& q, const at::Tensor& k, const at::Tensor&,
                           const at::Tensor&, bool) {
  return {at::empty(q.sizes(), q.options()), at::empty(k.sizes(), k.options())};
}

TORCH_LIBRARY_FRAGMENT(braid, library) {
  library.def("rotary(Tensor q, Tensor k, Tensor cos, Tensor sin, bool back) -> (Tensor, Tensor)");
}
TORCH_LIBRARY_IMPL(braid, CPU, library) { library.impl("rotary", &rotary_cpu); }
TORCH_LIBRARY_IMPL(braid, Meta, library) { library.impl("rotary", &rotary_meta); }

QueriesAndKeys call_rotary(const at::Tensor& q, const at::Tensor& k, const Turn& turn, bool back) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("braid::rotary", "")
                             .typed<QueriesAndKeys(const at::Tensor&, const at::Tensor&,
                                                   const at::Tensor&, const at::Tensor&, bool)>();
  return op.call(q, k, turn.cos, turn.sin, back);
}

struct Rotary : torch::autograd::Function<Rotary> {
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* context,
                                                const at::Tensor& q, const at::Tensor& k,
                                                const at::Tensor& cos, const at::Tensor& sin) {
    context->save_for_backward({cos, sin});
    const auto [q_turned, k_turned] = call_rotary(q, k, {cos, sin}, false);
    return {q_turned, k_turned};
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list grads) {
    const auto saved = context->get_saved_variables();
    const auto [dq, dk] = call_rotary(grads[0], grads[1], {saved[0], saved[1]}, true);
    return {dq, dk, at::Tensor(), at::Tensor()};
  }
};

}  // namespace

std::pair<at::Tensor, at::Tensor> rotary(const at::Tensor& q, const at::Tensor& k,
                                         const Turn& turn) {
  const auto dtype = accumulate_dtype(q.scalar_type());
  const auto both =
      Rotary::apply(q, k, turn.cos.to(dtype).contiguous(), turn.sin.to(dtype).contiguous());
  return {both[0], both[1]};
}

}  // namespace braid::kernels
