// SPDX-License-Identifier: BSD-3-Clause
#include "memory/recorder.h"

#include <ATen/SequenceNumber.h>
#include <torch/csrc/autograd/function.h>

#include <algorithm>
#include <limits>

#include "braid/core/dry.h"
#include "braid/core/region.h"
#include "memory/dry_storage.h"
#include "memory/real_blocks.h"

namespace braid::memory {
namespace {

thread_local OperatorFrame* frame_now = nullptr;

// Of the modules that this thread is in; a module is left on the thread that entered it.
thread_local std::vector<std::unique_ptr<Region>> module_regions;

constexpr size_t longest_history = size_t{1} << 20;  // of module changes; older ones are dropped

}  // namespace

Recorder::Recorder(const InstrumentOptions& given)
    : options(given), ledger(given.ledger != nullptr ? given.ledger->state() : nullptr) {
  intern("");
}

bool Recorder::in_backward() const { return torch::autograd::get_current_node() != nullptr; }

size_t Recorder::intern(std::string_view path) {
  const auto found = module_index_.find(path);
  if (found != module_index_.end()) return found->second;
  modules_.push_back({std::string(path), ledger != nullptr ? ledger->name(path) : 0});
  module_index_.emplace(path, modules_.size() - 1);
  return modules_.size() - 1;
}

void Recorder::enter(std::string_view module) {
  if (options.annotate)
    module_regions.push_back(module.empty() ? nullptr : std::make_unique<Region>(module));
  const std::lock_guard lock(mutex_);
  stack_.push_back({intern(module), in_backward()});
  if (stack_.back().in_backward) return;  // its nodes are thrown away, and may be another thread's
  since_.emplace_back(at::sequence_number::peek(), stack_.back().module);
}

void Recorder::leave() {
  if (options.annotate) module_regions.pop_back();
  const std::lock_guard lock(mutex_);
  const bool in_backward = stack_.back().in_backward;
  stack_.pop_back();
  if (in_backward) return;
  since_.emplace_back(at::sequence_number::peek(), stack_.empty() ? 0 : stack_.back().module);
  if (since_.size() > longest_history)
    since_.erase(since_.begin(), since_.begin() + longest_history / 2);
}

size_t Recorder::current() {
  const auto node = torch::autograd::get_current_node();
  if (node == nullptr || (!stack_.empty() && stack_.back().in_backward))
    return stack_.empty() ? 0 : stack_.back().module;
  const uint64_t sequence = node->sequence_nr();
  if (sequence == std::numeric_limits<uint64_t>::max()) return 0;  // accumulation of a gradient
  const auto after =
      std::upper_bound(since_.begin(), since_.end(), sequence,
                       [](uint64_t number, const auto& change) { return number < change.first; });
  return after == since_.begin() ? 0 : std::prev(after)->second;
}

const std::string& Recorder::module() {
  const std::lock_guard lock(mutex_);
  return modules_[current()].path;  // a deque: the reference stays good
}

uint32_t Recorder::module_name() {
  const std::lock_guard lock(mutex_);
  return modules_[current()].name;
}

uint32_t Recorder::op_name(const std::string& op) {
  const std::lock_guard lock(mutex_);
  const auto [entry, fresh] = op_names_.try_emplace(&op, 0);
  if (fresh) entry->second = ledger->name(op);
  return entry->second;
}

void Recorder::mark(const at::Tensor& tensor, MemoryKind kind, std::string_view module) {
  if (ledger == nullptr) return;
  BlockPtr block = block_of(tensor);
  if (block == nullptr && options.adopt && !is_dry(tensor))
    block = adopt_block(tensor.storage(), *ledger);
  if (block == nullptr) return;
  const uint32_t name = module.empty() ? block->module : ledger->name(module);
  const std::lock_guard lock(ledger->mutex);
  block->kind = static_cast<int>(kind);
  block->module = name;
}

int Recorder::exchange_kind(int kind) {
  const std::lock_guard lock(mutex_);
  return std::exchange(kind_, kind);
}

BlockPtr Recorder::take(int64_t bytes, Place place) {
  if (ledger == nullptr) return nullptr;
  if (frame_now == nullptr) return ledger->take(bytes, place, kind_, module_name(), 0);
  BlockPtr block = ledger->take(bytes, place, kind_, frame_now->module, frame_now->op);
  frame_now->taken.push_back(block);
  return block;
}

BlockPtr Recorder::take_dry(int64_t bytes) {
  return frame_now == nullptr ? nullptr : take(bytes, frame_now->dry_place);
}

Recorder* recorder() { return static_cast<Recorder*>(observer()); }

FrameGuard::FrameGuard(OperatorFrame* frame) : before_(std::exchange(frame_now, frame)) {}
FrameGuard::~FrameGuard() { frame_now = before_; }

BlockPtr block_of(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.has_storage()) return nullptr;
  return is_dry(tensor) ? dry_block(tensor.storage()) : real_block(tensor.storage());
}

}  // namespace braid::memory
