// SPDX-License-Identifier: BSD-3-Clause
// Loss and metrics of a data set, each sample once; padding weighs nothing.
//
//   ValidRecord record = train::evaluate(*model, loader, nn::Loss::relative_l2);
#pragma once
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "braid/core/record.h"
#include "braid/data/loader.h"
#include "braid/nn/loss.h"
#include "braid/nn/model.h"

namespace braid::train {

// Values a sample: "rmse_u10" -> [batch]. Which metrics follows from the loss and the shapes:
//   relative L2 of fields     rmse, acc by channel (latitude-weighted), persistence (rmse of output
//   = input) L1 or MSE of fields       psnr, ssim, rfne cross-entropy             accuracy; the
//   evaluator adds perplexity for sequences
using SampleMetrics = std::vector<std::pair<std::string, at::Tensor>>;
SampleMetrics sample_metrics(nn::Loss loss, const at::Tensor& output, const data::Batch& batch);

bool is_perplexed(nn::Loss loss, const data::Batch& batch);  // a sequence of targets a sample

ValidRecord evaluate(nn::Model& model, data::Loader& loader, nn::Loss loss);

// u10, v10, t2m, ... for the first twenty channels of the weather files, c20 and so on beyond.
std::string channel_name(int64_t channel);

}  // namespace braid::train
