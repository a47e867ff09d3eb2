// SPDX-License-Identifier: BSD-3-Clause
// A model that the program made itself and gave to fit() or to a Trainer: what of a config is done
// around it, what it must offer for the rest, and how the run names it.
//
//   OwnModel own(given, options, device, ranks);   // throws ConfigError naming what is missing
//   Trainer trains own.model() with own.options()
#pragma once
#include <memory>

#include "braid/nn/model.h"
#include "braid/train/options.h"
#include "braid/train/ranks.h"

namespace braid::train {

// The options of a run of this model: as they are if their section `model` makes such a model, else
// with model.name = own, so that nobody takes the run for another model.
RunOptions options_of(const nn::Model& model, RunOptions options);

class OwnModel {
 public:
  OwnModel(nn::Model& given, RunOptions options, c10::Device device, const Ranks& ranks);
  nn::Model& model() const { return around_ != nullptr ? *around_ : given_; }
  const RunOptions& options() const { return options_; }

 private:
  nn::Model& given_;
  RunOptions options_;
  std::unique_ptr<nn::Model> around_;  // casts what goes in; null: nothing to cast
};

// Its layers route samples to experts, whose losses and loads a step adds up.
bool has_experts(const nn::Model& model);

// After the first step: a model whose forward pass goes past Pass::segments computes nothing again.
void expect_segments(const nn::Model& model, const RunOptions& options, int64_t segments);

}  // namespace braid::train
