// SPDX-License-Identifier: BSD-3-Clause
#include "braid/comm/group.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <numeric>

#include "braid/core/error.h"
#include "comm/check.h"
#include "comm/flight.h"

namespace braid::comm {
namespace {

std::shared_ptr<GroupState> alone(std::string name, std::vector<int> ranks) {
  auto state = std::make_shared<GroupState>();
  state->name = std::move(name);
  state->ranks = std::move(ranks);
  state->note = std::make_shared<Note>();
  return state;
}

void check_split(const std::vector<int>& ranks, const std::string& name, const Group& parent) {
  std::vector<int> sorted = ranks;
  std::sort(sorted.begin(), sorted.end());
  const bool known = !sorted.empty() && sorted.front() >= 0 && sorted.back() < parent.size();
  const bool once = std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end();
  const bool here = std::binary_search(sorted.begin(), sorted.end(), parent.rank());
  if (known && once && here) return;
  throw InternalError(
      {.what = fmt::format("group {} of ranks [{}], split off {} of {} ranks by rank {}", name,
                           fmt::join(ranks, ", "), parent.name(), parent.size(), parent.rank()),
       .why = "a split lists ranks of its parent, each once, the calling rank among them",
       .fix = "call split on the listed ranks only"});
}

// The ranks of the new group meet: one that does not come is seen by the watch.
void split_backend(const GroupState& parent, GroupState& child, const std::vector<int>& ranks) {
  const int64_t entry = child.note->begin(
      {.group = child.known, .text = fmt::format("split of group {}", child.name)});
  try {
    child.backend = parent.backend->split(ranks, child.name);
  } catch (const std::exception& error) {
    child.note->fail(entry, error.what(), /*told=*/dynamic_cast<const Error*>(&error) != nullptr);
    throw;
  }
  child.note->end(entry);
}

// What a group of one rank has to do.
void copy_alone(const Call& call) {
  const bool moves = call.input.defined() && call.output.defined();
  if (moves && !call.input.is_same(call.output))
    call.output.copy_(call.input.reshape(call.output.sizes()));
}

}  // namespace

Group::Group() : state_(alone("alone", {0})) {}
Group::Group(std::shared_ptr<GroupState> state) : state_(std::move(state)) {}

Group::Group(std::shared_ptr<Backend> backend, std::string name)
    : state_(std::make_shared<GroupState>()) {
  state_->rank = backend->rank();
  state_->size = backend->size();
  state_->ranks.resize(static_cast<size_t>(backend->size()));
  std::iota(state_->ranks.begin(), state_->ranks.end(), 0);
  state_->backend = std::move(backend);
  state_->name = std::move(name);
  state_->note = std::make_shared<Note>();
  state_->known = state_->note->join(state_->name, state_->ranks);
}

int Group::rank() const { return state_->rank; }
int Group::size() const { return state_->size; }
const std::string& Group::name() const { return state_->name; }
const std::vector<int>& Group::ranks() const { return state_->ranks; }
const std::shared_ptr<Backend>& Group::backend() const { return state_->backend; }
double Group::waited_seconds() const { return state_->note->waited(); }

std::string Group::doing() const { return state_->note->text(); }
const std::shared_ptr<Note>& Group::notes() const { return state_->note; }

void Group::abort() const {
  if (state_->backend != nullptr) state_->backend->abort();
}

Group Group::split(const std::vector<int>& ranks, const std::string& name) const {
  check_split(ranks, name, *this);
  std::vector<int> world;
  for (const int rank : ranks) world.push_back(state_->ranks[static_cast<size_t>(rank)]);
  auto state = alone(name, std::move(world));
  state->note = state_->note;
  if (ranks.size() == 1) return Group(std::move(state));
  state->known = state->note->join(name, state->ranks);
  split_backend(*state_, *state, ranks);
  state->rank = state->backend->rank();
  state->size = state->backend->size();
  return Group(std::move(state));
}

Pending Group::start(Call call) const {
  const at::NoGradGuard no_grad;
  check(call, {.rank = rank(), .size = size(), .group = name()});
  if (size() == 1) {
    copy_alone(call);
    return {};
  }
  return Pending(Pending::Flight::start(state_, std::move(call)));
}

Pending Group::all_reduce(const at::Tensor& tensor, Op op) const {
  return start({.kind = Kind::all_reduce, .op = op, .input = tensor, .output = tensor});
}

Pending Group::reduce_scatter(const at::Tensor& out, const at::Tensor& in, Op op,
                              const std::vector<int64_t>& counts) const {
  return start(
      {.kind = Kind::reduce_scatter, .op = op, .input = in, .output = out, .input_counts = counts});
}

Pending Group::all_gather(const at::Tensor& out, const at::Tensor& in,
                          const std::vector<int64_t>& counts) const {
  return start({.kind = Kind::all_gather, .input = in, .output = out, .output_counts = counts});
}

Pending Group::broadcast(const at::Tensor& tensor, int root) const {
  return start({.kind = Kind::broadcast, .input = tensor, .output = tensor, .peer = root});
}

Pending Group::all_to_all(const at::Tensor& out, const at::Tensor& in) const {
  return start({.kind = Kind::all_to_all, .input = in, .output = out});
}

Pending Group::all_to_all(const at::Tensor& out, const at::Tensor& in,
                          const std::vector<int64_t>& out_counts,
                          const std::vector<int64_t>& in_counts) const {
  return start({.kind = Kind::all_to_all,
                .input = in,
                .output = out,
                .input_counts = in_counts,
                .output_counts = out_counts});
}

Pending Group::send(const at::Tensor& tensor, int peer, int tag) const {
  return start({.kind = Kind::send, .input = tensor, .peer = peer, .tag = tag});
}

Pending Group::recv(const at::Tensor& tensor, int peer, int tag) const {
  return start({.kind = Kind::recv, .output = tensor, .peer = peer, .tag = tag});
}

Pending Group::start(const Call& kind, const std::vector<at::Tensor>& out,
                     const std::vector<at::Tensor>& in) const {
  const at::NoGradGuard no_grad;
  const std::vector<Call> parts = coalesced_parts(kind, *state_, out, in);
  if (size() > 1) return Pending::Flight::start_all(state_, kind, parts);
  for (const Call& part : parts) copy_alone(part);
  return {};
}

Pending Group::all_reduce(const std::vector<at::Tensor>& tensors, Op op) const {
  return start({.kind = Kind::all_reduce, .op = op}, tensors, tensors);
}

Pending Group::reduce_scatter(const std::vector<at::Tensor>& out, const std::vector<at::Tensor>& in,
                              Op op) const {
  return start({.kind = Kind::reduce_scatter, .op = op}, out, in);
}

Pending Group::all_gather(const std::vector<at::Tensor>& out,
                          const std::vector<at::Tensor>& in) const {
  return start({.kind = Kind::all_gather}, out, in);
}

Pending Group::broadcast(const std::vector<at::Tensor>& tensors, int root) const {
  return start({.kind = Kind::broadcast, .peer = root}, tensors, tensors);
}

Pending Group::barrier() const { return start({.kind = Kind::barrier}); }

}  // namespace braid::comm
