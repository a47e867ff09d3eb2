// SPDX-License-Identifier: BSD-3-Clause
#include "braid/train/evaluate.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/stack.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <numeric>

#include "braid/nn/metrics.h"
#include "braid/train/options.h"

namespace braid::train {
namespace {

using Clock = std::chrono::steady_clock;

std::map<std::string, double> over(const std::map<std::string, at::Tensor>& sums, double weight) {
  std::map<std::string, double> means;
  for (const auto& [name, sum] : sums) means[name] = sum.item<double>() / weight;
  return means;
}

void by_channel(SampleMetrics& metrics, const Scoring& scoring, const std::string& name,
                const at::Tensor& values) {
  metrics.emplace_back(name, values.mean(1));
  for (int64_t channel = 0; channel < values.size(1); ++channel) {
    const auto at = static_cast<size_t>(channel);
    const std::string of =
        at < scoring.names.size() ? scoring.names[at] : "c" + std::to_string(channel);
    metrics.emplace_back(fmt::format("{}_{}", name, of), values.select(1, channel));
  }
}

void add_forecast(SampleMetrics& metrics, const Scoring& scoring, const at::Tensor& output,
                  const data::Batch& batch) {
  const at::Tensor& weights = scoring.row_weights;
  by_channel(metrics, scoring, "rmse", nn::weighted_rmse(output, batch.target, weights));
  by_channel(metrics, scoring, scoring.anomalies ? "acc" : "cosine",
             nn::weighted_cosine(output, batch.target, weights));
  if (batch.input.sizes() == batch.target.sizes())
    metrics.emplace_back("persistence",
                         nn::weighted_rmse(batch.input, batch.target, weights).mean(1));
}

void add_picture(SampleMetrics& metrics, const Scoring& scoring, const at::Tensor& output,
                 const data::Batch& batch, bool forecast) {
  metrics.emplace_back("psnr", nn::psnr(output, batch.target, scoring.psnr_range).mean(1));
  const bool small = std::min(output.size(2), output.size(3)) < nn::ssim_window;
  if (!forecast || !small) metrics.emplace_back("ssim", nn::ssim(output, batch.target).mean(1));
  metrics.emplace_back("rfne", nn::rfne(output, batch.target).mean(1));
}

}  // namespace

data::LoaderOptions evaluation_loader(const RunOptions& options, c10::Device device,
                                      int64_t ranks) {
  const TrainOptions& train = options.train;
  const int64_t share = (global_batch_of(train, ranks) + ranks - 1) / ranks;
  const int64_t micro = train.micro_batch.value_or(share);
  const int64_t trained = micro == 0 ? share : micro;  // auto that nobody asked memory for
  return {.global_batch = options.valid.batch.value_or(trained) * ranks,
          .shuffle = false,
          .workers = options.data.workers,
          .queue = options.data.queue,
          .seed = static_cast<uint64_t>(options.seed),
          .tail = data::Tail::keep,
          .device = device.is_cuda() ? device.index() : -1,
          .check_finite = options.data.check_finite};
}

SampleMetrics sample_metrics(const Scoring& scoring, const at::Tensor& output,
                             const data::Batch& batch) {
  if (scoring.loss == nn::Loss::cross_entropy)
    return {{"accuracy", nn::hits(output, batch.target)}};
  if (output.dim() != 4) return {};
  const bool forecast = is_forecast(batch.input.sizes(), batch.target.sizes());
  const bool relative = scoring.loss == nn::Loss::relative_l2;
  SampleMetrics metrics;
  if (forecast || relative) add_forecast(metrics, scoring, output, batch);
  if (!relative) add_picture(metrics, scoring, output, batch, forecast);
  return metrics;
}

bool is_perplexed(nn::Loss loss, const data::Batch& batch) {
  return loss == nn::Loss::cross_entropy && batch.target.dim() > 1;
}

void Evaluation::sum(std::map<std::string, at::Tensor>& sums, const std::string& name,
                     const at::Tensor& values, int64_t samples) const {
  const at::Tensor more = values.narrow(0, 0, samples).to(at::kDouble).sum();
  at::Tensor& total = sums[name];
  total = total.defined() ? total.add(more) : more;
}

void Evaluation::add(nn::Model& model, const data::Batch& batch) {
  const at::NoGradGuard no_grad;
  const at::Tensor output =
      forward_ ? forward_(batch.input) : nn::run(model, batch.input, {.training = false});
  if (!output.defined()) return;
  const at::Tensor losses = nn::loss_by_sample(
      scoring_.loss, output, model.local_target(batch.target), model.loss_share());
  sum(losses_, "loss", losses, batch.samples);
  for (const auto& [name, values] : sample_metrics(scoring_, model.whole_output(output), batch))
    sum(metrics_, name, values, batch.samples);
  samples_ += batch.samples;
  weight_ +=
      std::accumulate(batch.weights.begin(), batch.weights.begin() + batch.samples, int64_t{0});
  perplexed_ = is_perplexed(scoring_.loss, batch);
}

void Evaluation::sum_over(const comm::Group& ranks) {
  if (ranks.size() == 1 || losses_.empty()) return;  // its stage has no output, nor that of others
  std::vector<at::Tensor> sums;
  for (auto* part : {&losses_, &metrics_})
    for (const auto& [name, sum] : *part) sums.push_back(sum);
  const at::Tensor like = sums.front();
  sums.push_back(at::full_like(like, static_cast<double>(samples_)));
  sums.push_back(at::full_like(like, static_cast<double>(weight_)));
  const at::Tensor all = at::stack(sums);
  ranks.all_reduce(all).wait();
  int64_t next = 0;
  for (auto* part : {&losses_, &metrics_})
    for (auto& [name, sum] : *part) sum = all[next++];
  samples_ = std::llround(all[next].item<double>());
  weight_ = std::llround(all[next + 1].item<double>());
}

ValidRecord Evaluation::record() const {
  ValidRecord record;
  record.samples = samples_;
  record.metrics = over(metrics_, static_cast<double>(samples_));
  const auto mean_loss = over(losses_, static_cast<double>(weight_));
  record.loss = mean_loss.empty() ? std::nan("") : mean_loss.at("loss");
  if (perplexed_) record.metrics["perplexity"] = std::exp(record.loss);
  return record;
}

ValidRecord evaluate(nn::Model& model, data::Loader& loader, const Scoring& scoring,
                     const EvaluationShare& share) {
  const auto start = Clock::now();
  Evaluation evaluation(scoring, share.forward);
  while (auto batch = loader.next()) {
    if (share.tick) share.tick();
    evaluation.add(model, *batch);
  }
  evaluation.sum_over(share.ranks);
  ValidRecord record = evaluation.record();
  record.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  return record;
}

}  // namespace braid::train
