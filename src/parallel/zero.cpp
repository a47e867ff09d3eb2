// SPDX-License-Identifier: BSD-3-Clause
#include "braid/parallel/zero.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "braid/core/dry.h"
#include "braid/core/error.h"
#include "braid/core/recompute.h"
#include "parallel/alike.h"
#include "parallel/zero_state.h"

namespace braid::parallel {
namespace {

bool is_in_block(std::string_view param, std::string_view block) {
  return !block.empty() && param.size() > block.size() && param.starts_with(block) &&
         param[block.size()] == '.';
}

void check_stage(const ZeroOptions& options) {
  if (options.host && options.stage != 3)
    throw ConfigError(
        {.what = fmt::format("parameters on the host with ZeRO stage {}", options.stage),
         .why = "only stage 3 gathers the weights of a block before it runs",
         .fix = "set train.zero to 3, or take parameters out of memory.offload"});
  if (options.stage >= 1 && options.stage <= 3) return;
  throw ConfigError({.what = fmt::format("ZeRO stage {}", options.stage),
                     .why = "stage 1 shares optimizer states, 2 gradients too, 3 weights too",
                     .fix = "set train.zero to 1, 2 or 3, or to 0 for whole replicas"});
}

// Each parameter once; one that several units use goes to the unit "", which is always there.
std::vector<ZeroUnit> each_once(std::vector<ZeroUnit> units) {
  const auto is_root = [](const ZeroUnit& unit) { return unit.name.empty(); };
  if (std::none_of(units.begin(), units.end(), is_root)) units.push_back({});
  std::map<const void*, std::set<std::string>> users;
  for (const ZeroUnit& unit : units)
    for (const Param& param : unit.params)
      users[param.tensor.unsafeGetTensorImpl()].insert(unit.name);
  std::set<const void*> seen;
  std::vector<Param> shared;
  for (ZeroUnit& unit : units) {
    std::vector<Param> own;
    for (const Param& param : unit.params) {
      const void* tensor = param.tensor.unsafeGetTensorImpl();
      if (!seen.insert(tensor).second) continue;
      (users[tensor].size() > 1 ? shared : own).push_back(param);
    }
    unit.params = std::move(own);
  }
  ZeroUnit& root = *std::find_if(units.begin(), units.end(), is_root);
  root.params.insert(root.params.end(), shared.begin(), shared.end());
  return units;
}

void check_names(const std::vector<ZeroUnit>& units) {
  std::set<std::string> names;
  for (const ZeroUnit& unit : units)
    if (!names.insert(unit.name).second)
      throw InternalError({.what = fmt::format("two units are named \"{}\"", unit.name),
                           .why = "run() finds a unit by its name",
                           .fix = "give each block to Zero once"});
}

}  // namespace

class Zero::State::Hook final : public torch::autograd::PostAccumulateGradHook {
 public:
  Hook(State* state, size_t block, size_t flat, size_t member)
      : state_(state), block_(block), flat_(flat), member_(member) {}
  void operator()(const at::Tensor&) override {
    ZeroFlat& flat = state_->blocks[block_].flats[flat_];
    state_->arrived(block_, flat, flat.members[member_]);
  }

