// SPDX-License-Identifier: BSD-3-Clause
#include "braid/parallel/replicate.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

#include "braid/core/error.h"
#include "braid/core/observe.h"

namespace braid::parallel {

// Gradients that travel together. They live in one piece of memory; `.grad()` is a view of it.
struct ReplicateBucket {
  std::vector<size_t> members;  // of State::params, in the order in which they are expected
  at::Tensor flat;              // made at the first gradient
  std::vector<at::Tensor> views;
  size_t missing = 0;  // members without a gradient in this backward pass
  at::Tensor sent;     // what travels: flat itself, or a narrower copy
  comm::Pending sum;
};

struct ReplicatePlace {
  size_t bucket = 0, slot = 0;
};

struct Replicate::State {
  std::vector<Param> given;        // each once
  comm::Group self;                // this rank alone
  std::vector<at::Tensor> params;  // that are trained
  comm::Group axis;
  ReplicateOptions options;
  using Bucket = ReplicateBucket;
  class Hook;

  std::vector<Bucket> buckets;
  std::vector<ReplicatePlace> places;  // of each parameter
  std::vector<bool> ready;             // in its bucket, in this step
  std::vector<bool> touched;           // by a backward pass of this step, also of one on hold
  std::vector<size_t> arrival;         // order of the first backward pass
  size_t next = 0;                     // bucket to start: all ranks start them in the same order
  bool holding = false, reordered = false;

  void share_weights();
  void fill_buckets(const std::vector<size_t>& order);
  void allocate(Bucket& bucket);
  void arrived(size_t param);
  void take(size_t param);
  void start_full_buckets();
  void start(Bucket& bucket);
  void end(Bucket& bucket);
  void drop_unused();
  void reorder();
  void begin_pass();
};

class Replicate::State::Hook final : public torch::autograd::PostAccumulateGradHook {
 public:
  Hook(State* state, size_t param) : state_(state), param_(param) {}
  void operator()(const at::Tensor&) override { state_->arrived(param_); }

