// SPDX-License-Identifier: BSD-3-Clause
#include "braid/parallel/local_sgd.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>

#include <array>
#include <string_view>
#include <utility>

#include "braid/core/error.h"
#include "braid/core/observe.h"

namespace braid::parallel {
namespace {

constexpr const char* slow_weight = "/slow_weight";
constexpr const char* slow_momentum_name = "/slow_momentum";

// The mean over the ranks, in place. Two messages are under way at a time, so that their buffers do
// not double the weights.
void average_in_buckets(const std::vector<at::Tensor>& tensors, const comm::Group& replicas,
                        int64_t bucket_bytes) {
  std::array<comm::Pending, 2> under_way;
  size_t sent = 0, first = 0;
  while (first < tensors.size()) {
    size_t end = first;
    int64_t bytes = 0;
    do {
      bytes += static_cast<int64_t>(tensors[end++].nbytes());
    } while (end < tensors.size() &&
             bytes + static_cast<int64_t>(tensors[end].nbytes()) <= bucket_bytes);
    const std::vector<at::Tensor> bucket(tensors.begin() + static_cast<std::ptrdiff_t>(first),
                                         tensors.begin() + static_cast<std::ptrdiff_t>(end));
    under_way[sent++ % 2] =
        replicas.all_reduce(bucket, comm::Op::mean);  // waits for the one before
    first = end;
  }
  for (size_t i = 0; i < 2; ++i) under_way[(sent + i) % 2].wait();
}

bool ends_with(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

void copy_saved(const at::Tensor& to, const State& state, const std::string& name) {
  const at::Tensor& from = state.tensor(name);
  if (from.sizes() != to.sizes())
    throw StorageError({.what = fmt::format("the saved {} has {} values, the model {}", name,
                                            from.numel(), to.numel()),
                        .why = "it was saved for another model",
                        .fix = "resume with the config that wrote it"});
  to.copy_(from);
}

}  // namespace

void describe(Fields& fields, LocalSgdOptions& o) {
  fields.field("every", o.every, "steps between two averages of the weights", {.at_least = 1});
  fields.field("start", o.start, "steps with averaged gradients before the first local one",
               {.at_least = 0});
  fields.field("slow_momentum", o.slow_momentum,
               "SlowMo: momentum of the averages (0.7 is usual); none: without", {.at_least = 0});
  fields.field("slow_lr", o.slow_lr, "SlowMo: share of the outer step that is made", {.above = 0});
  fields.field("bucket", o.bucket, "weights that travel in one message", {.at_least = 1});
}

struct LocalSgd::Impl {
  std::vector<Param> params;
  comm::Group replicas;
  LocalSgdOptions options;
  // SlowMo: the weights after the last average and the momentum, in fp32 or wider.
  std::vector<at::Tensor> before, momentum;
  double lr_sum = 0;  // over the local steps since the last average
  int64_t local_steps = 0;

