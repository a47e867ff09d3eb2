// SPDX-License-Identifier: BSD-3-Clause
// What the optimizer keeps. optimizer.cpp makes and saves it, optimizer_update.cpp changes it.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "braid/optim/optimizer.h"

namespace braid::optim {

// What the optimizer keeps of one parameter; the tensors are made at its first update.
struct OptimizerSlot {
  Param param;
  double decay = 0;
  bool wide = false;  // updates `master` instead of the parameter
  bool started = false;
  at::Tensor master, exp_avg, exp_avg_sq, step, momentum;

  at::Tensor target() const { return wide ? master : param.tensor.detach(); }
};

// Parameters of one dtype, device and weight decay.
struct OptimizerBatch {
  std::vector<OptimizerSlot*> slots;
  bool casts = false;  // gradients have another dtype than what is updated
  bool tiles = false;  // so many elements at a time
};

// Elements of a slot; count 0: all of them.
struct OptimizerPart {
  OptimizerSlot* slot = nullptr;
  int64_t begin = 0, count = 0;

  bool is_last() const { return count == 0 || begin + count == slot->param.tensor.numel(); }
  int64_t size() const { return count == 0 ? slot->param.tensor.numel() : count; }
  at::Tensor of(const at::Tensor& tensor) const {
    return count == 0 ? tensor : tensor.view({-1}).narrow(0, begin, count);
  }
};

// What one fused call takes.
struct OptimizerCall {
  double decay = 0;
  std::vector<at::Tensor> targets, grads, exp_avgs, exp_avg_sqs, steps, momenta, weights;
};

struct Optimizer::Impl {
  std::vector<Param> params;
  OptimizerOptions options;
  c10::ScalarType master;
  std::vector<OptimizerSlot> slots;

  struct Given {
    LearningRate lr;
    at::Tensor found_inf, factor;
  };

  bool adam() const { return options.name != Algorithm::sgd; }
  c10::ScalarType updated(const OptimizerSlot& slot) const {
    return slot.wide ? master : slot.param.tensor.scalar_type();
  }
  std::vector<std::pair<std::string, at::Tensor*>> parts(OptimizerSlot& slot) const;
  void start(OptimizerSlot& slot) const;
  void expect_own(const State& state) const;
  std::vector<OptimizerBatch> batches();
  std::vector<std::vector<OptimizerPart>> calls_of(const OptimizerBatch& batch) const;
  OptimizerCall call_of(const std::vector<OptimizerPart>& parts, const at::Tensor& memory) const;
  void update(const OptimizerBatch& batch, Given given, const Updated& updated);
  void adam_call(const OptimizerCall& call, const Given& given) const;
  void sgd_call(OptimizerCall& call, const Given& given) const;
};

}  // namespace braid::optim
