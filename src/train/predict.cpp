// SPDX-License-Identifier: BSD-3-Clause
#include "braid/train/predict.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/stack.h>
#include <fmt/format.h>

#include "braid/core/error.h"
#include "braid/data/npy.h"

namespace braid::train {
namespace {

at::Tensor channel_values(const std::string& file, int64_t channels) {
  const at::Tensor values = data::read_npy(file).to(at::kFloat).flatten();
  if (values.numel() < channels)
    throw DataError(
        {.what = fmt::format("{} holds {} values, the model has {} channels", file, values.numel(),
                             channels),
         .why = "each channel has a mean and a standard deviation",
         .fix =
             "give the files that the model was trained with: --set data.means=... data.stds=..."});
  return values.narrow(0, 0, channels).reshape({channels, 1, 1});
}

}  // namespace

Normalisation normalisation_of(const data::DataOptions& options, int64_t channels) {
  if (options.means.empty() || options.stds.empty()) return {};
  return {.means = channel_values(options.means, channels),
          .stds = channel_values(options.stds, channels)};
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
