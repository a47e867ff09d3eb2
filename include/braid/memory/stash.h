// SPDX-License-Identifier: BSD-3-Clause
// Where the values wait that a backward pass will want: on the host, in fewer bits, or as they are.
//
//   auto stash = memory::make_stash({.offload = true, .device = device});
//   { const memory::SavedScope kept(*stash); loss = model.forward(x); }
//   loss.backward();                       // values come back one ahead of their use
//   int64_t bytes = stash->traffic().to_host;
#pragma once
#include <cstdint>
#include <functional>
#include <memory>

#include <ATen/core/Tensor.h>

#include "braid/memory/options.h"

namespace braid::memory {

// A value that waits. take() gives it back, the same each time; the last owner frees it.
class Stashed {
 public:
  virtual ~Stashed() = default;
  virtual at::Tensor take() = 0;
};

struct Traffic {  // bytes
  int64_t to_host = 0, to_device = 0;
};

class Stash {
 public:
  virtual ~Stash() = default;
  virtual std::shared_ptr<Stashed> put(const at::Tensor& value) = 0;
  virtual Traffic traffic() const { return {}; }
};

struct StashOptions {
  bool offload = false;  // to page-locked host memory, on a stream of its own
  StashFormat format = StashFormat::exact;
  bool pack_masks = false;
  int64_t window = 2;          // tensors on their way at a time
  int64_t smallest = 1 << 12;  // bytes; what is smaller stays as it is
  c10::Device device = c10::kCPU;
  std::function<bool(const at::Tensor&)> stays = {};  // parameters
};
StashOptions stash_options(const MemoryOptions& options, c10::Device device);
std::unique_ptr<Stash> make_stash(StashOptions options);

// While it lives, what autograd keeps on this thread lies in the stash. Scopes nest, the innermost
// counts; backward may come after the scope, not after the stash.
class SavedScope {
 public:
  explicit SavedScope(Stash& stash);
  explicit SavedScope(Stash* stash);  // null: as if there were no scope
  ~SavedScope();
  SavedScope(const SavedScope&) = delete;
  SavedScope& operator=(const SavedScope&) = delete;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace braid::memory
