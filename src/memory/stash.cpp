// SPDX-License-Identifier: BSD-3-Clause
#include "braid/memory/stash.h"

#include <ATen/core/grad_mode.h>

#include <mutex>
#include <utility>
#include <vector>

#include "memory/saved.h"
#include "memory/stash_entry.h"

namespace braid::memory {
namespace {

// Stays where it is, as it is.
class StayedValue final : public Stashed {
 public:
  explicit StayedValue(const at::Tensor& value) : kept_(value) {}
  at::Tensor take() override { return kept_.tensor(); }

 private:
  Kept kept_;
};

class MovedValue final : public Stashed {
 public:
  MovedValue(std::shared_ptr<Entry> entry, const at::Tensor& value)
      : entry_(std::move(entry)),
        sizes_(value.sizes().vec()),
        strides_(entry_->strides.empty() ? value.strides().vec() : entry_->strides) {}

  at::Tensor take() override {
    const at::NoGradGuard no_grad;
    return entry_->stash->take(*entry_).as_strided(sizes_, strides_, 0);
  }

 private:
  std::shared_ptr<Entry> entry_;
  std::vector<int64_t> sizes_, strides_;
};

class MovingStash final : public Stash {
 public:
  explicit MovingStash(StashOptions options)
      : state_(std::make_shared<StashState>(std::move(options))) {}

  std::shared_ptr<Stashed> put(const at::Tensor& value) override {
    const at::NoGradGuard no_grad;
    const Code code = value.defined() ? code_of(value, state_->options) : Code::as_is;
    if (!state_->takes(value, code)) return std::make_shared<StayedValue>(value);
    return std::make_shared<MovedValue>(state_->put(value, code), value);
  }

  Traffic traffic() const override {
    const std::lock_guard lock(state_->mutex);
    return state_->traffic;
  }

 private:
  std::shared_ptr<StashState> state_;
};

class StashedVariable final : public torch::autograd::SavedVariableHooks {
 public:
  explicit StashedVariable(Stash& stash) : stash_(stash) {}
  void call_pack_hook(const at::Tensor& tensor) override { value_ = stash_.put(tensor); }
  at::Tensor call_unpack_hook() override { return value_->take(); }

 private:
  Stash& stash_;
  std::shared_ptr<Stashed> value_;
};

class StashSaver final : public Saver {
 public:
  explicit StashSaver(Stash& stash) : stash_(stash) {}
  std::unique_ptr<torch::autograd::SavedVariableHooks> hooks() override {
    return std::make_unique<StashedVariable>(stash_);
  }

 private:
  Stash& stash_;
};

}  // namespace

StashOptions stash_options(const MemoryOptions& options, c10::Device device) {
  return {.offload = options.offloads("activations"),
          .format = options.stash,
          .pack_masks = options.pack_masks,
          .window = options.window,
          .device = device};
}

std::unique_ptr<Stash> make_stash(StashOptions options) {
  return std::make_unique<MovingStash>(std::move(options));
}

struct SavedScope::State {
  explicit State(Stash& stash) : saver(std::make_unique<StashSaver>(stash)), scope(saver.get()) {}
  std::unique_ptr<Saver> saver;
  SaverScope scope;
};

SavedScope::SavedScope(Stash& stash) : state_(std::make_unique<State>(stash)) {}
SavedScope::SavedScope(Stash* stash)
    : state_(stash != nullptr ? std::make_unique<State>(*stash) : nullptr) {}
SavedScope::~SavedScope() = default;

}  // namespace braid::memory
