// SPDX-License-Identifier: BSD-3-Clause
#include "braid/nn/loss.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <fmt/format.h>

#include "braid/core/error.h"

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

at::Tensor norm_by_sample(const at::Tensor& x) {
  return at::linalg_vector_norm(x.flatten(1), 2, {1});
}

// Loss of each target, 0 where it is ignored: [...].
at::Tensor cross_entropies(const at::Tensor& output, const at::Tensor& target) {
  if (output.dim() != target.dim() + 1)
    throw DataError({.what = fmt::format("the output has shape {}, the target {}",
                                         c10::str(output.sizes()), c10::str(target.sizes())),
                     .why = "cross-entropy wants one label for each row of scores",
                     .fix = "give int64 labels without the last dimension of the output"});
  const at::Tensor flat =
      at::cross_entropy_loss(output.to(loss_dtype(output)).flatten(0, -2), target.flatten(), {},
                             at::Reduction::None, ignored_target);
  return flat.view(target.sizes());
}

}  // namespace

at::Tensor loss(Loss kind, const at::Tensor& output, const at::Tensor& target,
                const LossShare& share) {
  if (kind == Loss::cross_entropy) {
    // The sum over counted targets over their number; a batch in which none counts gives 0, not
    // NaN.
    const at::Tensor counted = target.ne(ignored_target).sum().clamp_min(1);
    return cross_entropies(output, target).sum() / counted;
  }
  return loss_by_sample(kind, output, target, share).mean();
}

at::Tensor loss_by_sample(Loss kind, const at::Tensor& output, const at::Tensor& target,
                          const LossShare& share) {
  if (kind == Loss::cross_entropy) {
    const at::Tensor each = cross_entropies(output, target);
    return each.dim() > 1 ? each.flatten(1).sum(1) : each;
  }
  check_same_shape(output, target);
  const at::Tensor wanted = target.to(loss_dtype(output));
  const at::Tensor difference = output.to(wanted.scalar_type()) - wanted;
  switch (kind) {
    case Loss::relative_l2:
      return norm_by_sample(difference) / norm_by_sample(wanted);
    case Loss::l1:
      return difference.abs().flatten(1).mean(1);
    case Loss::mse:
      return difference.square().flatten(1).mean(1);
    case Loss::cross_entropy:
      break;
  }
  throw InternalError(
      {.what = "a loss outside the list", .why = "Loss has four values", .fix = "report this"});
}

}  // namespace braid::nn
