// SPDX-License-Identifier: BSD-3-Clause
#include "braid/train/predict.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <fmt/format.h>

#include "braid/core/error.h"
#include "braid/data/statistics.h"

namespace braid::train {
namespace {

at::Tensor channel_values(const data::DataOptions& options, const data::StatisticFile& which,
                          int64_t channels) {
  const std::vector<float> numbers = data::read_statistic(options, which);
  const at::Tensor values = at::tensor(numbers);
  if (values.numel() < channels)
    throw DataError(
        {.what = fmt::format("{} holds {} values, the model has {} channels", options.*which.file,
                             values.numel(), channels),
         .why = "each channel has a mean and a standard deviation",
         .fix =
             "give the files that the model was trained with: --set data.means=... data.stds=..."});
  return values.narrow(0, 0, channels).reshape({channels, 1, 1});
}

}  // namespace

Normalisation normalisation_of(const data::DataOptions& options, int64_t channels) {
  if (options.means.empty() || options.stds.empty()) return {};
  const auto values = [&](std::string data::DataOptions::* file) {
    for (const data::StatisticFile& which : data::statistic_files())
      if (which.file == file) return channel_values(options, which, channels);
    return at::Tensor();
  };
  return {.means = values(&data::DataOptions::means), .stds = values(&data::DataOptions::stds)};
}

at::Tensor forecast(nn::Model& model, const Normalisation& normalisation, const at::Tensor& now,
                    int64_t steps) {
  const at::NoGradGuard no_grad;
  const c10::Device device = model.params().front().tensor.device();
  const bool scaled = normalisation.means.defined();
  at::Tensor state = scaled ? now.sub(normalisation.means).div(normalisation.stds) : now;
  state = state.unsqueeze(0).to(device);
  std::vector<at::Tensor> states;
  for (int64_t step = 0; step < steps; ++step) {
    state = model.forward(state, {.training = false});
    states.push_back(state.squeeze(0).to(at::kCPU, at::kFloat));
  }
  const at::Tensor all = at::stack(states);
  return scaled ? all.mul(normalisation.stds).add(normalisation.means) : all;
}

at::Tensor super_resolve(nn::Model& model, const at::Tensor& coarse) {
  const at::NoGradGuard no_grad;
  const c10::Device device = model.params().front().tensor.device();
  return model.forward(coarse.unsqueeze(0).to(device), {.training = false})
      .squeeze(0)
      .to(at::kCPU, at::kFloat);
}

}  // namespace braid::train
