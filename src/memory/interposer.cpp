// SPDX-License-Identifier: BSD-3-Clause
// One boxed function between autograd and the kernels (DispatchKey::Fake, which torch keeps free
// for such uses): it runs dry operators on their Meta kernels, keeps or replays results, and tells
// the ledger and the operator log what ran. Real operators go through unchanged.
#include <ATen/core/dispatch/Dispatcher.h>
#include <fmt/format.h>
#include <torch/library.h>

#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "braid/core/dry.h"
#include "braid/core/error.h"
#include "memory/dry_storage.h"
#include "memory/operator_entry.h"
#include "memory/recorder.h"
#include "memory/tape_state.h"
#include "memory/values.h"

namespace braid::memory {
namespace {

using Stack = torch::jit::Stack;

const std::set<std::string>& value_readers() {
  static const std::set<std::string> names = {
      "aten::_local_scalar_dense", "aten::equal",    "aten::nonzero",
      "aten::masked_select",       "aten::_unique2", "aten::unique_dim"};
  return names;
}

InternalError value_read(const std::string& op, const std::string& module) {
  return InternalError(
      {.what = fmt::format("a value is read in a dry run: {}{}", op,
                           module.empty() ? "" : " in module " + module),
       .why = "dry tensors have sizes and no values",
       .fix = "keep the value on the device: no item(), no comparison on the host inside a step"});
}

InternalError no_meta_kernel(const std::string& op, const std::string& module) {
  return InternalError({.what = fmt::format("a dry run meets {} without a Meta kernel{}", op,
                                            module.empty() ? "" : ", in module " + module),
                        .why = "its result's size cannot be told without running it",
                        .fix = "register a Meta kernel for it (src/kernels/meta_*.cpp)"});
}

// The arguments of one call on their way through the Meta kernel and back.
class DryCall {
 public:
  DryCall(const c10::OperatorHandle& op, Stack* stack)
      : op_(op), stack_(stack), first_(stack->size() - op.schema().arguments().size()) {
    look();
  }

  bool concerns(bool dry_mode) const {
    if (has_dry_) return true;
    if (!dry_mode || !device_argument_) return false;
    if (!has_tensors_) return true;  // a factory
    const c10::IValue& device = (*stack_)[*device_argument_];
    return device.isDevice() && device.toDevice().is_cuda();  // real data move to a dry device
  }

  void run(OperatorFrame& frame) {
    to_meta_arguments();
    frame.dry_place = place_of(device_);
    frame.dry_place.pinned = pinned_;
    {
      const DryDeviceGuard pretend(device_.type());
      op_.callBoxed(stack_);
    }
    for (const auto& [meta, dry] : pairs_) follow(meta, dry);
    to_dry_results();
  }

 private:
  void look() {
    const auto& arguments = op_.schema().arguments();
    for (size_t i = 0; i < arguments.size(); ++i) {
      if (arguments[i].name() == "device") device_argument_ = first_ + i;
      each_tensor((*stack_)[first_ + i], [&](const at::Tensor& tensor) {
        if (!tensor.defined()) return;
        has_tensors_ = true;
        if (!is_dry(tensor)) return;
        // A scalar on another device does not decide where an operator runs.
        if (!has_dry_ || tensor.dim() > 0) device_ = tensor.device();
        has_dry_ = true;
      });
    }
  }

  at::Tensor to_meta_argument(const at::Tensor& tensor) {
    if (!tensor.defined() || tensor.is_meta()) return tensor;
    if (is_dry(tensor)) return pairs_.emplace_back(to_meta(tensor), tensor).first;
    return tensor.dim() == 0 ? tensor : meta_of_real(tensor);  // scalars mix with any device
  }

  void to_meta_arguments() {
    const auto& arguments = op_.schema().arguments();
    for (size_t i = 0; i < arguments.size(); ++i) {
      c10::IValue& value = (*stack_)[first_ + i];
      change_tensors(value, [&](const at::Tensor& tensor) { return to_meta_argument(tensor); });
      if (arguments[i].name() == "pin_memory") {
        pinned_ = value.isBool() && value.toBool();
        value = c10::IValue();
      } else if (value.isGenerator()) {
        value = c10::IValue();
      }
    }
    if (!device_argument_) return;
    c10::IValue& device = (*stack_)[*device_argument_];
    if (device.isDevice()) device_ = device.toDevice();
    if (device.isDevice() || !has_tensors_) device = c10::Device(c10::kMeta);
    if (device_.is_cuda() && !device_.has_index()) device_ = c10::Device(c10::kCUDA, 0);
  }

  void to_dry_results() {
    for (size_t i = stack_->size() - op_.schema().returns().size(); i < stack_->size(); ++i)
      change_tensors((*stack_)[i], [&](const at::Tensor& result) {
        for (const auto& [meta, dry] : pairs_)
          if (meta.is_same(result)) return dry;
        return result.defined() && result.is_meta() ? to_dry(result, device_) : result;
      });
  }

