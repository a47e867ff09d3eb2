// SPDX-License-Identifier: BSD-3-Clause
// Switches instruments on for what runs in a scope: the byte ledger, the operator log, dry tensors.
//
//   memory::Ledger ledger;
//   memory::OperatorLog log;
//   const memory::Instruments on({.ledger = &ledger, .log = &log, .dry = true});
//   auto model = nn::make_model(options, build);   // dry parameters: 0 real bytes
//
// Scopes of one thread nest; a new thread starts without. Off: nothing is in the way of an
// operator.
#pragma once
#include <memory>

#include "braid/memory/ledger.h"
#include "braid/memory/operator_log.h"

namespace braid::memory {

struct InstrumentOptions {
  Ledger* ledger = nullptr;
  OperatorLog* log = nullptr;
  bool annotate = false;  // modules are regions of a profile, too
  bool adopt = false;     // what is marked and was taken before is counted from then on
  bool dry = false;       // factories make dry tensors; operators on them compute sizes alone
};

class Instruments {
 public:
  explicit Instruments(InstrumentOptions options);
  ~Instruments();
  Instruments(const Instruments&) = delete;
  Instruments& operator=(const Instruments&) = delete;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// A dry parameter becomes real: `data` may be the whole or a shard of it. Same tensor object, same
// hooks, same place in the module.
void materialize(const at::Tensor& dry, const at::Tensor& data);

// The memory of a tensor is given back and taken again while its views stay (ZeRO-3). Real or dry.
void release(const at::Tensor& tensor);
void acquire(const at::Tensor& tensor, int64_t bytes);

}  // namespace braid::memory
