// SPDX-License-Identifier: BSD-3-Clause
#include "braid/train/evaluate.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/stack.h>

#include <array>
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

void by_channel(SampleMetrics& metrics, const std::string& name, const at::Tensor& values) {
  metrics.emplace_back(name, values.mean(1));
  for (int64_t channel = 0; channel < values.size(1); ++channel)
    metrics.emplace_back(name + "_" + channel_name(channel), values.select(1, channel));
}

SampleMetrics forecast_metrics(const at::Tensor& output, const data::Batch& batch) {
  SampleMetrics metrics;
  by_channel(metrics, "rmse", nn::weighted_rmse(output, batch.target));
  by_channel(metrics, "acc", nn::weighted_acc(output, batch.target));
  if (batch.input.sizes() == batch.target.sizes())
    metrics.emplace_back("persistence", nn::weighted_rmse(batch.input, batch.target).mean(1));
  return metrics;
}

SampleMetrics picture_metrics(const at::Tensor& output, const data::Batch& batch) {
  return {{"psnr", nn::psnr(output, batch.target).mean(1)},
          {"ssim", nn::ssim(output, batch.target).mean(1)},
          {"rfne", nn::rfne(output, batch.target).mean(1)}};
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

std::string channel_name(int64_t channel) {
  static constexpr std::array<const char*, 20> names = {
      "u10",  "v10",  "t2m",  "sp",   "msl",  "t850", "u1000", "v1000", "z1000", "u850",
      "v850", "z850", "u500", "v500", "z500", "t500", "z50",   "r500",  "r850",  "tcwv"};
  return channel < static_cast<int64_t>(names.size()) ? names[channel]
                                                      : "c" + std::to_string(channel);
}

SampleMetrics sample_metrics(nn::Loss loss, const at::Tensor& output, const data::Batch& batch) {
  if (loss == nn::Loss::cross_entropy) return {{"accuracy", nn::hits(output, batch.target)}};
  if (output.dim() != 4) return {};
  return loss == nn::Loss::relative_l2 ? forecast_metrics(output, batch)
                                       : picture_metrics(output, batch);
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
  const at::Tensor losses =
      nn::loss_by_sample(loss_, output, model.local_target(batch.target), model.loss_share());
  sum(losses_, "loss", losses, batch.samples);
  for (const auto& [name, values] : sample_metrics(loss_, model.whole_output(output), batch))
    sum(metrics_, name, values, batch.samples);
  samples_ += batch.samples;
  weight_ +=
      std::accumulate(batch.weights.begin(), batch.weights.begin() + batch.samples, int64_t{0});
  perplexed_ = is_perplexed(loss_, batch);
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

ValidRecord evaluate(nn::Model& model, data::Loader& loader, nn::Loss loss,
                     const EvaluationShare& share) {
  const auto start = Clock::now();
  Evaluation evaluation(loss, share.forward);
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
