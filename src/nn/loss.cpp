// SPDX-License-Identifier: BSD-3-Clause
#include "braid/nn/loss.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/custom_function.h>

#include <utility>
#include <vector>

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

// ||output - target|| / ||target|| of each sample. The difference is turned into the gradient where
// it lies: torch's own backward pass of a norm holds two more copies of the fields.
struct RelativeL2 : torch::autograd::Function<RelativeL2> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& output,
                            const at::Tensor& target) {
    const c10::ScalarType dtype = target.scalar_type();
    at::Tensor difference =
        output.scalar_type() == dtype ? output.sub(target) : output.to(dtype).sub_(target);
    const at::Tensor off = split_norms(difference, {}), whole = split_norms(target, {});
    context->saved_data["off"] = off;
    context->saved_data["whole"] = whole;
    context->saved_data["dtype"] = output.scalar_type();
    context->saved_data["difference"] = std::move(difference);
    return off.div(whole);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list grads) {
    auto saved = std::move(context->saved_data);
    context->saved_data.clear();
    TORCH_CHECK(saved.count("difference") > 0,
                "relative_l2 gives its gradient once: compute the loss again for another pass");
    at::Tensor difference = saved["difference"].toTensor();
    saved.erase("difference");
    const at::Tensor off = saved["off"].toTensor();
    const at::Tensor factor =
        grads[0].div(saved["whole"].toTensor()).div_(off).masked_fill_(off.eq(0), 0);
    std::vector<int64_t> each(static_cast<size_t>(difference.dim()), 1);
    each[0] = difference.size(0);
    difference.mul_(factor.view(each));
    return {difference.to(saved["dtype"].toScalarType()), at::Tensor()};
  }
};

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
  if (kind == Loss::relative_l2 && share.context.size() == 1)
    return RelativeL2::apply(output, wanted);
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
