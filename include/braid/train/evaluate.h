// SPDX-License-Identifier: BSD-3-Clause
// Loss and metrics of a data set, each sample once; padding weighs nothing.
//
//   data::Loader loader(source, train::evaluation_loader(options, device));
//   ValidRecord record = train::evaluate(*model, loader, scoring);
#pragma once
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "braid/comm/group.h"
#include "braid/core/record.h"
#include "braid/data/loader.h"
#include "braid/nn/model.h"
#include "braid/train/scoring.h"

namespace braid::train {

struct RunOptions;

// Each sample once and in order, in batches of valid.batch a rank, else as large as a training
// step's.
data::LoaderOptions evaluation_loader(const RunOptions& options, c10::Device device,
                                      int64_t ranks = 1);

// Values per sample: "rmse_u10" -> [batch]. Which metrics there are follows from data and loss:
//   fields, input and target on one grid (forecasts), and relative L2 of any fields
//     rmse and acc by channel, weighted by the rows; cosine instead of acc where the fields are no
//     anomalies; persistence (rmse of output = input) where input and target have one shape
//   fields with L1 or MSE     psnr, ssim, rfne; no ssim of a forecast smaller than its window
//   cross-entropy             accuracy; the evaluator adds perplexity for sequences
using SampleMetrics = std::vector<std::pair<std::string, at::Tensor>>;
SampleMetrics sample_metrics(const Scoring& scoring, const at::Tensor& output,
                             const data::Batch& batch);

bool is_perplexed(nn::Loss loss, const data::Batch& batch);  // a sequence of targets a sample

// How the model is run on an input; gives an undefined output where another rank has it.
using Forward = std::function<at::Tensor(const at::Tensor& input)>;

// Sums of losses and metrics over batches; nothing is read on the host before record().
class Evaluation {
 public:
  explicit Evaluation(Scoring scoring, Forward forward = {})
      : scoring_(std::move(scoring)), forward_(std::move(forward)) {}
  void add(nn::Model& model, const data::Batch& batch);
  void sum_over(const comm::Group& ranks);  // what each of them has added
  ValidRecord record() const;               // without seconds

 private:
  void sum(std::map<std::string, at::Tensor>& sums, const std::string& name,
           const at::Tensor& values, int64_t samples) const;

  Scoring scoring_;
  Forward forward_;                                     // empty: nn::run
  std::map<std::string, at::Tensor> losses_, metrics_;  // scalars in double, on the device
  int64_t samples_ = 0, weight_ = 0;
  bool perplexed_ = false;
};

// Ranks that evaluate together: each has a loader of its share.
struct EvaluationShare {
  comm::Group ranks = {};
  Forward forward = {};             // empty: nn::run
  std::function<void()> tick = {};  // called before each batch: the evaluation is alive
};
ValidRecord evaluate(nn::Model& model, data::Loader& loader, const Scoring& scoring,
                     const EvaluationShare& share = {});

}  // namespace braid::train