 private:
  State* state_;  // outlives the hook: ~Zero takes it off
  size_t block_, flat_, member_;
};

std::vector<ZeroUnit> units_of(const std::vector<Param>& params,
                               const std::vector<std::string>& blocks) {
  std::vector<ZeroUnit> units;
  for (const std::string& block : blocks) units.push_back({block, {}});
  units.push_back({"", {}});
  for (const Param& param : params) {
    ZeroUnit* home = &units.back();
    for (ZeroUnit& unit : units)
      if (is_in_block(param.name, unit.name) && unit.name.size() > home->name.size()) home = &unit;
    home->params.push_back(param);
  }
  return units;
}

void Zero::State::build(std::vector<ZeroUnit> units) {
  std::vector<Param> all;
  for (const ZeroUnit& unit : units) all.insert(all.end(), unit.params.begin(), unit.params.end());
  expect_alike("Zero", shard, all);
  expect_alike("Zero", replicas, all);
  if (options.same_start) share_weights(units);
  for (const ZeroUnit& unit : units) {
    ZeroBlock& block = blocks.emplace_back();
    block.name = unit.name;
    block.flats = flats_of(unit, shard, replicas);
    for (ZeroFlat& flat : block.flats) {
      settle(flat, resident, options);
      if (flat.trained) block.trained += flat.members.size();
    }
    if (unit.name.empty()) root = blocks.size() - 1;
  }
  publish();
  make_pieces();
  note_versions();
  order_launches();
  begin_round();
  put_hooks();
}

// The first rank of the first replica tells its own shard group, whose ranks tell their replicas.
void Zero::State::share_weights(const std::vector<ZeroUnit>& units) {
  for (const ZeroUnit& unit : units)
    for (const Param& param : unit.params) {
      if (!has_data(param.tensor)) continue;
      const at::Tensor weight = param.tensor.detach();
      shard.broadcast(weight, 0).wait();
      replicas.at(replicas.number_of(param)).broadcast(weight, 0).wait();
    }
  BufferShare(of_shard, options.buffers).wait();
  BufferShare(replicas, options.buffers).wait();
}

namespace {

// A run of a parameter, which may be a run of a box itself.
Piece piece_within(const Param& param, int64_t first) {
  if (param.is_whole()) return {.whole = param.tensor.sizes().vec(), .first = first};
  Piece piece = param.piece;
  piece.first += first;
  return piece;
}

}  // namespace

void Zero::State::make_pieces() {
  for (const ZeroBlock& block : blocks)
    for (const ZeroFlat& flat : block.flats)
      for (const ZeroMember& member : flat.members) {
        const ZeroSlice slice = slice_of(flat, member);
        if (slice.count == 0) continue;
        const at::IntArrayRef sizes = member.param.tensor.sizes();
        at::Tensor own = flat.shard.narrow(0, slice.begin, slice.count);
        if (sizes.empty()) own = own.view(sizes);  // a single number is whole where it is
        Param piece = member.param;
        piece.tensor = own.detach().requires_grad_(flat.trained);
        piece.piece = piece_within(member.param, slice.first);
        pieces.push_back(std::move(piece));
      }
}

void Zero::State::put_hooks() {
  for (size_t b = 0; b < blocks.size(); ++b)
    for (size_t f = 0; f < blocks[b].flats.size(); ++f) {
      const ZeroFlat& flat = blocks[b].flats[f];
      if (!flat.trained) continue;
      for (size_t m = 0; m < flat.members.size(); ++m)
        torch::autograd::impl::set_post_acc_grad_hooks(flat.members[m].param.tensor,
                                                       std::make_unique<Hook>(this, b, f, m));
    }
}

void Zero::State::take_hooks_off() {
  for (const ZeroBlock& block : blocks)
    for (const ZeroFlat& flat : block.flats)
      for (const ZeroMember& member : flat.members)
        if (flat.trained)
          torch::autograd::impl::set_post_acc_grad_hooks(member.param.tensor, nullptr);
}

size_t Zero::State::find(const std::string& name) const {
  const auto found = std::find_if(blocks.begin(), blocks.end(),
                                  [&](const ZeroBlock& block) { return block.name == name; });
  if (found != blocks.end()) return static_cast<size_t>(found - blocks.begin());
  std::vector<std::string> names;
  for (const ZeroBlock& block : blocks) names.push_back(block.name);
  const std::string near = nearest(name, names);
  throw InternalError(
      {.what = fmt::format("run(\"{}\"): Zero was given no unit of that name", name),
       .why = "a block that runs is a unit, so that its weights can be gathered for it",
       .fix = near.empty() ? fmt::format("give the block \"{}\" to units_of()", name)
                           : fmt::format("did you mean \"{}\"?", near)});
}

void Zero::State::publish() {
  const at::NoGradGuard no_grad;
  expect_update();
  const bool frozen_too = !std::exchange(stepped, false);
  if (!resident) drop_all();  // copies of the old weights
  for (ZeroBlock& block : blocks)
    for (ZeroFlat& flat : block.flats)
      if (resident && (flat.trained || frozen_too)) start_gather(flat, shard);
  for (ZeroBlock& block : blocks)
    for (ZeroFlat& flat : block.flats)
      if (resident) flat.gather.wait();
  note_versions();
}

Zero::Zero(std::vector<ZeroUnit> units, const comm::Group& shard, const comm::Group& replicas,
           ZeroOptions options)
    : Zero(std::move(units), shard, one_group(replicas), shard, std::move(options)) {}

Zero::Zero(std::vector<ZeroUnit> units, const comm::Group& shard, const ReplicasOf& replicas,
           const comm::Group& owners, ZeroOptions options)
    : state_(std::make_shared<State>()) {
  check_stage(options);
  check_names(units);
  const at::NoGradGuard no_grad;
  State& state = *state_;
  state.shard = shard;
  state.owners = owners;
  state.replicas = ReplicaGroups(replicas);
  state.of_shard = ReplicaGroups(one_group(shard));
  state.resident = options.stage < 3 || (shard.size() == 1 && !options.host);
  state.options = std::move(options);
  state.build(each_once(std::move(units)));
}

Zero::~Zero() { state_->take_hooks_off(); }

const std::vector<Param>& Zero::params() const { return state_->pieces; }
const comm::Group& Zero::owners() const { return state_->owners; }
void Zero::hold(bool on) { state_->hold(on); }
void Zero::finish() { state_->finish(); }
void Zero::publish() { state_->publish(); }

memory::Traffic Zero::traffic() const {
  memory::Traffic sum;
  for (const ZeroBlock& block : state_->blocks)
    for (const ZeroFlat& flat : block.flats) {
      sum.to_host += flat.traffic.to_host;
      sum.to_device += flat.traffic.to_device;
    }
  return sum;
}

at::Tensor Zero::run(const std::string& block, const at::Tensor& input,
                     const BlockForward& forward) {
  const size_t index = state_->find(block);
  if (recomputing()) return state_->run_again(index, input, forward);
  return index == state_->root ? state_->run_root(input, forward)
                               : state_->run_block(index, input, forward);
}

}  // namespace braid::parallel
