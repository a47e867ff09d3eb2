// SPDX-License-Identifier: BSD-3-Clause
// Training steps of a config on made-up data that lie on the device: the step of `braid train`, its
// optimizer and precision, without files. bench/peers/run starts it beside PyTorch.
//
//   bench_train bench/models.json:gpt --set train.precision=bf16 --steps 20
//   bench_train bench/models.json:gpt --curve 200 --batches 0 --save-weights w.safetensors
//   bench_train bench/models.json:gpt --trace trace.json --steps 3     # bench/peers/breakdown
//
// Prints one JSON object: seconds a step, rate, peaks of memory, time to the end of the first step
// since --started; or the losses of --curve.
#include <fmt/format.h>
#include <sys/resource.h>
#include <torch/version.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <exception>
#include <optional>
#include <string>
#include <vector>

#include "braid/checkpoint/safetensors.h"
#include "braid/core/accelerator.h"
#include "braid/core/cpu.h"
#include "braid/memory/instruments.h"
#include "braid/train/trainer.h"
#include "synthetic.h"
#include "train/profiler_costs.h"
#include "train/profiler_kineto.h"
#include "train/rig.h"

namespace {

using namespace braid;
using nlohmann::json;

struct BenchOptions {
  std::string spec;
  std::vector<std::string> sets;
  std::string device = "auto";
  int64_t steps = 20, warm_up = 5;
  int64_t batches = 1;       // 0: a new one each step
  int64_t curve = 0;         // steps whose losses are printed instead of times
  std::string save_weights;  // the initial ones, for the peer
  std::string trace;         // of Kineto, of `steps` steps
  double started = 0;        // seconds since 1970 at which the process was started
};

template <class Clock>
double now() {
  return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

class Bench {
 public:
  explicit Bench(const BenchOptions& wanted)
      : wanted_(wanted),
        run_(train::load_run(wanted.spec, wanted.sets)),
        device_(device()),
        rig_(run_, {.device = device_, .dry = false, .batch_ahead = false}) {
    if (device_.is_cpu() && run_.memory.keep_freed) keep_freed_memory();
    rig_.batch = {};  // its memory is for those that come
    for (int64_t i = 0; i < std::max<int64_t>(1, wanted.batches); ++i)
      batches_.push_back(bench::synthetic_batch(run_, i, device_));
  }

  json result() {
    if (!wanted_.save_weights.empty()) save_weights();
    json about = {{"who", "braid"},
                  {"model", wanted_.spec.substr(wanted_.spec.rfind(':') + 1)},
                  {"set", wanted_.sets},
                  {"device", device_name()},
                  {"precision", run_.train.precision},
                  {"parameters", rig_.model->parameters()},
                  {"version", TORCH_VERSION}};
    about.update(wanted_.curve > 0 ? losses() : wanted_.trace.empty() ? times() : traced());
    return about;
  }

 private:
  c10::Device device() const {
    train::TrainOptions options;
    options.device = wanted_.device;
    return train::device_of(options, 0);
  }
  Accelerator* gpu() const { return device_.is_cuda() ? accelerator() : nullptr; }
  std::string device_name() const { return gpu() != nullptr ? gpu()->name(0) : "cpu"; }
  void wait() const {
    if (gpu() != nullptr) gpu()->synchronize(0);
  }

  at::Tensor step(int64_t number) {
    nn::Pass pass = rig_.pass();
    pass.step = number;
    if (wanted_.batches == 0 && number > 0) bench::fill_batch(batches_[0], run_, number);
    const auto batch = static_cast<size_t>(wanted_.batches == 0 ? 0 : number % wanted_.batches);
    return rig_.parts.run(batches_[batch], pass, run_.optimizer.rule.lr * share_of_rate(number))
        .loss;
  }

  // Of a curve: up during the first fifth of the steps, then down.
  double share_of_rate(int64_t number) const {
    if (wanted_.curve == 0) return 1;
    const int64_t rise = std::max<int64_t>(1, wanted_.curve / 5);
    return std::min(static_cast<double>(number + 1) / static_cast<double>(rise),
                    static_cast<double>(wanted_.curve - number) /
                        static_cast<double>(std::max<int64_t>(1, wanted_.curve - rise)));
  }

  // Weights under the names and shapes that the model has them.
  void save_weights() const {
    checkpoint::Tensors tensors;
    for (const Param& param : rig_.model->params()) tensors[param.name] = param.tensor.detach();
    checkpoint::write_safetensors(wanted_.save_weights, tensors);
  }

  json losses() {
    std::vector<at::Tensor> each;
    for (int64_t i = 0; i < wanted_.curve; ++i) each.push_back(step(i).clone());
    std::vector<double> values;
    for (const at::Tensor& loss : each) values.push_back(loss.item<double>());
    return {{"losses", values}};
  }

  json warmed_up() {
    const double loss = step(0).item<double>();
    wait();
    const double first = now<std::chrono::system_clock>() - wanted_.started;
    for (int64_t i = 1; i < wanted_.warm_up; ++i) step(i);
    wait();
    json result = {{"first_loss", loss}};
    if (wanted_.started > 0) result["first_step"] = first;
    if (gpu() != nullptr) result["peak_allocated_warm_up"] = gpu()->peak_allocated(0);
    // A replay takes no memory: what a graph needs was seen when it was captured.
    if (gpu() != nullptr && rig_.parts.graph == nullptr) gpu()->reset_peak(0);
    return result;
  }

  json times() {
    json result = warmed_up();
    std::vector<double> seconds;
    for (int64_t i = 0; i < wanted_.steps; ++i) {
      const double begin = now<std::chrono::steady_clock>();
      step(wanted_.warm_up + i);
      wait();
      seconds.push_back(now<std::chrono::steady_clock>() - begin);
    }
    result["seconds"] = seconds;
    std::sort(seconds.begin(), seconds.end());
    const double median = seconds[seconds.size() / 2];
    const double units = static_cast<double>(units_of_step());
    result.update({{"ms", 1e3 * median}, {"units", units}, {"rate", units / median}});
    result.update(memory());
    result["graph"] = graph();
    return result;
  }

  json graph() const {  // whether the steps were replayed, or why not
    const train::StepGraph* graph = rig_.parts.graph.get();
    if (graph == nullptr) return {{"replays", 0}, {"why", rig_.parts.no_graph}};
    return {{"replays", graph->replays()}, {"why", graph->failure()}};
  }

  int64_t units_of_step() const {  // samples, or tokens
    const data::Batch& batch = batches_.front();
    return batch.input.is_floating_point() ? batch.samples : batch.input.numel();
  }

  json memory() const {
    rusage usage = {};
    getrusage(RUSAGE_SELF, &usage);
    json result = {{"peak_rss", usage.ru_maxrss * 1024}};
    if (gpu() == nullptr) return result;
    result["peak_allocated"] = gpu()->peak_allocated(0);
    result["peak_requested"] = gpu()->peak_requested(0);
    result["peak_reserved"] = gpu()->peak_reserved(0);
    return result;
  }

  // What the operators of a step compute and move, then where the time of some steps goes.
  json traced() {
    rig_.parts.eager = true;  // kernels of a replay belong to no operator
    json result = warmed_up();
    memory::OperatorLog log;
    {
      const memory::Instruments counting({.log = &log});
      step(wanted_.warm_up);
    }
    for (const report::OperatorCost& cost : train::costs_of(log).costs)
      result["costs"][cost.name] = {{"flops", cost.flops}, {"bytes", cost.bytes}};
    train::Kineto kineto(device_, /*with_memory=*/false);
    kineto.start();
    for (int64_t i = 0; i < wanted_.steps; ++i) step(wanted_.warm_up + i);
    kineto.stop(wanted_.trace);
    result.update({{"trace", wanted_.trace}, {"steps", wanted_.steps}});
    return result;
  }

  BenchOptions wanted_;
  train::RunOptions run_;
  c10::Device device_;
  train::Rig rig_;
  std::vector<data::Batch> batches_;
};

}  // namespace

int main(int count, char** words) {
  BenchOptions wanted;
  CLI::App app("training steps on made-up data");
  app.add_option("config", wanted.spec, "FILE:NAME")->required();
  app.add_option("--set", wanted.sets, "path=value, as in braid train");
  app.add_option("--device", wanted.device, "auto, cpu or cuda");
  app.add_option("--steps", wanted.steps, "that are timed or traced");
  app.add_option("--warm-up", wanted.warm_up, "steps before");
  app.add_option("--batches", wanted.batches,
                 "that the steps take in turn; 0: a new one each step");
  app.add_option("--curve", wanted.curve, "print the losses of so many steps");
  app.add_option("--save-weights", wanted.save_weights, "initial weights, as safetensors");
  app.add_option("--trace", wanted.trace, "write a trace of the steps");
  app.add_option("--started", wanted.started, "when this process was started, seconds since 1970");
  CLI11_PARSE(app, count, words);
  try {
    fmt::print("{}\n", Bench(wanted).result().dump());
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_train: {}\n", error.what());
    return 1;
  }
}
