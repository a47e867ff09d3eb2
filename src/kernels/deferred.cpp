// SPDX-License-Identifier: BSD-3-Clause
#include "braid/kernels/deferred.h"

#include <ATen/SequenceNumber.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/engine.h>

#include "braid/core/param.h"
#include "braid/kernels/linear.h"
#include "kernels/linear_gradients.h"
#include "kernels/rows.h"

namespace braid::kernels {
namespace {

using torch::autograd::variable_list;

// Where a backward pass of late gradients begins: it computes its own and hands it to what made the
// weight.
class LateRoot final : public torch::autograd::Node {
 public:
  explicit LateRoot(LaterGradient gradient)
      : Node(gradient.place, {torch::autograd::impl::gradient_edge(gradient.of)}),
        compute_(std::move(gradient.compute)) {}
  variable_list apply(variable_list&&) override {
    const at::NoGradGuard no_grad;
    const auto compute = std::move(compute_);  // what it holds goes when it has run
    return {compute()};
  }

 private:
  std::function<at::Tensor()> compute_;
};

void run_gradients(std::vector<LaterGradient> gradients) {
  if (gradients.empty()) return;
  torch::autograd::edge_list roots;
  variable_list signals;  // of no elements: they say on which device a root runs
  for (LaterGradient& gradient : gradients) {
    signals.push_back(at::empty({0}, gradient.of.options().requires_grad(false)));
    const auto root = std::make_shared<LateRoot>(std::move(gradient));
    root->add_input_metadata(signals.back());
    roots.emplace_back(root, 0);
  }
  gradients.clear();
  torch::autograd::Engine::get_default_engine().execute(
      roots, signals, /*keep_graph=*/false, /*create_graph=*/false, /*accumulate_grad=*/true);
}

// What the backward pass of a layer needs beside its saved tensors.
struct LateLinearJob : torch::CustomClassHolder {
  std::shared_ptr<Deferred> later;
  int64_t key = 0;
  at::Tensor of_weight, of_bias;  // the way to their parameters; undefined: no gradient
  uint64_t place = 0;
  c10::ScalarType bias = c10::kFloat, weight = c10::kFloat;
};

void queue_gradients(const LateLinearJob& job, const at::Tensor& x, const at::Tensor& w,
                     const at::Tensor& grad) {
  const at::Tensor rows = as_rows(grad);
  if (job.of_bias.defined())
    job.later->add(
        job.key,
        {job.of_bias, [rows, dtype = job.bias] { return bias_gradient(rows, dtype); }, job.place});
  if (!job.of_weight.defined()) return;
  job.later->add(job.key, {job.of_weight,
                           [rows, x, by_rows = lies_by_rows(w), dtype = job.weight] {
                             return weight_gradient(rows, x, by_rows, dtype);
                           },
                           job.place});
}

// As given, for the forward pass alone. Not tensors among the arguments: autograd would walk to
// what made them.
struct LateWeights {
  const at::Tensor &weight, &bias;
};

struct LateLinear : torch::autograd::Function<LateLinear> {
  // `anchor` needs a gradient, so that the output does, too, where x does not. The weights are
  // detached: the first half of the backward pass must not walk what made them.
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& /*anchor*/,
                            const at::Tensor& x, const LateWeights& given,
                            const c10::intrusive_ptr<LateLinearJob>& job) {
    const at::Tensor weight = given.weight.detach().to(x.scalar_type());
    context->save_for_backward({x, weight});
    context->saved_data["job"] = c10::IValue::make_capsule(job);
    const at::Tensor rows = as_rows(x);
    std::vector<int64_t> sizes = x.sizes().vec();
    sizes.back() = weight.size(0);
    if (!given.bias.defined()) return at::linear(rows, weight).view(sizes);
    return at::linear(rows, weight, given.bias.detach().to(x.scalar_type())).view(sizes);
  }

  static variable_list backward(torch::autograd::AutogradContext* context, variable_list grads) {
    const auto saved = context->get_saved_variables();
    const auto capsule = context->saved_data.at("job").toCapsule();
    queue_gradients(static_cast<const LateLinearJob&>(*capsule), saved[0].detach(), saved[1],
                    grads[0]);
    if (!saved[0].requires_grad()) return {{}, {}, {}, {}};
    return {{}, input_gradient(as_rows(grads[0]), saved[0], saved[1]), {}, {}};
  }
};

bool wants_gradient(const at::Tensor& x) { return x.defined() && x.requires_grad(); }

}  // namespace

at::Tensor gradient_place(const at::Tensor& weight) {
  if (!wants_gradient(weight)) return {};
  if (weight.is_leaf()) return weight;
  const at::Tensor place = at::empty({0}, weight.options().requires_grad(false));
  torch::autograd::impl::set_gradient_edge(place, torch::autograd::impl::gradient_edge(weight));
  return place;
}

void Deferred::open(int64_t key) {
  const std::lock_guard lock(mutex_);
  key_ = key;
}

int64_t Deferred::key() const {
  const std::lock_guard lock(mutex_);
  return key_;
}

bool Deferred::active() const {
  const std::lock_guard lock(mutex_);
  return active_;
}

void Deferred::set_active(bool on) {
  const std::lock_guard lock(mutex_);
  active_ = on;
}

void Deferred::add(int64_t key, std::function<void()> work) {
  const std::lock_guard lock(mutex_);
  waiting_[key].work.push_back(std::move(work));
}

void Deferred::add(int64_t key, LaterGradient gradient) {
  const std::lock_guard lock(mutex_);
  waiting_[key].gradients.push_back(std::move(gradient));
}

void Deferred::run(int64_t key) {
  Waiting mine;
  {
    const std::lock_guard lock(mutex_);
    const auto found = waiting_.find(key);
    if (found == waiting_.end()) return;
    mine = std::move(found->second);
    waiting_.erase(found);
  }
  for (std::function<void()>& work : mine.work) std::exchange(work, nullptr)();
  run_gradients(std::move(mine.gradients));
}

size_t Deferred::waiting() const {
  const std::lock_guard lock(mutex_);
  size_t count = 0;
  for (const auto& [key, mine] : waiting_) count += mine.work.size() + mine.gradients.size();
  return count;
}

void Deferred::clear() {
  const std::lock_guard lock(mutex_);
  waiting_.clear();
}

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                  const std::shared_ptr<Deferred>& later) {
  const bool trained = wants_gradient(weight) || wants_gradient(bias);
  if (later == nullptr || !later->active() || !trained || !at::GradMode::is_enabled())
    return linears(x, {{weight, bias}})[0];
  auto job = c10::make_intrusive<LateLinearJob>();
  job->later = later;
  job->key = later->key();
  job->of_weight = gradient_place(weight);
  job->of_bias = gradient_place(bias);
  job->weight = gradient_dtype(weight);
  if (bias.defined()) job->bias = gradient_dtype(bias);
  job->place = at::sequence_number::peek();
  const at::Tensor anchor = at::empty({0}, x.options()).requires_grad_(!x.requires_grad());
  return LateLinear::apply(anchor, x.dim() > 2 ? x.contiguous() : x, LateWeights{weight, bias},
                           job);
}

}  // namespace braid::kernels
