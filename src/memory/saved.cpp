// SPDX-License-Identifier: BSD-3-Clause
#include "memory/saved.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <mutex>

#include "memory/recorder.h"

namespace braid::memory {
namespace {

using torch::autograd::SavedVariableHooks;

// Keeps the tensor as autograd would, and says so.
class WatchedVariable final : public SavedVariableHooks {
 public:
  ~WatchedVariable() override {
    if (block_ == nullptr) return;
    if (const auto ledger = block_->ledger.lock()) ledger->unsave(block_);
  }

  void call_pack_hook(const at::Tensor& tensor) override {
    kept_ = tensor.tensor_data();  // a result that held its own node would never be freed
    block_ = block_of(tensor);
    if (block_ == nullptr) return;
    if (const auto ledger = block_->ledger.lock()) ledger->save(block_);
  }

  at::Tensor call_unpack_hook() override { return kept_; }

 private:
  at::Tensor kept_;
  BlockPtr block_;
};

class WatchedEngine final : public torch::autograd::Engine {
 public:
  std::unique_ptr<SavedVariableHooks> get_default_saved_variable_hooks() override {
    Recorder* recording = recorder();
    if (recording == nullptr || recording->ledger == nullptr) return nullptr;
    return std::make_unique<WatchedVariable>();
  }
};

torch::autograd::Engine& watched_engine() {
  static auto* engine = new WatchedEngine;  // never destroyed: its threads live on
  return *engine;
}

}  // namespace

void watch_saved_variables() {
  static std::once_flag once;
  std::call_once(once, [] { torch::autograd::set_default_engine_stub(&watched_engine); });
}

}  // namespace braid::memory
