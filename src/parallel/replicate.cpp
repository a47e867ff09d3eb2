// SPDX-License-Identifier: BSD-3-Clause
#include "braid/parallel/replicate.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

#include "braid/core/error.h"
#include "braid/core/observe.h"
#include "braid/core/param.h"
#include "parallel/alike.h"
#include "parallel/bare_view.h"
#include "parallel/replica_groups.h"

namespace braid::parallel {

// Gradients that travel together. They live in one piece of memory; `.grad()` is a part of it.
struct ReplicateBucket {
  size_t group = 0;             // of State::groups
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
  comm::Group owners;              // this rank alone, or as given
  std::vector<at::Tensor> params;  // that are trained
  std::vector<std::string> names;  // theirs
  ReplicaGroups groups;
  std::vector<size_t> group_of;  // of each trained parameter
  ReplicateOptions options;
  using Bucket = ReplicateBucket;
  class Hook;

  std::vector<Bucket> buckets;
  std::vector<ReplicatePlace> places;  // of each parameter
  std::vector<bool> ready;             // in its bucket, in this step
  std::vector<bool> touched;           // by a backward pass of this step, also of one on hold
  std::vector<uint32_t> versions;      // of the weights, when their last gradient came
  std::vector<int64_t> prints;         // of their values then, in the first step
  bool finished = false;               // a first time
  std::vector<size_t> arrival;         // order of the first backward pass
  size_t next = 0;                     // bucket to start: all ranks start them in the same order
  bool holding = false, reordered = false;

  void add(const Param& param);
  void share_weights();
  std::vector<int64_t> dealt(const std::vector<size_t>& order) const;
  void fill_buckets(const std::vector<int64_t>& dealt);
  void allocate(Bucket& bucket);
  void arrived(size_t param);
  void expect_untouched() const;
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
using Alike = std::tuple<size_t, c10::ScalarType, c10::DeviceType, int>;
Alike alike(size_t group, const at::Tensor& x) {
  return {group, gradient_dtype(x), x.device().type(), static_cast<int>(x.device().index())};
}

constexpr int64_t bucket_end = -1;

}  // namespace

void Replicate::State::add(const Param& param) {
  given.push_back(param);
  const size_t group = groups.number_of(param);
  if (!param.tensor.requires_grad()) return;
  params.push_back(param.tensor);
  names.push_back(param.name);
  group_of.push_back(group);
}

void Replicate::State::share_weights() {
  const c10::NoGradGuard no_grad;
  for (const Param& param : given) {
    const at::Tensor weight = param.tensor.detach();
    groups.at(groups.number_of(param)).broadcast(weight, 0).wait();
  }
  BufferShare(groups, options.buffers).wait();
}

// Buckets of one group, dtype and device, closed when full; a parameter larger than a bucket has
// its own. The members of each with an end mark.
std::vector<int64_t> Replicate::State::dealt(const std::vector<size_t>& order) const {
  std::map<Alike, size_t> open;
  std::vector<int64_t> bytes;
  std::vector<std::vector<int64_t>> members;
  for (const size_t param : order) {
    const int64_t size = params[param].numel() * static_cast<int64_t>(params[param].element_size());
    const Alike key = alike(group_of[param], params[param]);
    const auto found = open.find(key);
    if (found == open.end() || bytes[found->second] + size > options.bucket_bytes) {
      open[key] = members.size();
      members.emplace_back();
      bytes.push_back(0);
    }
    members[open[key]].push_back(static_cast<int64_t>(param));
    bytes[open[key]] += size;
  }
  std::vector<int64_t> all;
  for (const std::vector<int64_t>& bucket : members) {
    all.insert(all.end(), bucket.begin(), bucket.end());
    all.push_back(bucket_end);
  }
  // Sizes of pieces may differ from rank to rank: with one group they do not, and with several the
  // first rank decides, so that the sums of all groups start in one order.
  all.resize(2 * params.size(), bucket_end);
  return all;
}

void Replicate::State::fill_buckets(const std::vector<int64_t>& dealt) {
  buckets.clear();
  places.assign(params.size(), {});
  bool open = false;
  for (const int64_t number : dealt) {
    if (number == bucket_end) {
      open = false;
      continue;
    }
    const auto param = static_cast<size_t>(number);
    if (!std::exchange(open, true)) buckets.emplace_back().group = group_of[param];
    places[param] = {buckets.size() - 1, buckets.back().members.size()};
    buckets.back().members.push_back(param);
  }
}

void Replicate::State::allocate(Bucket& bucket) {
  if (bucket.flat.defined()) return;
  int64_t elements = 0;
  for (const size_t param : bucket.members) elements += params[param].numel();
  const at::Tensor& first_param = params[bucket.members.front()];
  bucket.flat = at::empty(
      {elements}, first_param.options().dtype(gradient_dtype(first_param)).requires_grad(false));
  mark(bucket.flat, MemoryKind::gradient);
  int64_t first = 0;
  for (const size_t param : bucket.members) {
    bucket.views.push_back(bare_view(bucket.flat, params[param].sizes(), first));
    first += params[param].numel();
  }
}

void Replicate::State::begin_pass() {
  next = 0;
  ready.assign(params.size(), false);
  touched.assign(params.size(), false);
  versions.assign(params.size(), 0);
  prints.assign(finished ? 0 : params.size(), 0);
  for (Bucket& bucket : buckets) bucket.missing = bucket.members.size();
}

void Replicate::State::arrived(size_t param) {
  touched[param] = true;
  versions[param] = version_of(params[param]);
  if (!finished) prints[param] = print_of(params[param]);
  if (holding || options.late) return;
  if (ready[param])
    throw InternalError({.what = "a second backward pass before Replicate::finish()",
                         .why = "the sum of the first one's gradients is on its way already",
                         .fix = "call hold() before all but the last backward pass of a step"});
  const c10::NoGradGuard no_grad;
  ready[param] = true;
  if (!reordered) {  // nothing travels before its place is known: finish() takes all
    arrival.push_back(param);
    return;
  }
  take(param);
  --buckets[places[param].bucket].missing;
  start_full_buckets();
}

// An optimizer that ran before the gradients were summed has moved the replicas apart.
void Replicate::State::expect_untouched() const {
  for (size_t i = 0; i < params.size(); ++i) {
    if (!touched[i]) continue;
    const bool gone = !params[i].grad().defined();
    const bool same =
        version_of(params[i]) == versions[i] && (finished || print_of(params[i]) == prints[i]);
    if (!gone && same) continue;
    throw InternalError(
        {.what =
             gone ? fmt::format("the gradient of {} is gone before Replicate::finish()", names[i])
                  : fmt::format("{} was changed between backward() and Replicate::finish()",
                                names[i]),
         .why = "finish() makes .grad() the mean over the ranks; an update before it uses this "
                "rank's gradient alone, and the replicas move apart",
         .fix = "call finish() after backward(), then step() and zero_grad() of the optimizer"});
  }
}

// Moves a gradient into its bucket and leaves that part of the bucket behind.
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
  const comm::Group& group = groups.at(bucket.group);
  if (options.average) bucket.flat.div_(group.size());
  bucket.sent = bucket.flat;
  if (group.size() == 1) return;
  if (options.wire && bucket.flat.scalar_type() != *options.wire) {
    const MemoryScope buffers(MemoryKind::communication);
    bucket.sent = bucket.flat.to(*options.wire);
  }
  bucket.sum = group.all_reduce(bucket.sent, comm::Op::sum);
}

