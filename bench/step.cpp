// SPDX-License-Identifier: BSD-3-Clause
// One CPU training step of braid; bench/peer/step.py is the same in eager PyTorch, bench/step.sh
// runs both in turn.
//
//   bench_step gpt 8 $(date +%s.%N)     model (gpt, vit, tiny), steps, the time at which the
//   process was started
//
// Prints one JSON object: seconds and CPU seconds a step, time to the end of the first step, peak
// memory, losses.
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/resource.h>
#include <torch/version.h>

#include <chrono>
#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

#include "braid/core/rng.h"
#include "braid/nn/loss.h"
#include "braid/nn/options.h"
#include "braid/optim/optimizer.h"

using namespace braid;

namespace {

struct Case {
  std::unique_ptr<nn::Model> model;
  at::Tensor input, target;
  nn::Loss loss;
};

struct Timings {
  std::vector<double> seconds, cpu_seconds, losses;
  double first_step = 0;  // since the process was started
};

at::Tensor numbers(at::IntArrayRef shape, std::string_view name) {
  at::Tensor tensor = at::empty(shape, c10::kFloat);
  fill_normal(tensor, random_key(0, name));
  return tensor;
}

at::Tensor tokens(int64_t batch, const nn::GptOptions& options, std::string_view name) {
  at::Tensor tensor = at::empty({batch, options.sequence}, c10::kFloat);
  fill_uniform(tensor, random_key(0, name), 0, static_cast<double>(options.vocabulary));
  return tensor.to(c10::kLong).clamp_(0, options.vocabulary - 1);
}

Case vit_case() {
  const nn::VitOptions options = {.image = {120, 240}, .width = 192, .depth = 6, .heads = 8};
  const std::vector<int64_t> shape = {4, 20, 120, 240};
  return {nn::make_vit(options, {}), numbers(shape, "input"), numbers(shape, "target"),
          nn::Loss::relative_l2};
}

Case gpt_case(int64_t batch, const nn::GptOptions& options) {
  return {nn::make_gpt(options, {}), tokens(batch, options, "input"),
          tokens(batch, options, "target"), nn::Loss::cross_entropy};
}

Case make_case(const std::string& name) {
  if (name == "vit") return vit_case();
  if (name == "gpt")
    return gpt_case(8,
                    {.vocabulary = 8192, .sequence = 256, .layers = 6, .heads = 6, .width = 384});
  return gpt_case(2, {.vocabulary = 256, .sequence = 32, .layers = 2, .heads = 2, .width = 32});
}

rusage usage() {
  rusage now;
  getrusage(RUSAGE_SELF, &now);
  return now;
}

double cpu_seconds() {
  const auto of = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  const rusage now = usage();
  return of(now.ru_utime) + of(now.ru_stime);
}

template <class Clock>
double now() {
  return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

Timings run(Case& work, int steps, double started) {
  optim::Optimizer adam(work.model->params(), {.lr = 1e-3, .weight_decay = 0.1});
  Timings timings;
  for (int i = 0; i < steps; ++i) {
    const double begin = now<std::chrono::steady_clock>(), begin_cpu = cpu_seconds();
    at::Tensor loss = nn::loss(
        work.loss, work.model->forward(work.input, {.training = true, .step = i}), work.target);
    loss.backward();
    adam.step();
    adam.zero_grad();
    timings.losses.push_back(loss.item<double>());
    if (i == 0) timings.first_step = now<std::chrono::system_clock>() - started;
    timings.seconds.push_back(now<std::chrono::steady_clock>() - begin);
    timings.cpu_seconds.push_back(cpu_seconds() - begin_cpu);
  }
  return timings;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 4) {
    fmt::print(stderr, "usage: bench_step gpt|vit|tiny STEPS START_TIME\n");
    return 2;
  }
  at::set_num_threads(2);
  Case work = make_case(argv[1]);
  const Timings t = run(work, std::atoi(argv[2]), std::atof(argv[3]));
  fmt::print(
      R"({{"model": "{}", "parameters": {}, "seconds": [{}], "cpu_seconds": [{}], "first_step": {}, )"
      R"("peak_rss": {}, "losses": [{}], "version": "{}"}})"
      "\n",
      argv[1], work.model->parameters(), fmt::join(t.seconds, ", "), fmt::join(t.cpu_seconds, ", "),
      t.first_step, usage().ru_maxrss * 1024, fmt::join(t.losses, ", "), TORCH_VERSION);
  return 0;
} catch (const std::exception& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 1;
}