 private:
  State* state_;  // outlives the hook: ~Replicate takes it off
  size_t param_;
};

namespace {

// What one bucket can hold together.
using Alike = std::tuple<c10::ScalarType, c10::DeviceType, int>;
Alike alike(const at::Tensor& x) {
  return {x.scalar_type(), x.device().type(), static_cast<int>(x.device().index())};
}

}  // namespace

void Replicate::State::share_weights() {
  const c10::NoGradGuard no_grad;
  for (const Param& param : given) {
    const at::Tensor weight = param.tensor.detach();
    axis.broadcast(weight, 0).wait();
  }
}

// Buckets of one dtype and device, closed when full; a parameter larger than a bucket has its own.
void Replicate::State::fill_buckets(const std::vector<size_t>& order) {
  buckets.clear();
  places.assign(params.size(), {});
  std::map<Alike, size_t> open;
  std::vector<int64_t> bytes;
  for (const size_t param : order) {
    const int64_t size = params[param].numel() * static_cast<int64_t>(params[param].element_size());
    const auto found = open.find(alike(params[param]));
    if (found == open.end() || bytes[found->second] + size > options.bucket_bytes) {
      open[alike(params[param])] = buckets.size();
      buckets.emplace_back();
      bytes.push_back(0);
    }
    const size_t bucket = open[alike(params[param])];
    places[param] = {bucket, buckets[bucket].members.size()};
    buckets[bucket].members.push_back(param);
    bytes[bucket] += size;
  }
}

void Replicate::State::allocate(Bucket& bucket) {
  if (bucket.flat.defined()) return;
  int64_t elements = 0;
  for (const size_t param : bucket.members) elements += params[param].numel();
  bucket.flat =
      at::empty({elements}, params[bucket.members.front()].options().requires_grad(false));
  mark(bucket.flat, MemoryKind::gradient);
  int64_t first = 0;
  for (const size_t param : bucket.members) {
    bucket.views.push_back(
        bucket.flat.narrow(0, first, params[param].numel()).view(params[param].sizes()));
    first += params[param].numel();
  }
}

void Replicate::State::begin_pass() {
  next = 0;
  ready.assign(params.size(), false);
  touched.assign(params.size(), false);
  for (Bucket& bucket : buckets) bucket.missing = bucket.members.size();
}

void Replicate::State::arrived(size_t param) {
  touched[param] = true;
  if (holding) return;
  if (ready[param])
    throw InternalError({.what = "a second backward pass before Replicate::finish()",
                         .why = "the sum of the first one's gradients is on its way already",
                         .fix = "call hold() before all but the last backward pass of a step"});
  const c10::NoGradGuard no_grad;
  ready[param] = true;
  if (!reordered) arrival.push_back(param);
  take(param);
  --buckets[places[param].bucket].missing;
  start_full_buckets();
}

// Moves a gradient into its bucket and leaves a view of it behind.
void Replicate::State::take(size_t param) {
  Bucket& bucket = buckets[places[param].bucket];
  allocate(bucket);
  const at::Tensor& view = bucket.views[places[param].slot];
  at::Tensor& grad = params[param].mutable_grad();
  if (!grad.defined()) {
    view.zero_();
    grad = view;
  } else if (!grad.is_alias_of(view)) {
    view.copy_(grad);
    grad = view;
  }
}

void Replicate::State::start_full_buckets() {
  while (next < buckets.size() && buckets[next].missing == 0) start(buckets[next++]);
}

void Replicate::State::start(Bucket& bucket) {
  // Before the sum: fp16 would overflow after it.
  if (options.average) bucket.flat.div_(axis.size());
  bucket.sent = bucket.flat;
  if (options.wire && bucket.flat.scalar_type() != *options.wire) {
    const MemoryScope buffers(MemoryKind::communication);
    bucket.sent = bucket.flat.to(*options.wire);
  }
  bucket.sum = axis.all_reduce(bucket.sent, comm::Op::sum);
}

void Replicate::State::end(Bucket& bucket) {
  bucket.sum.wait();
  if (!bucket.sent.is_alias_of(bucket.flat)) bucket.flat.copy_(bucket.sent);
  bucket.sent.reset();
}

// A parameter that no rank used has no gradient, as in one process.
void Replicate::State::drop_unused() {
  at::Tensor used = at::zeros({static_cast<int64_t>(params.size())}, c10::kInt);
  int* flags = used.mutable_data_ptr<int>();
  for (size_t i = 0; i < params.size(); ++i) flags[i] = touched[i] ? 1 : 0;
  const at::Tensor counted = used.to(params.front().device());
  axis.all_reduce(counted, comm::Op::max).wait();
  used = counted.cpu();
  for (size_t i = 0; i < params.size(); ++i)
    if (used.const_data_ptr<int>()[i] == 0) params[i].mutable_grad().reset();
}

// Once: the order in which gradients came on the first rank is the order they are expected in.
void Replicate::State::reorder() {
  reordered = true;
  std::vector<int64_t> order(arrival.begin(), arrival.end());
  for (size_t i = 0; i < params.size(); ++i)
    if (!ready[i]) order.push_back(static_cast<int64_t>(i));
  const at::Tensor told = at::tensor(order, c10::kLong).to(params.front().device());
  axis.broadcast(told, 0).wait();
  const at::Tensor host = told.cpu();
  const int64_t* first = host.const_data_ptr<int64_t>();
  fill_buckets({first, first + host.numel()});
}

Replicate::Replicate(const std::vector<Param>& params, const comm::Group& axis,
                     ReplicateOptions options)
    : state_(std::make_unique<State>()) {
  State& state = *state_;
  std::set<const void*> seen;  // tied ones are one parameter
  for (const Param& param : params) {
    if (!seen.insert(param.tensor.unsafeGetTensorImpl()).second) continue;
    state.given.push_back(param);
    if (param.tensor.requires_grad()) state.params.push_back(param.tensor);
  }
  state.axis = axis;
  state.options = options;
  if (state.params.empty()) return;
  if (options.same_start) state.share_weights();
  std::vector<size_t> order(state.params.size());
  std::iota(order.rbegin(), order.rend(), size_t{0});  // gradients come from the last layer first
  state.fill_buckets(order);
  state.begin_pass();
  for (size_t i = 0; i < state.params.size(); ++i)
    torch::autograd::impl::set_post_acc_grad_hooks(state.params[i],
                                                   std::make_unique<State::Hook>(state_.get(), i));
}

Replicate::~Replicate() {
  if (state_ == nullptr) return;
  for (const at::Tensor& param : state_->params)
    torch::autograd::impl::set_post_acc_grad_hooks(param, nullptr);
}

Replicate::Replicate(Replicate&&) noexcept = default;
Replicate& Replicate::operator=(Replicate&& other) noexcept {
  std::swap(state_, other.state_);  // the other one takes these hooks off when it goes
  return *this;
}

const std::vector<Param>& Replicate::params() const { return state_->given; }
const comm::Group& Replicate::owners() const { return state_->self; }
void Replicate::publish() {}
void Replicate::hold(bool on) { state_->holding = on; }

void Replicate::finish() {
  State& state = *state_;
  if (state.params.empty()) return;
  const c10::NoGradGuard no_grad;
  // What the last backward pass did not touch still has its part in the sum.
  for (size_t i = 0; i < state.params.size(); ++i) {
    if (state.ready[i]) continue;
    state.take(i);
    --state.buckets[state.places[i].bucket].missing;
  }
  state.start_full_buckets();
  for (State::Bucket& bucket : state.buckets) state.end(bucket);
  if (state.options.find_unused) state.drop_unused();
  if (!state.reordered) state.reorder();
  state.holding = false;
  state.begin_pass();
}

}  // namespace braid::parallel
