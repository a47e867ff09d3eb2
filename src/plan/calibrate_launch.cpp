// SPDX-License-Identifier: BSD-3-Clause
#include "plan/calibrate_launch.h"

#include <algorithm>
#include <chrono>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "braid/core/accelerator.h"
#include "braid/train/measure.h"
#include "plan/cost_sized.h"

namespace braid::plan {
namespace {

train::RunOptions tiny_run(nn::ModelName model, const std::string& precision) {
  train::RunOptions run;
  run.model.name = model;
  run.model.mlp = {.inputs = 16, .hidden = {32, 32, 32}, .outputs = 4};
  run.model.vit = {.image = {32, 32}, .patch = 8, .width = 64, .depth = 4, .heads = 4};
  run.model.swinir = {.image = {16, 16}, .width = 24, .depths = {2, 2}, .heads = {2, 2}};
  run.model.gpt = {.vocabulary = 256, .sequence = 64, .layers = 4, .heads = 4, .width = 64};
  run.model.llama = {.vocabulary = 256,
                     .sequence = 64,
                     .layers = 4,
                     .heads = 4,
                     .kv_heads = 2,
                     .width = 64,
                     .hidden = 128};
  run.data.sequence = 64;
  run.train.loss = model == nn::ModelName::vit      ? nn::Loss::relative_l2
                   : model == nn::ModelName::swinir ? nn::Loss::l1
                                                    : nn::Loss::cross_entropy;
  run.train.precision = precision;
  run.train.global_batch = 2;
  run.train.clip = 1;
  run.train.graph = train::UseGraph::off;  // the host is what is measured
  return run;
}

LaunchRow launch_row(const train::RunOptions& run, c10::Device device, int steps) {
  LaunchRow row;
  const memory::OperatorLog log = train::measure(run, {.device = device}).log;
  for (const memory::Operator& op : log.operators()) {
    const Sized sized = sized_of(op);
    if (sized.at.empty())
      row.views += 1;
    else
      row.kernels += 1 + 0.3 * (sized.kernels - 1);
  }
  std::vector<double> times = train::time_steps(run, device, steps);
  std::nth_element(times.begin(), times.begin() + steps / 2, times.end());
  row.seconds = times[static_cast<size_t>(steps / 2)];
  return row;
}

}  // namespace

LaunchCosts fit_launch(const std::vector<LaunchRow>& rows) {
  double kk = 0, kv = 0, vv = 0, ks = 0, vs = 0;  // rows weighted so that each counts alike
  for (const LaunchRow& row : rows) {
    const double k = row.kernels / row.seconds, v = row.views / row.seconds;
    kk += k * k;
    kv += k * v;
    vv += v * v;
    ks += k;
    vs += v;
  }
  if (kk <= 0) return {};
  const double determinant = kk * vv - kv * kv;
  LaunchCosts costs;
  if (determinant > 1e-9 * kk * vv)
    costs = {(ks * vv - vs * kv) / determinant, (vs * kk - ks * kv) / determinant};
  if (!(costs.kernel > 0) || !(costs.view >= 0) || costs.view > costs.kernel) {
    // Rows are too alike to tell the two apart: a view takes a tenth of the way.
    constexpr double part = 0.1;
    const double both = kk + 2 * part * kv + part * part * vv;
    costs.kernel = (ks + part * vs) / both;
    costs.view = part * costs.kernel;
  }
  return costs;
}

LaunchCosts measure_launch(c10::Device device, bool small) {
  using nn::ModelName;
  const int steps = small ? 2 : 15;
  std::vector<LaunchRow> rows;
  for (const ModelName model :
       {ModelName::gpt, ModelName::llama, ModelName::vit, ModelName::swinir})
    for (const char* precision : {"fp32", "bf16"})
      rows.push_back(launch_row(tiny_run(model, precision), device, steps));
  return fit_launch(rows);
}

double measure_copies(c10::Device device) {
  if (!device.is_cuda()) return 0;
  constexpr int64_t bytes = 256 << 20;
  Accelerator& gpu = *accelerator();
  const at::Tensor host = gpu.pinned_like(at::empty({bytes}, c10::kByte));
  const at::Tensor there = at::zeros({bytes}, at::TensorOptions().device(device).dtype(c10::kByte));
  const auto seconds = [&](const at::Tensor& to, const at::Tensor& from) {
    double best = 1;
    for (int i = 0; i < 4; ++i) {
      gpu.synchronize(device.index());
      const auto start = std::chrono::steady_clock::now();
      gpu.copy_beside(to, from)->host_wait();
      best = std::min(
          best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
    return best;
  };
  return static_cast<double>(bytes) / std::max(seconds(host, there), seconds(there, host));
}

}  // namespace braid::plan
