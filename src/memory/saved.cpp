// SPDX-License-Identifier: BSD-3-Clause
#include "memory/saved.h"

#include <torch/csrc/autograd/engine.h>

#include <mutex>
#include <utility>

#include "memory/recorder.h"

namespace braid::memory {
namespace {

using torch::autograd::SavedVariableHooks;

// A scope lies within one forward pass on one thread.
thread_local Saver* saver_now = nullptr;

// Keeps the tensor as autograd would, and says so.
class WatchedVariable final : public SavedVariableHooks {
 public:
  void call_pack_hook(const at::Tensor& tensor) override { kept_ = Kept(tensor); }
  at::Tensor call_unpack_hook() override { return kept_.tensor(); }

 private:
  Kept kept_;
};

class WatchedEngine final : public torch::autograd::Engine {
 public:
  std::unique_ptr<SavedVariableHooks> get_default_saved_variable_hooks() override {
    if (saver_now != nullptr) return saver_now->hooks();
    Recorder* recording = recorder();
    if (recording == nullptr || recording->ledger == nullptr) return nullptr;
    return std::make_unique<WatchedVariable>();
  }
};

torch::autograd::Engine& watched_engine() {
  static auto* engine = new WatchedEngine;  // never destroyed: its threads live on
  return *engine;
}

// From the start: torch makes the threads of devices once in a process, for the engine of its first
// backward pass, so a second engine would have none.
const bool engine_installed = [] {
  watch_saved_variables();
  return true;
}();

}  // namespace

void watch_saved_variables() {
  static std::once_flag once;
  std::call_once(once, [] { torch::autograd::set_default_engine_stub(&watched_engine); });
}

SaverScope::SaverScope(Saver* saver) : before_(std::exchange(saver_now, saver)) {
  watch_saved_variables();
}
SaverScope::~SaverScope() { saver_now = before_; }

Kept::Kept(const at::Tensor& tensor)
    : tensor_(tensor.defined() ? tensor.tensor_data() : tensor),  // without its node: a result that
                                                                  // held it would never be freed
      block_(block_of(tensor)) {
  if (block_ == nullptr) return;
  if (const auto ledger = block_->ledger.lock()) ledger->save(block_);
}

Kept::~Kept() { unsave(); }
Kept::Kept(Kept&& other) noexcept
    : tensor_(std::move(other.tensor_)), block_(std::move(other.block_)) {}

Kept& Kept::operator=(Kept&& other) noexcept {
  unsave();
  tensor_ = std::move(other.tensor_);
  block_ = std::move(other.block_);
  return *this;
}

at::Tensor Kept::release() {
  unsave();
  return std::move(tensor_);
}

void Kept::unsave() {
  if (block_ == nullptr) return;
  if (const auto ledger = block_->ledger.lock()) ledger->unsave(block_);
  block_.reset();
}

}  // namespace braid::memory
