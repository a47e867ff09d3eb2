// SPDX-License-Identifier: BSD-3-Clause
#include "nn/loss_split.h"

#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>
#include <torch/csrc/autograd/custom_function.h>

#include <numeric>

#include "braid/comm/differentiable.h"
#include "braid/kernels/cross_entropy.h"

namespace braid::nn {
namespace {

// log sum exp over the scores of all ranks, and the score of the target, wherever it is.
struct RowFacts {
  at::Tensor logsumexp, target;
};

RowFacts row_facts(const at::Tensor& scores, const at::Tensor& target, const comm::Group& group,
                   int64_t first) {
  const at::Tensor own = kernels::row_logsumexp(scores), largest = own.clone();
  group.all_reduce(largest, comm::Op::max).wait();
  const at::Tensor sums =
      at::stack({own.sub(largest).exp_(), kernels::target_scores(scores, target, first)});
  group.all_reduce(sums).wait();
  return {sums[0].log().add_(largest), sums[1]};
}

struct SplitCrossEntropy : torch::autograd::Function<SplitCrossEntropy> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& scores,
                            const at::Tensor& target, const comm::Group& group, int64_t first) {
    const RowFacts facts = row_facts(scores, target, group, first);
    context->save_for_backward({scores, target, facts.logsumexp});
    context->saved_data["first"] = first;
    return facts.logsumexp.sub(facts.target).masked_fill_(target.eq(ignored_target), 0);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list grads) {
    const auto saved = context->get_saved_variables();
    const at::Tensor grad = grads[0].masked_fill(saved[1].eq(ignored_target), 0);
    const int64_t first = context->saved_data["first"].toInt();
    return {kernels::cross_entropy_grad(grad, saved[0], saved[2], saved[1], first), at::Tensor(),
            at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor split_cross_entropy(const at::Tensor& scores, const at::Tensor& target,
                               const LossShare& share) {
  const comm::Group& group = share.vocabulary;
  const comm::Counts counts = comm::even_shares(share.scores, group.size());
  const int64_t first = std::accumulate(counts.begin(), counts.begin() + group.rank(), int64_t{0});
  return SplitCrossEntropy::apply(scores, target, group, first);
}

at::Tensor split_norms(const at::Tensor& x, const comm::Group& context) {
  at::Tensor own = at::linalg_vector_norm(x.flatten(1), 2, at::IntArrayRef{1});
  if (context.size() == 1) return own;
  // A norm of norms: unlike the root of a sum it has a gradient where all is 0.
  const at::Tensor all = comm::gather_from(own.unsqueeze(0), context, 0);
  return at::linalg_vector_norm(all, 2, at::IntArrayRef{0});
}

at::Tensor count_over(const at::Tensor& count, const comm::Group& context) {
  if (context.size() > 1) context.all_reduce(count).wait();
  return count;
}

}  // namespace braid::nn
