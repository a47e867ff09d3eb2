// SPDX-License-Identifier: BSD-3-Clause
// What is written down of one operator: its line in the log, and which of its blocks were scratch.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>

#include "memory/recorder.h"

namespace braid::memory {

// Looks at the arguments when made, at the results when finished. Does nothing without a log.
class OperatorEntry {
 public:
  OperatorEntry(const c10::OperatorHandle& op, const torch::jit::Stack& stack, Recorder& recording);
  void finish(const torch::jit::Stack& stack, int64_t scratch);

 private:
  void note_place(const at::Tensor& tensor);
  const c10::OperatorHandle& op_;
  OperatorLog* log_;
  Operator entry_;
  std::vector<bool> wanted_;
  bool transposed_ = false;
  bool on_host_ = false, on_device_ = false;  // some of its tensors
};

// Blocks that an operator took and did not return are its scratch. Gives their bytes.
int64_t find_scratch(OperatorFrame& frame, const c10::OperatorHandle& op,
                     const torch::jit::Stack& stack);

}  // namespace braid::memory
