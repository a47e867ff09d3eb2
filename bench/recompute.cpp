// SPDX-License-Identifier: BSD-3-Clause
// Time against memory: a sweep of byte budgets for recompute, each with the plan that dry runs
// chose, its predicted peak, the peak and the time of real steps.
//
//   build/bin/bench_recompute [points] [cuda]      one JSON object on stdout
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "braid/core/accelerator.h"
#include "braid/core/cpu.h"
#include "braid/train/fit.h"
#include "braid/train/measure.h"

namespace {

using namespace braid;
using memory::Again;

train::RunOptions gpt_run(bool on_gpu) {
  train::RunOptions run;
  run.model.name = nn::ModelName::gpt;
  run.train.loss = nn::Loss::cross_entropy;
  run.train.device = on_gpu ? "cuda" : "cpu";
  run.train.precision = on_gpu ? "bf16" : "fp32";
  if (!on_gpu)
    run.model.gpt = {.vocabulary = 1024, .sequence = 256, .layers = 8, .heads = 8, .width = 256};
  run.data.sequence = on_gpu ? 1024 : 256;
  run.train.global_batch = on_gpu ? 16 : 4;
  return run;
}

train::RunOptions swinir_run(bool on_gpu) {
  train::RunOptions run;
  run.model.name = nn::ModelName::swinir;
  run.train.loss = nn::Loss::l1;
  run.train.device = on_gpu ? "cuda" : "cpu";
  if (!on_gpu) {
    run.model.swinir.image = {32, 32};
    run.model.swinir.width = 60;
    run.model.swinir.depths = {4, 4};
    run.model.swinir.heads = {6, 6};
  }
  run.train.global_batch = 2;
  return run;
}

// Best of some: other programs on the machine do not count.
double step_seconds(const train::RunOptions& run, c10::Device device, int steps) {
  const std::vector<double> seconds = train::time_steps(run, device, steps);
  return *std::min_element(seconds.begin(), seconds.end());
}

std::string point(const train::RunOptions& run, const train::MeasureOptions& how, int64_t budget,
                  double flops) {
  const train::RecomputePlan plan = train::recompute_plan(run, how, budget);
  train::RunOptions planned = run;
  planned.memory.recompute = Again::budget;
  planned.memory.plan = plan.blocks;
  train::MeasureOptions real = how;
  real.dry = false;
  const int64_t counted = train::measure(planned, real).second_step.peak.bytes;
  const double again = train::predict_peak(planned, how).recomputed_flops;
  return fmt::format(
      R"({{"budget": {}, "predicted_peak": {}, "counted_peak": {}, "blocks": {}, "recomputed_flops_percent": {:.2f}, "step_seconds": {:.5f}}})",
      budget, plan.peak, counted, plan.blocks.size(), 100 * again / flops,
      step_seconds(planned, how.device, how.device.is_cuda() ? 10 : 5));
}

std::string sweep(const char* name, const train::RunOptions& run, c10::Device device, int points) {
  const train::MeasureOptions how{.device = device};
  train::RunOptions all = run;
  all.memory.recompute = Again::blocks;
  const int64_t least = train::predict_peak(all, how).bytes;
  const int64_t most = train::predict_peak(run, how).bytes;
  const double flops = train::measure(run, how).log.flops();
  std::string rows;
  for (int i = 0; i <= points; ++i)
    rows += (i == 0 ? "" : ", ") + point(run, how, least + (most - least) * i / points, flops);
  return fmt::format(R"("{}": [{}])", name, rows);
}

}  // namespace

int main(int count, char** arguments) {
  avoid_broken_amx();
  const int points = count > 1 ? std::atoi(arguments[1]) : 6;
  const bool on_gpu = count > 2 && accelerator() != nullptr;
  const c10::Device device = on_gpu ? c10::Device(c10::kCUDA, 0) : c10::Device(c10::kCPU);
  if (!on_gpu) at::set_num_threads(1);
  fmt::print(R"({{"benchmark": "recompute", "device": "{}", {}, {}}})",
             on_gpu ? accelerator()->name(0) : "cpu, 1 thread",
             sweep("gpt", gpt_run(on_gpu), device, points),
             sweep("swinir", swinir_run(on_gpu), device, points));
  fmt::print("\n");
}