  const c10::OperatorHandle& op_;
  Stack* stack_;
  size_t first_;  // argument on the stack
  std::optional<size_t> device_argument_;
  bool has_tensors_ = false, has_dry_ = false, pinned_ = false;
  c10::Device device_ = c10::kCPU;
  std::vector<std::pair<at::Tensor, at::Tensor>> pairs_;  // {meta, dry} of the arguments
};

void refuse_values(const c10::OperatorHandle& op, const Stack& stack, Recorder* recording) {
  const std::string& name = op.schema().name();
  const auto argument = [&](size_t i) {
    return stack[stack.size() - op.schema().arguments().size() + i];
  };
  const bool copies_out = name == "aten::copy_" && has_data(argument(0).toTensor());
  if (copies_out || value_readers().contains(name))
    throw value_read(name, recording != nullptr ? recording->module() : "");
}

void run_dry(DryCall& call, const c10::OperatorHandle& op, OperatorFrame& frame,
             Recorder* recording) {
  try {
    call.run(frame);
  } catch (const c10::NotImplementedError&) {
    throw no_meta_kernel(op.schema().name(), recording != nullptr ? recording->module() : "");
  }
}

// Results as autograd has not seen them: a tape that held those would hold the graph.
std::vector<c10::IValue> bare_results(const Stack& stack, size_t count) {
  std::vector<c10::IValue> results(stack.end() - static_cast<std::ptrdiff_t>(count), stack.end());
  for (c10::IValue& result : results)
    change_tensors(result, [](const at::Tensor& tensor) {
      if (!tensor.defined()) return tensor;
      return at::Tensor(tensor.unsafeGetTensorImpl()->shallow_copy_and_detach(
          /*version_counter=*/0, /*allow_tensor_metadata_change=*/true));
    });
  return results;
}

// Operators that write to their arguments are never on a tape: their results are not all they do.
bool on_tape(const c10::OperatorHandle& op, TapeUse use, TapeMode mode) {
  return use.tape != nullptr && use.mode == mode && !op.schema().is_mutable() &&
         use.tape->chooses(op.schema().name());
}

// True if the results came from the tape.
bool replayed(const c10::OperatorHandle& op, Stack* stack) {
  const TapeUse use = tape_now();
  if (!on_tape(op, use, TapeMode::replay)) return false;
  std::optional<TapeResults> results = use.tape->next(op.schema().name());
  if (!results) return false;
  torch::jit::drop(*stack, op.schema().arguments().size());
  for (c10::IValue& result : *results) stack->push_back(std::move(result));
  return true;
}

// What is written to is no longer what a tape kept.
void forget_written(const c10::OperatorHandle& op, const Stack& stack) {
  const TapeUse use = tape_now();
  if (use.tape == nullptr || use.mode != TapeMode::record || !op.schema().is_mutable()) return;
  const auto& arguments = op.schema().arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    const c10::AliasInfo* alias = arguments[i].alias_info();
    if (alias == nullptr || !alias->isWrite()) continue;
    each_tensor(stack[stack.size() - arguments.size() + i],
                [&](const at::Tensor& tensor) { use.tape->written(tensor); });
  }
}

void record(const c10::OperatorHandle& op, const Stack& stack) {
  const TapeUse use = tape_now();
  if (!on_tape(op, use, TapeMode::record)) return;
  use.tape->keep(op.schema().name(), bare_results(stack, op.schema().returns().size()));
}

// Not as a new call: a profile would show the operator twice.
void call_below(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
  op.redispatchBoxed(
      keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, c10::DispatchKey::Fake), stack);
}

void call_watched(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack,
                  Recorder& recording) {
  const std::string& name = op.schema().name();
  check_deadline(recording.deadline);
  OperatorFrame frame;
  OperatorEntry entry(op, *stack, recording);
  if (recording.ledger != nullptr) {
    frame.module = recording.module_name();
    frame.op = recording.op_name(name);
  }
  DryCall dry(op, stack);
  {
    const FrameGuard inside(&frame);
    if (dry.concerns(recording.options.dry)) {
      refuse_values(op, *stack, &recording);
      run_dry(dry, op, frame, &recording);
    } else {
      call_below(op, keys, stack);
    }
  }
  entry.finish(*stack, find_scratch(frame, op, *stack));
}

void call_unwatched(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
  DryCall dry(op, stack);  // dry tensors outlive the scope that made them
  if (!dry.concerns(/*dry_mode=*/false)) return call_below(op, keys, stack);
  refuse_values(op, *stack, nullptr);
  OperatorFrame frame;
  run_dry(dry, op, frame, nullptr);
}

void interpose(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
  const c10::impl::ExcludeDispatchKeyGuard below(c10::DispatchKey::Fake);
  if (replayed(op, stack)) return;
  forget_written(op, *stack);
  Recorder* recording = recorder();
  if (recording != nullptr)
    call_watched(op, keys, stack, *recording);
  else
    call_unwatched(op, keys, stack);
  record(op, *stack);
}

TORCH_LIBRARY_IMPL(_, Fake, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&interpose>());
}

}  // namespace
}  // namespace braid::memory
