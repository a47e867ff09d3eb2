// SPDX-License-Identifier: BSD-3-Clause
#include "braid/kernels/cross_entropy.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/sub.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <algorithm>

#include "braid/core/in_parts.h"
#include "kernels/dtype.h"

namespace braid::kernels {
namespace {

at::Tensor accumulated(const at::Tensor& x) { return x.to(accumulate_dtype(x.scalar_type())); }

at::Tensor fresh_rows(const at::Tensor& scores) {
  return at::empty({scores.size(0)},
                   scores.options().dtype(accumulate_dtype(scores.scalar_type())));
}

at::Tensor fresh_scores(const at::Tensor& scores) {
  return at::empty(scores.sizes(), scores.options());
}

// Where the target is one of the classes, and its column (0 where it is not).
struct TargetColumns {
  at::Tensor here, column;
};

TargetColumns columns_of(const at::Tensor& scores, const at::Tensor& target, int64_t first) {
  const at::Tensor column = target.sub(first);
  const at::Tensor here = column.ge(0).logical_and_(column.lt(scores.size(1)));
  return {here, column.mul(here)};
}

void grad_into(at::Tensor out, const at::Tensor& grad, const at::Tensor& scores,
               const at::Tensor& logsumexp, const at::Tensor& target, int64_t first) {
  const TargetColumns at_target = columns_of(scores, target, first);
  at::Tensor wide = at::sub(accumulated(scores), logsumexp.unsqueeze(1)).exp_();
  wide.mul_(grad.unsqueeze(1));
  wide.scatter_add_(1, at_target.column.unsqueeze(1), grad.mul(at_target.here).neg_().unsqueeze(1));
  out.copy_(wide);
}

at::Tensor row_logsumexp_by_ops(const at::Tensor& scores) {
  return at::logsumexp(accumulated(scores), {1});
}

at::Tensor grad_by_ops(const at::Tensor& grad, const at::Tensor& scores,
                       const at::Tensor& logsumexp, const at::Tensor& target, int64_t first) {
  at::Tensor out = fresh_scores(scores);
  grad_into(out, grad, scores, logsumexp, target, first);
  return out;
}

// A few rows at a time, so that what is computed of them stays in the cache.
template <class Work>
void by_rows(const at::Tensor& scores, const Work& work) {
  constexpr int64_t in_cache = 1 << 16;  // numbers
  const int64_t rows = std::max<int64_t>(1, in_cache / std::max<int64_t>(1, scores.size(1)));
  const int64_t blocks = (scores.size(0) + rows - 1) / rows;
  in_parts(blocks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block)
      work(block * rows, std::min(rows, scores.size(0) - block * rows));
  });
}

at::Tensor row_logsumexp_cpu(const at::Tensor& scores) {
  const at::Tensor sums = fresh_rows(scores);
  by_rows(scores, [&](int64_t first, int64_t rows) {
    sums.narrow(0, first, rows).copy_(row_logsumexp_by_ops(scores.narrow(0, first, rows)));
  });
  return sums;
}

at::Tensor grad_cpu(const at::Tensor& grad, const at::Tensor& scores, const at::Tensor& logsumexp,
                    const at::Tensor& target, int64_t first) {
  const at::Tensor out = fresh_scores(scores);
  const bool narrow_dtype = is_half(scores);
  by_rows(scores, [&](int64_t row, int64_t rows) {
    const auto part = [&](const at::Tensor& x) { return x.narrow(0, row, rows); };
    at::Tensor block = part(out);
    if (narrow_dtype)
      return grad_into(block, part(grad), part(scores), part(logsumexp), part(target), first);
    const TargetColumns at_target = columns_of(part(scores), part(target), first);
    at::sub_out(block, part(scores), part(logsumexp).unsqueeze(1));
    block.exp_().mul_(part(grad).unsqueeze(1));
    block.scatter_add_(1, at_target.column.unsqueeze(1),
                       part(grad).mul(at_target.here).neg_().unsqueeze(1));
  });
  return out;
}

at::Tensor row_logsumexp_meta(const at::Tensor& scores) { return fresh_rows(scores); }

at::Tensor grad_meta(const at::Tensor&, const at::Tensor& scores, const at::Tensor&,
                     const at::Tensor&, int64_t) {
  return fresh_scores(scores);
}

TORCH_LIBRARY_FRAGMENT(braid, library) {
  library.def("row_logsumexp(Tensor scores) -> Tensor");
  library.def(
      "cross_entropy_grad(Tensor grad, Tensor scores, Tensor logsumexp, Tensor target, int first) "
      "-> Tensor");
}
TORCH_LIBRARY_IMPL(braid, CPU, library) {
  library.impl("row_logsumexp", &row_logsumexp_cpu);
  library.impl("cross_entropy_grad", &grad_cpu);
}
TORCH_LIBRARY_IMPL(braid, Meta, library) {
  library.impl("row_logsumexp", &row_logsumexp_meta);
  library.impl("cross_entropy_grad", &grad_meta);
}
TORCH_LIBRARY_IMPL(braid, CompositeExplicitAutograd, library) {
  library.impl("row_logsumexp", &row_logsumexp_by_ops);
  library.impl("cross_entropy_grad", &grad_by_ops);
}

struct CrossEntropy : torch::autograd::Function<CrossEntropy> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& scores,
                            const at::Tensor& target, int64_t ignored) {
    const at::Tensor logsumexp = row_logsumexp(scores);
    context->save_for_backward({scores, target, logsumexp});
    context->saved_data["ignored"] = ignored;
    return logsumexp.sub(target_scores(scores, target, 0)).mul_(target.ne(ignored));
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list grads) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &scores = saved[0], &target = saved[1], &logsumexp = saved[2];
    const at::Tensor counted = target.ne(context->saved_data["ignored"].toInt());
    return {cross_entropy_grad(grads[0].mul(counted), scores, logsumexp, target, 0), at::Tensor(),
            at::Tensor()};
  }
};

}  // namespace

at::Tensor row_logsumexp(const at::Tensor& scores) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("braid::row_logsumexp", "")
                             .typed<at::Tensor(const at::Tensor&)>();
  return op.call(scores.detach());
}

at::Tensor target_scores(const at::Tensor& scores, const at::Tensor& target, int64_t first) {
  const TargetColumns at_target = columns_of(scores, target, first);
  return accumulated(scores.detach().gather(1, at_target.column.unsqueeze(1)).squeeze(1))
      .mul(at_target.here);
}

at::Tensor cross_entropy_grad(const at::Tensor& grad, const at::Tensor& scores,
                              const at::Tensor& logsumexp, const at::Tensor& target,
                              int64_t first) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("braid::cross_entropy_grad", "")
                             .typed<at::Tensor(const at::Tensor&, const at::Tensor&,
                                               const at::Tensor&, const at::Tensor&, int64_t)>();
  return op.call(grad.detach(), scores.detach(), logsumexp, target, first);
}

at::Tensor cross_entropy(const at::Tensor& scores, const at::Tensor& target, int64_t ignored) {
  return CrossEntropy::apply(scores, target, ignored);
}

}  // namespace braid::kernels
