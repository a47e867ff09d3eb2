// SPDX-License-Identifier: BSD-3-Clause
// What the instruments cost: the ledger and the operator log on real CPU steps (on and off in
// turn), and the dry step of the largest config.
//
//   build/bin/bench_instruments [rounds] [cuda]      one JSON object on stdout
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <vector>

#include "braid/core/accelerator.h"
#include "braid/core/cpu.h"
#include "braid/memory/instruments.h"
#include "braid/memory/usage.h"
#include "braid/train/measure.h"
#include "braid/train/step.h"

namespace {

using namespace braid;
using Clock = std::chrono::steady_clock;

train::RunOptions bench_run(nn::ModelName model, c10::Device device) {
  train::RunOptions run;
  run.model.name = model;
  run.train.loss = model == nn::ModelName::gpt ? nn::Loss::cross_entropy : nn::Loss::relative_l2;
  run.train.clip = 1;
  if (device.is_cuda()) {  // the reference sizes
    run.data.sequence = 1024;
    run.train.global_batch = 16;
    run.train.precision = "bf16";
    return run;
  }
  run.model.vit = {.image = {64, 128},
                   .patch = 8,
                   .channels_in = 20,
                   .channels_out = 20,
                   .width = 192,
                   .depth = 6,
                   .heads = 6};
  run.model.gpt = {.vocabulary = 8192, .sequence = 256, .layers = 6, .heads = 6, .width = 384};
  run.data.sequence = 256;
  run.train.global_batch = 16;
  return run;
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

template <class Body>
double seconds_of(const Body& body) {
  const auto start = Clock::now();
  body();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double cpu_now() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// On the CPU the time of this thread, which does all the work: other programs on the machine do not
// count. On a GPU the clock, until the device is done.
template <class Body>
double step_seconds_of(const Body& body, c10::Device device) {
  const double start = cpu_now();
  if (device.is_cpu()) {
    body();
    return cpu_now() - start;
  }
  return seconds_of([&] {
    body();
    accelerator()->synchronize(device.index());
  });
}

// Steps with and without instruments alternate, so that a busy machine slows all.
std::string overhead(nn::ModelName name, const char* text, int rounds, c10::Device device) {
  const train::RunOptions run = bench_run(name, device);
  const auto model = nn::make_model(
      run.model, {.seed = 1, .precision = train::policy_of(run.train), .device = device});
  optim::Optimizer optimizer(model->params(), run.optimizer.rule);
  train::Step step(*model, optimizer, {.loss = run.train.loss, .clip = 1});
  const data::Batch batch = train::empty_batch(run, *run.train.global_batch, device);
  memory::Ledger ledger;
  memory::OperatorLog log;
  const auto timed = [&](memory::InstrumentOptions options) {
    const double seconds = step_seconds_of(
        [&] {
          const memory::Instruments watching(options);
          step.run(batch, {.training = true}, 1e-4);
        },
        device);
    ledger.begin();
    log.clear();
    return seconds;
  };
  const auto plain = [&] {
    return step_seconds_of([&] { step.run(batch, {.training = true}, 1e-4); }, device);
  };
  plain();
  std::vector<double> off, with_ledger, with_log;
  for (int i = 0; i < rounds; ++i) {
    off.push_back(plain());
    with_ledger.push_back(timed({.ledger = &ledger}));
    with_log.push_back(timed({.log = &log}));
  }
  const auto best = [](const std::vector<double>& all) {
    return *std::min_element(all.begin(), all.end());
  };
  return fmt::format(
      R"("{}": {{"step_seconds": {:.5f}, "ledger_ratio_of_medians": {:.4f}, "ledger_ratio_of_best": {:.4f}, "log_ratio_of_medians": {:.4f}, "log_ratio_of_best": {:.4f}}})",
      text, median(off), median(with_ledger) / median(off), best(with_ledger) / best(off),
      median(with_log) / median(off), best(with_log) / best(off));
}

std::string largest() {
  train::RunOptions run;
  run.model.name = nn::ModelName::llama;
  run.model.llama = {.layers = 126, .heads = 128, .kv_heads = 8, .width = 16384, .hidden = 53248};
  run.data.sequence = 8192;
  run.train.loss = nn::Loss::cross_entropy;
  run.train.precision = "bf16_params";
  run.train.global_batch = 1;
  double pass = 0, whole = 0;
  int64_t operators = 0;
  {
    memory::Ledger ledger;
    pass = seconds_of([&] {
      const memory::Instruments on({.ledger = &ledger, .dry = true});
      const c10::Device gpu(c10::kCUDA, 0);
      const auto model =
          nn::make_model(run.model, {.precision = precision("bf16_params"), .device = gpu});
      const data::Batch batch = train::empty_batch(run, 1, gpu);
      nn::loss(run.train.loss, model->forward(batch.input, {.training = true}), batch.target)
          .backward();
    });
    whole = seconds_of([&] {
      operators = static_cast<int64_t>(
          train::measure(run, {.device = {c10::kCUDA, 0}}).log.operators().size());
    });
  }
  return fmt::format(
      R"("llama_405b_dry": {{"forward_backward_seconds": {:.3f}, "backward_two_steps_evaluation_seconds": {:.3f}, "operators_a_step": {}, "peak_rss_mib": {}}})",
      pass, whole, operators, memory::peak_rss() >> 20);
}

}  // namespace

int main(int count, char** arguments) {
  avoid_broken_amx();
  const int rounds = count > 1 ? std::atoi(arguments[1]) : 15;
  const bool on_gpu = count > 2 && accelerator() != nullptr;
  const c10::Device device = on_gpu ? c10::Device(c10::kCUDA, 0) : c10::Device(c10::kCPU);
  at::set_num_threads(1);
  const std::string dry = largest();  // first: the peak RSS is of the whole process
  fmt::print(R"({{"benchmark": "instruments", "rounds": {}, "device": "{}", {}, {}, {}}})", rounds,
             on_gpu ? accelerator()->name(0) : "cpu, 1 thread", dry,
             overhead(nn::ModelName::vit, "vit_step", rounds, device),
             overhead(nn::ModelName::gpt, "gpt_step", rounds, device));
  fmt::print("\n");
}
