// SPDX-License-Identifier: BSD-3-Clause
// What a running step tells its instruments: which module runs, and what its memory is for.
//
//   const ModuleScope here("blocks.0.attn");            // operators below belong to this module
//   const MemoryScope buffers(MemoryKind::communication);
//   mark(weight, MemoryKind::parameter);
//
// Without an instrument (memory::Instruments) each of them costs one thread-local read. With one,
// the state follows the step onto the autograd engine's device threads.
#pragma once
#include <array>
#include <cstdint>
#include <string_view>

#include <ATen/core/Tensor.h>
#include <c10/util/ThreadLocalDebugInfo.h>

namespace braid {

enum class MemoryKind : uint8_t {
  parameter,
  gradient,
  optimizer_state,
  master_weight,
  input,
  activation,     // held by a saved variable of autograd
  temporary,      // the rest of a step
  communication,  // buffers of collectives
  workspace,      // scratch of a kernel: taken inside an operator and not its result
  other           // there before the step, and nobody said what it is
};
inline constexpr int memory_kinds = 10;
std::string_view to_text(MemoryKind kind);

// An instrument. One is active on a thread (and on the engine threads that work for it) at a time.
class Observer : public c10::DebugInfoBase {
 public:
  virtual void enter(std::string_view module) = 0;
  virtual void leave() = 0;
  virtual void mark(const at::Tensor& tensor, MemoryKind kind, std::string_view module) = 0;
  // Kind of what is allocated from now on; gives back the one before. -1: not said.
  virtual int exchange_kind(int kind) = 0;
};

Observer* observer();  // of this thread; null without an instrument

class ModuleScope {
 public:
  explicit ModuleScope(std::string_view module) : observer_(observer()) {
    if (observer_ != nullptr) observer_->enter(module);
  }
  ~ModuleScope() {
    if (observer_ != nullptr) observer_->leave();
  }
  ModuleScope(const ModuleScope&) = delete;
  ModuleScope& operator=(const ModuleScope&) = delete;

 private:
  Observer* observer_;
};

class MemoryScope {
 public:
  explicit MemoryScope(MemoryKind kind) : observer_(observer()) {
    if (observer_ != nullptr) before_ = observer_->exchange_kind(static_cast<int>(kind));
  }
  ~MemoryScope() {
    if (observer_ != nullptr) observer_->exchange_kind(before_);
  }
  MemoryScope(const MemoryScope&) = delete;
  MemoryScope& operator=(const MemoryScope&) = delete;

 private:
  Observer* observer_;
  int before_ = -1;
};

// Says what the memory of a tensor is for, for its whole life, and of which module it is (empty: of
// the one that ran when it was taken).
inline void mark(const at::Tensor& tensor, MemoryKind kind, std::string_view module = {}) {
  Observer* instrument = observer();
  if (instrument != nullptr && tensor.defined()) instrument->mark(tensor, kind, module);
}

}  // namespace braid
