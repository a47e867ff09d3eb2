// SPDX-License-Identifier: BSD-3-Clause
#include "memory/operator_entry.h"

#include <algorithm>

#include "braid/core/recompute.h"
#include "memory/values.h"

namespace braid::memory {
namespace {

TensorShape shape_of(const at::Tensor& tensor) {
  return {tensor.sizes().vec(), tensor.scalar_type()};
}

// A view moves no bytes: its result is an argument's memory that is not written.
bool is_view(const c10::FunctionSchema& schema) {
  for (const c10::Argument& result : schema.returns())
    if (result.alias_info() != nullptr && !result.alias_info()->isWrite()) return true;
  return false;
}

}  // namespace

OperatorEntry::OperatorEntry(const c10::OperatorHandle& op, const torch::jit::Stack& stack,
                             Recorder& recording)
    : op_(op), log_(recording.options.log) {
  if (log_ == nullptr) return;
  const auto& arguments = op.schema().arguments();
  const size_t first = stack.size() - arguments.size();
  entry_.name = op.schema().name();
  entry_.module = recording.module();
  entry_.backward = recording.in_backward();
  entry_.recomputed = recomputing();
  for (size_t i = 0; i < arguments.size(); ++i) {
    const c10::IValue& value = stack[first + i];
    each_tensor(value, [&](const at::Tensor& tensor) {
      if (!tensor.defined()) return;
      if (!tensor.is_contiguous() && entry_.inputs.size() < 32)
        entry_.strided |= 1u << entry_.inputs.size();
      entry_.inputs.push_back(shape_of(tensor));
      note_place(tensor);
    });
    if (arguments[i].name() == "is_causal" && value.isBool()) entry_.causal = value.toBool();
    if (arguments[i].name() == "output_mask" && value.isBoolList())
      for (const bool want : value.toBoolList()) wanted_.push_back(want);
    if (arguments[i].name() == "transposed" && value.isBool()) transposed_ = value.toBool();
  }
}

void OperatorEntry::note_place(const at::Tensor& tensor) {
  const bool moved = entry_.name == "aten::copy_" || entry_.name == "aten::_to_copy";
  if (tensor.dim() == 0 && !moved) return;
  (tensor.device().is_cpu() ? on_host_ : on_device_) = true;
}

void OperatorEntry::finish(const torch::jit::Stack& stack, int64_t scratch) {
  if (log_ == nullptr) return;
  entry_.scratch = scratch;
  bool to_host = false;  // of its result: of copy_ that is what is written
  for (size_t i = stack.size() - op_.schema().returns().size(); i < stack.size(); ++i)
    each_tensor(stack[i], [&](const at::Tensor& tensor) {
      if (!tensor.defined()) return;
      entry_.outputs.push_back(shape_of(tensor));
      note_place(tensor);
      to_host = tensor.device().is_cpu();
    });
  const bool moves = on_host_ && on_device_;
  if (moves && (entry_.name == "aten::copy_" || entry_.name == "aten::_to_copy"))
    entry_.on = to_host ? RunsOn::to_host : RunsOn::to_device;
  else if (on_host_ && !on_device_)
    entry_.on = RunsOn::host;
  entry_.flops = flops_of({.name = entry_.name,
                           .inputs = entry_.inputs,
                           .outputs = entry_.outputs,
                           .wanted = wanted_,
                           .transposed = transposed_});
  if (!is_view(op_.schema())) {
    for (const TensorShape& shape : entry_.inputs) entry_.bytes += shape.bytes();
    for (const TensorShape& shape : entry_.outputs) entry_.bytes += shape.bytes();
  }
  log_->add(std::move(entry_));
}

int64_t find_scratch(OperatorFrame& frame, const c10::OperatorHandle& op,
                     const torch::jit::Stack& stack) {
  if (frame.taken.empty()) return 0;
  int64_t bytes = 0;
  std::vector<BlockPtr> results;
  for (size_t i = stack.size() - op.schema().returns().size(); i < stack.size(); ++i)
    each_tensor(stack[i], [&](const at::Tensor& tensor) { results.push_back(block_of(tensor)); });
  for (const BlockPtr& block : frame.taken) {
    if (block == nullptr) continue;
    if (std::find(results.begin(), results.end(), block) != results.end()) continue;
    if (const auto ledger = block->ledger.lock()) {
      const std::lock_guard lock(ledger->mutex);
      block->scratch = true;
      bytes += block->bytes;
    }
  }
  return bytes;
}

}  // namespace braid::memory
