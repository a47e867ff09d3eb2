// SPDX-License-Identifier: BSD-3-Clause
// What the evaluator needs beside outputs and targets: names of channels, weights of rows, ranges.
//
//   const train::Scoring scoring = train::scoring_of(options, *source);
//   ValidRecord record = train::evaluate(*model, loader, scoring);
//   if (!scoring.assumed.empty()) log.info(scoring.assumed);
#pragma once
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "braid/data/options.h"
#include "braid/nn/loss.h"

namespace braid::train {

struct RunOptions;

struct Scoring {
  nn::Loss loss = nn::Loss::mse;
  std::vector<std::string> names = {};    // of the channels; empty: c0, c1, ...
  at::Tensor row_weights = {};            // [rows], mean 1; undefined: nn::latitude_weights
  bool anomalies = false;                 // the fields are differences from a climatology
  std::optional<double> psnr_range = {};  // as nn::psnr takes it
  std::string assumed = {};               // a sentence about what the data do not say, or empty
};

// Throws ConfigError if data.names or train.area do not suit the data.
Scoring scoring_of(const RunOptions& options, const data::Source& source);

// One name per channel: data.names, else those that the files give, else c0, c1, ...
// Throws ConfigError if data.names has too few, or if two channels have the same name.
std::vector<std::string> channel_names(const data::DataOptions& options,
                                       const std::vector<std::string>& found, int64_t channels);

// Fields whose input and target lie on one grid ([..., rows, columns]): a forecast.
bool is_forecast(at::IntArrayRef input, at::IntArrayRef target);

}  // namespace braid::train