void Replicate::State::end(Bucket& bucket) {
  bucket.sum.wait();
  if (!bucket.sent.is_alias_of(bucket.flat)) bucket.flat.copy_(bucket.sent);
  bucket.sent.reset();
}

// A parameter that no rank of its group used has no gradient, as in one process.
void Replicate::State::drop_unused() {
  at::Tensor used = at::zeros({static_cast<int64_t>(params.size())}, c10::kInt);
  int* flags = used.mutable_data_ptr<int>();
  for (size_t i = 0; i < params.size(); ++i) flags[i] = touched[i] ? 1 : 0;
  for (size_t number = 0; number < groups.all().size(); ++number) {
    const at::Tensor counted = used.to(params.front().device(), used.scalar_type(),
                                       /*non_blocking=*/false, /*copy=*/true);
    groups.at(number).all_reduce(counted, comm::Op::max).wait();
    const at::Tensor host = counted.cpu();
    for (size_t i = 0; i < params.size(); ++i)
      if (group_of[i] == number && host.const_data_ptr<int>()[i] == 0)
        params[i].mutable_grad().reset();
  }
}

// Once: the order in which gradients came on the first rank is the order they are expected in, from
// the first sum on. In which order a sum over ranks adds depends on a gradient's place: a resumed
// run would else differ in its first step.
void Replicate::State::reorder() {
  reordered = true;
  std::vector<size_t> order = arrival;
  for (size_t i = 0; i < params.size(); ++i)
    if (!ready[i]) order.push_back(i);
  fill_buckets(groups.first_rank_says(dealt(order), params.front()));
  ready.assign(params.size(), false);
  for (Bucket& bucket : buckets) bucket.missing = bucket.members.size();
}

Replicate::Replicate(const std::vector<Param>& params, const comm::Group& axis,
                     ReplicateOptions options)
    : Replicate(params, one_group(axis), comm::Group(), std::move(options)) {}

Replicate::Replicate(const std::vector<Param>& params, const ReplicasOf& replicas,
                     const comm::Group& owners, ReplicateOptions options)
    : state_(std::make_unique<State>()) {
  State& state = *state_;
  state.owners = owners;
  state.options = std::move(options);
  state.groups = ReplicaGroups(replicas);
  std::set<const void*> seen;  // tied ones are one parameter
  for (const Param& param : params)
    if (seen.insert(param.tensor.unsafeGetTensorImpl()).second) state.add(param);
  expect_alike("Replicate", state.groups, state.given);
  if (state.params.empty()) return;
  if (state.options.same_start) state.share_weights();
  std::vector<size_t> order(state.params.size());
  std::iota(order.rbegin(), order.rend(), size_t{0});  // gradients come from the last layer first
  std::vector<int64_t> dealt = state.dealt(order);
  if (state.groups.talking() > 1)
    dealt = state.groups.first_rank_says(std::move(dealt), state.params.front());
  state.fill_buckets(dealt);
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
const comm::Group& Replicate::owners() const { return state_->owners; }
void Replicate::publish() {}
void Replicate::hold(bool on) { state_->holding = on; }

void Replicate::finish() {
  State& state = *state_;
  if (state.params.empty()) return;
  const c10::NoGradGuard no_grad;
  state.expect_untouched();
  if (!state.reordered && !state.options.late) state.reorder();
  // What the last backward pass did not touch still has its part in the sum.
  for (size_t i = 0; i < state.params.size(); ++i) {
    if (state.ready[i]) continue;
    state.take(i);
    --state.buckets[state.places[i].bucket].missing;
  }
  state.start_full_buckets();
  BufferShare buffers(state.groups, state.options.buffers);
  for (State::Bucket& bucket : state.buckets) state.end(bucket);
  buffers.wait();
  if (state.options.find_unused) state.drop_unused();
  state.holding = false;
  state.finished = true;
  state.begin_pass();
}

}  // namespace braid::parallel