  bool slow() const { return options.slow_momentum.has_value(); }
  at::Tensor weight(size_t param, const State& also) const;
  void remember_weights(const State& also);
  void move_slowly(size_t param, const at::Tensor& weight, double lr);
  void average(const State& also);
};

// What the optimizer updates: the master copy of a narrow parameter, if there is one.
at::Tensor LocalSgd::Impl::weight(size_t param, const State& also) const {
  const auto master = also.tensors.find(params[param].name + "/master");
  return (master != also.tensors.end() ? master->second : params[param].tensor).detach();
}

void LocalSgd::Impl::remember_weights(const State& also) {
  if (!slow()) return;
  const MemoryScope states(MemoryKind::optimizer_state);
  for (size_t i = 0; i < params.size(); ++i) {
    const at::Tensor now = weight(i, also);
    if (before.size() <= i) {
      const auto wide = now.element_size() < 4 ? c10::kFloat : now.scalar_type();
      before.push_back(now.to(wide, /*non_blocking=*/false, /*copy=*/true));
      momentum.push_back(at::zeros_like(before[i]));
    } else {
      before[i].copy_(now);
    }
  }
}

// SlowMo: u <- beta u + (before - average) / lr; weight <- before - alpha lr u, written so that
// beta = 0 and alpha = 1 leave the average as it is, to the bit.
void LocalSgd::Impl::move_slowly(size_t i, const at::Tensor& weight, double lr) {
  const double beta = *options.slow_momentum, alpha = options.slow_lr;
  const at::Tensor moved = weight.to(before[i].scalar_type());
  const at::Tensor step = before[i].sub(moved);
  if (alpha != 1) moved.add_(step, 1 - alpha);
  if (beta != 0) moved.sub_(momentum[i], alpha * lr * beta);
  momentum[i].mul_(beta);
  if (lr != 0) momentum[i].add_(step, 1 / lr);
  if (!moved.is_same(weight)) weight.copy_(moved);
}

void LocalSgd::Impl::average(const State& also) {
  std::vector<at::Tensor> weights, tensors;
  for (size_t i = 0; i < params.size(); ++i) weights.push_back(weight(i, also));
  tensors = weights;
  for (const auto& [name, tensor] : also.tensors)
    if (tensor.is_floating_point() && !ends_with(name, "/step") && !ends_with(name, "/master"))
      tensors.push_back(tensor.detach());
  average_in_buckets(tensors, replicas, options.bucket.count);
  // Of a schedule that moved since the last average, the mean rate: that of each step if it did
  // not.
  const double lr = local_steps > 0 ? lr_sum / static_cast<double>(local_steps) : 0;
  for (size_t i = 0; i < params.size(); ++i) {
    if (slow()) move_slowly(i, weights[i], lr);
    const at::Tensor param = params[i].tensor.detach();
    if (!param.is_alias_of(weights[i])) param.copy_(weights[i]);
  }
  remember_weights(also);
  lr_sum = 0;
  local_steps = 0;
}

LocalSgd::LocalSgd(std::vector<Param> params, comm::Group replicas, LocalSgdOptions options)
    : impl_(std::make_unique<Impl>()) {
  impl_->params = std::move(params);
  impl_->replicas = std::move(replicas);
  impl_->options = options;
  const at::NoGradGuard no_grad;
  impl_->remember_weights({});
}

LocalSgd::~LocalSgd() = default;
LocalSgd::LocalSgd(LocalSgd&&) noexcept = default;
LocalSgd& LocalSgd::operator=(LocalSgd&&) noexcept = default;

bool LocalSgd::synchronous(int64_t step) const { return step < impl_->options.start; }
bool LocalSgd::agree() const { return impl_->local_steps == 0; }

void LocalSgd::average_gradients(int64_t step) {
  if (!synchronous(step)) return;
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> grads;
  for (const Param& param : impl_->params) {
    if (!param.tensor.requires_grad()) continue;
    at::Tensor& grad = param.tensor.mutable_grad();
    if (!grad.defined()) grad = at::zeros_like(param.tensor);
    grads.push_back(grad);
  }
  average_in_buckets(grads, impl_->replicas, impl_->options.bucket.count);
}

bool LocalSgd::average_weights(int64_t step, double lr, const State& also) {
  Impl& impl = *impl_;
  const at::NoGradGuard no_grad;
  if (synchronous(step)) {
    if (step + 1 == impl.options.start) impl.remember_weights(also);
    return false;
  }
  impl.lr_sum += lr;
  ++impl.local_steps;
  if ((step + 1 - impl.options.start) % impl.options.every != 0) return false;
  impl.average(also);
  return true;
}

bool LocalSgd::average_now(const State& also) {
  if (agree()) return false;
  const at::NoGradGuard no_grad;
  impl_->average(also);
  return true;
}

State LocalSgd::state() const {
  State state;
  for (size_t i = 0; i < impl_->before.size(); ++i) {
    const Param& param = impl_->params[i];
    state.set(param.name + slow_weight, impl_->before[i], param.piece);
    state.set(param.name + slow_momentum_name, impl_->momentum[i], param.piece);
  }
  return state;
}

void LocalSgd::load(const State& state) {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < impl_->before.size(); ++i) {
    copy_saved(impl_->before[i], state, impl_->params[i].name + slow_weight);
    copy_saved(impl_->momentum[i], state, impl_->params[i].name + slow_momentum_name);
  }
}

}  // namespace braid::parallel
