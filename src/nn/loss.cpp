// SPDX-License-Identifier: BSD-3-Clause
#include "braid/nn/loss.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <fmt/format.h>

#include "braid/comm/differentiable.h"
#include "braid/core/error.h"
#include "braid/kernels/cross_entropy.h"
#include "nn/loss_split.h"

namespace braid::nn {
namespace {

// The dtype of the loss: fp32, or fp64 for an output of fp64 (whatever the target has).
c10::ScalarType loss_dtype(const at::Tensor& output) {
  return output.scalar_type() == c10::kDouble ? c10::kDouble : c10::kFloat;
}

void check_same_shape(const at::Tensor& output, const at::Tensor& target) {
  if (output.sizes() == target.sizes()) return;
  throw DataError({.what = fmt::format("the output has shape {}, the target {}",
                                       c10::str(output.sizes()), c10::str(target.sizes())),
                   .why = "this loss compares element by element",
                   .fix = "make model.channels_out, model.image or model.scale fit the data"});
}

// Mean of all elements of each sample, of which the ranks of context hold some.
at::Tensor mean_by_sample(const at::Tensor& x, const comm::Group& context) {
  const at::Tensor each = x.flatten(1);
  if (context.size() == 1) return each.mean(1);
  const at::Tensor count = at::full({1}, each.size(1), each.options());
  return comm::reduce_from(each.sum(1), context) / count_over(count, context);
}

// Loss of each target, 0 where it is ignored: [...].
at::Tensor cross_entropies(const at::Tensor& output, const at::Tensor& target,
                           const LossShare& share) {
  if (output.dim() != target.dim() + 1)
    throw DataError({.what = fmt::format("the output has shape {}, the target {}",
                                         c10::str(output.sizes()), c10::str(target.sizes())),
                     .why = "cross-entropy wants one label for each row of scores",
                     .fix = "give int64 labels without the last dimension of the output"});
  const at::Tensor rows = output.flatten(0, -2), labels = target.flatten();
  const at::Tensor flat = share.vocabulary.size() == 1
                              ? kernels::cross_entropy(rows, labels, ignored_target)
                              : split_cross_entropy(rows, labels, share);
  return flat.view(target.sizes());
}

}  // namespace

// The sum over counted targets over their number; a batch in which none counts gives 0, not NaN.
at::Tensor mean_of_losses(const at::Tensor& sum, const at::Tensor& target, const LossShare& share) {
  const at::Tensor counted = count_over(target.ne(ignored_target).sum(), share.context);
  return comm::reduce_from(sum, share.context) / counted.clamp_min(1);
}

at::Tensor loss(Loss kind, const at::Tensor& output, const at::Tensor& target,
                const LossShare& share) {
  if (kind == Loss::cross_entropy)
    return mean_of_losses(cross_entropies(output, target, share).sum(), target, share);
  return loss_by_sample(kind, output, target, share).mean();
}

at::Tensor loss_by_sample(Loss kind, const at::Tensor& output, const at::Tensor& target,
                          const LossShare& share) {
  if (kind == Loss::cross_entropy) {
    const at::Tensor each = cross_entropies(output, target, share);
    return each.dim() > 1 ? comm::reduce_from(each.flatten(1).sum(1), share.context) : each;
  }
  check_same_shape(output, target);
  const at::Tensor wanted = target.to(loss_dtype(output));
  const at::Tensor difference = output.to(wanted.scalar_type()) - wanted;
  switch (kind) {
    case Loss::relative_l2:
      return split_norms(difference, share.context) / split_norms(wanted, share.context);
    case Loss::l1:
      return mean_by_sample(difference.abs(), share.context);
    case Loss::mse:
      return mean_by_sample(difference.square(), share.context);
    case Loss::cross_entropy:
      break;
  }
  throw InternalError(
      {.what = "a loss outside the list", .why = "Loss has four values", .fix = "report this"});
}

}  // namespace braid::nn
