// SPDX-License-Identifier: BSD-3-Clause
#include "memory/recompute_segment.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <optional>
#include <utility>

#include "braid/core/error.h"
#include "memory/recompute_error.h"

namespace braid::memory {
namespace {

using torch::autograd::SavedVariableHooks;

struct StopSegment {};  // thrown through the second run when it has given what is wanted

thread_local int segments_around = 0;  // this point of a forward pass

class AroundGuard {
 public:
  AroundGuard() { ++segments_around; }
  ~AroundGuard() { --segments_around; }
  AroundGuard(const AroundGuard&) = delete;
  AroundGuard& operator=(const AroundGuard&) = delete;
};

class DroppedHook final : public SavedVariableHooks {
 public:
  explicit DroppedHook(std::shared_ptr<Segment> segment) : segment_(std::move(segment)) {}
  ~DroppedHook() override {
    if (number_) segment_->forget(*number_);
  }
  void call_pack_hook(const at::Tensor& value) override { number_ = segment_->drop(value); }
  at::Tensor call_unpack_hook() override { return segment_->take(number_.value()); }

 private:
  std::shared_ptr<Segment> segment_;
  std::optional<size_t> number_;
};

class DroppingSaver final : public Saver {
 public:
  explicit DroppingSaver(std::shared_ptr<Segment> segment) : segment_(std::move(segment)) {}
  std::unique_ptr<SavedVariableHooks> hooks() override {
    return std::make_unique<DroppedHook>(segment_);
  }

 private:
  std::shared_ptr<Segment> segment_;
};

// The graph of the second run is thrown away, but a block may have a backward pass of its own.
class CollectedHook final : public SavedVariableHooks {
 public:
  explicit CollectedHook(Segment& segment) : segment_(segment) {}
  void call_pack_hook(const at::Tensor& value) override {
    value_ = value.tensor_data();
    segment_.collect(value);
  }
  at::Tensor call_unpack_hook() override { return value_; }

 private:
  Segment& segment_;
  at::Tensor value_;
};

class CollectingSaver final : public Saver {
 public:
  explicit CollectingSaver(Segment& segment) : segment_(segment) {}
  std::unique_ptr<SavedVariableHooks> hooks() override {
    return std::make_unique<CollectedHook>(segment_);
  }

 private:
  Segment& segment_;
};

std::unique_ptr<Tape> tape_of_matmuls() {
  return std::make_unique<Tape>(
      TapeOptions{.each = {"aten::_scaled_dot_product_flash_attention",
                           "aten::_scaled_dot_product_flash_attention_for_cpu",
                           "aten::_scaled_dot_product_efficient_attention", "braid::attention",
                           "braid::window_attention"},
                  .every_second = {"aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm",
                                   "aten::_scaled_mm", "aten::_grouped_mm", "braid::linear_gelu"},
                  .first = {"braid::linear_gelu"}});
}

}  // namespace

SegmentInput::SegmentInput(const at::Tensor& input, Stash* stash)
    : wants_grad_(input.defined() && input.requires_grad()) {
  if (stash != nullptr && segments_around == 0 && input.defined()) {
    stashed_ = stash->put(input.detach());
    return;
  }
  version_ = Version(input);
  saved_ = torch::autograd::SavedVariable(input.defined() ? input.detach() : input,
                                          /*is_output=*/false);
}

bool SegmentInput::changed() const { return version_.changed(); }

at::Tensor SegmentInput::leaf() const {
  const at::Tensor value = stashed_ != nullptr ? stashed_->take() : saved_.unpack();
  return value.defined() ? value.detach().requires_grad_(wants_grad_) : value;
}

Segment::Segment(SegmentForward forward, SegmentOptions options,
                 std::shared_ptr<SegmentCounts> counts)
    : forward_(std::move(forward)),
      options_(std::move(options)),
      counts_(std::move(counts)),
      tape_(options_.keep_matmuls ? tape_of_matmuls() : nullptr) {}

at::Tensor Segment::first_run(const std::vector<at::Tensor>& inputs) {
  watch_saved_variables();
  for (const at::Tensor& input : inputs) inputs_.emplace_back(input, options_.stash);
  generators_ = Generators(inputs);
  DroppingSaver dropping(shared_from_this());
  at::Tensor output;
  {
    const AroundGuard around;
    const SaverScope saver(&dropping);
    const TapeScope record(tape_.get(), TapeMode::record);
    output = forward_(inputs);
  }
  generators_.keep_used();
  check_inputs("by the segment itself");
  if (tape_ != nullptr) tape_->shorten(on_tape_);  // the second run ends before those behind
  if (recomputing()) return output;                // of a segment around this one
  ++counts_->segments;
  if (tape_ != nullptr) counts_->kept += static_cast<int64_t>(tape_->size());
  return output;
}

size_t Segment::drop(const at::Tensor& value) {
  const std::lock_guard lock(mutex_);
  if (tape_ != nullptr) on_tape_ = tape_->size();
  dropped_.emplace_back().mark = mark_of(value, options_.check);
  return dropped_.size() - 1;
}

void Segment::forget(size_t number) {
  const std::lock_guard lock(mutex_);
  Dropped& value = dropped_[number];
  value.wanted = value.there = false;
  value.again = Kept();
}

at::Tensor Segment::take(size_t number) {
  const std::lock_guard lock(mutex_);
  Dropped& value = dropped_[number];
  if (!value.there) second_run();
  if (value.version.changed()) throw changed_value(options_.name, number, to_text(value.mark));
  value.there = false;  // a backward pass over the same graph later on computes it once more
  return value.again.release();
}

void Segment::collect(const at::Tensor& value) {
  if (came_ == end_) return;  // of a block that goes on after StopSegment
  Dropped& known = dropped_[came_];
  const ValueMark mark = mark_of(value, options_.check);
  if (!(mark == known.mark))
    throw other_value({.segment = options_.name,
                       .number = came_,
                       .all = dropped_.size(),
                       .first = known.mark,
                       .second = mark});
  ++came_;
  if (known.wanted) {
    known.again = Kept(value);
    known.version = Version(value);
    known.there = true;
  }
  if (came_ == end_) throw StopSegment();
}

void Segment::second_run() {
  came_ = end_ = 0;
  for (size_t i = 0; i < dropped_.size(); ++i)
    if (dropped_[i].wanted) end_ = i + 1;
  check_inputs("between the forward and the backward pass");
  ++counts_->again;
  try {
    run_forward();
  } catch (const StopSegment&) {
    return;
  } catch (...) {
    throw_in_segment(options_.name);
  }
  check_all_came();
}

void Segment::run_forward() {
  CollectingSaver collecting(*this);
  const RecomputingGuard again;
  const AroundGuard around;
  const at::AutoGradMode with_graph(true);
  const TapeScope replay(tape_.get(), TapeMode::replay);
  std::vector<at::Tensor> leaves;
  for (const SegmentInput& input : inputs_) leaves.push_back(input.leaf());
  const AutocastGuard autocast(autocast_);
  const GeneratorsGuard generators(generators_, leaves);
  const SaverScope saver(&collecting);
  forward_(leaves);
}

void Segment::check_inputs(const char* when) const {
  for (size_t i = 0; i < inputs_.size(); ++i)
    if (inputs_[i].changed()) throw changed_input(options_.name, i, when);
}

void Segment::check_all_came() const {
  if (came_ < end_)
    throw missing_values(options_.name, came_, dropped_.size(), to_text(dropped_[came_].mark));
}

}  // namespace braid::memory
