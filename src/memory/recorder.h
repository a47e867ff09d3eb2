// SPDX-License-Identifier: BSD-3-Clause
// The observer behind memory::Instruments: what is on, and where the step is.
#pragma once
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "braid/core/deadline.h"
#include "braid/core/observe.h"
#include "braid/memory/instruments.h"
#include "memory/block.h"

namespace braid::memory {

// The operator that runs now on this thread, and what it has taken so far.
struct OperatorFrame {
  uint32_t module = 0, op = 0;  // names
  Place dry_place = {};         // where it pretends to run
  std::vector<BlockPtr> taken;
};

class Recorder final : public Observer {
 public:
  explicit Recorder(const InstrumentOptions& options);

  void enter(std::string_view module) override;
  void leave() override;
  void mark(const at::Tensor& tensor, MemoryKind kind, std::string_view module) override;
  int exchange_kind(int kind) override;

  // Counts a block taken on this thread; null without a ledger.
  BlockPtr take(int64_t bytes, Place place);
  BlockPtr take_dry(int64_t bytes);  // at the place of the operator that runs
  // In the backward pass: the module whose forward pass made the node that runs.
  const std::string& module();
  uint32_t module_name();                   // the same, as the ledger numbers it
  uint32_t op_name(const std::string& op);  // likewise
  bool in_backward() const;

  const InstrumentOptions options;
  // Of the thread that made it: operators of a backward pass may run on autograd's own threads.
  const Deadline::Instant deadline = Deadline::now_valid();
  const std::shared_ptr<Ledger::State> ledger;  // null: not counted

 private:
  struct Module {
    std::string path;
    uint32_t name;  // in the ledger
  };
  struct Entered {
    size_t module;
    bool in_backward;  // by a recompute
  };

  size_t current();  // module; under the mutex
  size_t intern(std::string_view path);

  std::mutex mutex_;
  std::vector<Entered> stack_;
  std::vector<std::pair<uint64_t, size_t>> since_;  // sequence number of autograd -> module
  // Looked up by each operator, so by number and by address, not by text.
  std::deque<Module> modules_;  // the first is "outside of modules"
  std::map<std::string, size_t, std::less<>> module_index_;
  std::unordered_map<const std::string*, uint32_t> op_names_;
  int kind_ = -1;
};

Recorder* recorder();  // of this thread; null without instruments

// Sets the frame of this thread for the time of one operator.
class FrameGuard {
 public:
  explicit FrameGuard(OperatorFrame* frame);
  ~FrameGuard();
  FrameGuard(const FrameGuard&) = delete;
  FrameGuard& operator=(const FrameGuard&) = delete;

 private:
  OperatorFrame* before_;
};

// The block that counts the memory of a tensor, real or dry; null if it is not counted.
BlockPtr block_of(const at::Tensor& tensor);

}  // namespace braid::memory
