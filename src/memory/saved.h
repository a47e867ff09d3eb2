// SPDX-License-Identifier: BSD-3-Clause
// What autograd keeps for the backward pass goes through here: the engine of the process asks who
// stands at this thread.
//
//   class Mine : public Saver { std::unique_ptr<SavedVariableHooks> hooks() override; };
//   { const SaverScope on(mine); y = f(x); }   // each saved tensor gets hooks of its own
#pragma once
#include <memory>

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>

#include "memory/block.h"

namespace braid::memory {

// From the first call on the engine asks. Threads with neither a Saver nor a ledger see no
// difference.
void watch_saved_variables();

class Saver {
 public:
  virtual ~Saver() = default;
  virtual std::unique_ptr<torch::autograd::SavedVariableHooks> hooks() = 0;
};

// Scopes of a thread nest, the innermost counts. null: as if there were none.
class SaverScope {
 public:
  explicit SaverScope(Saver* saver);
  ~SaverScope();
  SaverScope(const SaverScope&) = delete;
  SaverScope& operator=(const SaverScope&) = delete;

 private:
  Saver* before_;
};

// A tensor that waits for the backward pass: the ledger counts its memory as an activation.
class Kept {
 public:
  Kept() = default;
  explicit Kept(const at::Tensor& tensor);
  ~Kept();
  Kept(Kept&& other) noexcept;
  Kept& operator=(Kept&& other) noexcept;

  const at::Tensor& tensor() const { return tensor_; }
  at::Tensor release();  // gives the tensor away

 private:
  void unsave();
  at::Tensor tensor_;
  BlockPtr block_;
};

}  // namespace braid::memory
