// SPDX-License-Identifier: BSD-3-Clause
// One rank of a GPT of about 50 M parameters that trains on two processes over Gloo;
// bench/peers/ddp.py is the same with PyTorch's DDP and FSDP2, bench/ddp.sh runs them in turn.
//
//   bench_ddp ddp|zero3 RANK WORLD PORT STEPS
//
// Rank 0 prints one JSON object: seconds and CPU seconds a step, peak memory of every rank, losses.
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/resource.h>
#include <torch/version.h>

#include <chrono>
#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

#include "braid/comm/store.h"
#include "braid/core/rng.h"
#include "braid/nn/loss.h"
#include "braid/nn/options.h"
#include "braid/optim/optimizer.h"
#include "braid/parallel/replicate.h"
#include "braid/parallel/zero.h"

using namespace braid;

namespace {

constexpr int64_t batch = 4;  // of each rank
const nn::GptOptions gpt = {
    .vocabulary = 24576, .sequence = 128, .layers = 12, .heads = 8, .width = 512};

struct Timings {
  std::vector<double> seconds, cpu_seconds, losses;
};

at::Tensor tokens(int rank, std::string_view name) {
  at::Tensor tensor = at::empty({batch, gpt.sequence}, c10::kFloat);
  fill_uniform(tensor, random_key(static_cast<uint64_t>(rank), name), 0,
               static_cast<double>(gpt.vocabulary));
  return tensor.to(c10::kLong).clamp_(0, gpt.vocabulary - 1);
}

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

rusage usage() {
  rusage now;
  getrusage(RUSAGE_SELF, &now);
  return now;
}

double cpu_seconds() {  // of all threads: also those that move the messages
  const auto of = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  const rusage now = usage();
  return of(now.ru_utime) + of(now.ru_stime);
}

int64_t peak_rss() { return usage().ru_maxrss * 1024; }

comm::Group open_world(int rank, int size, int port) {
  const comm::Store store = comm::Store::tcp({.port = port, .server = rank == 0});
  return comm::Group(comm::gloo(store, rank, size));
}

Timings train(nn::Model& model, parallel::Sync& sync, BlockRunner* blocks, const comm::Group& world,
              int steps) {
  optim::Optimizer adam(sync.params(), {.lr = 1e-3, .weight_decay = 0.1});
  const at::Tensor input = tokens(world.rank(), "input"), target = tokens(world.rank(), "target");
  Timings timings;
  for (int i = 0; i < steps; ++i) {
    const double begin = now(), begin_cpu = cpu_seconds();
    const nn::Pass pass = {.training = true, .step = i, .blocks = blocks};
    at::Tensor loss = nn::loss(nn::Loss::cross_entropy, nn::run(model, input, pass), target);
    loss.div(world.size()).backward();  // as the trainer does: gradients need no division then
    sync.finish();
    adam.step();
    sync.publish();
    adam.zero_grad();
    timings.losses.push_back(loss.item<double>());
    timings.seconds.push_back(now() - begin);
    timings.cpu_seconds.push_back(cpu_seconds() - begin_cpu);
  }
  return timings;
}

Timings run(const std::string& mode, const comm::Group& world, int steps, int64_t& parameters) {
  const bool sharded = mode == "zero3";
  const std::unique_ptr<nn::Model> model = nn::make_gpt(gpt, {.dry_params = sharded});
  parameters = model->parameters();
  if (!sharded) {
    parallel::Replicate replicas(model->params(), world, {.average = false});
    return train(*model, replicas, nullptr, world, steps);
  }
  const auto initial = [&](const std::string& param, const at::Tensor& values, int64_t first) {
    model->initial(param, values, first);
  };
  parallel::Zero zero(parallel::units_of(model->params(), model->blocks()), world, {},
                      {.stage = 3, .average = false, .initial = initial});
  return train(*model, zero, &zero, world, steps);
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 6) {
    fmt::print(stderr, "usage: bench_ddp ddp|zero3 RANK WORLD PORT STEPS\n");
    return 2;
  }
  at::set_num_threads(1);
  const comm::Group world = open_world(std::atoi(argv[2]), std::atoi(argv[3]), std::atoi(argv[4]));
  int64_t parameters = 0;
  const Timings t = run(argv[1], world, std::atoi(argv[5]), parameters);
  const at::Tensor peaks = at::zeros({world.size()}, c10::kLong);
  world.all_gather(peaks, at::full({1}, peak_rss(), c10::kLong)).wait();
  if (world.rank() != 0) return 0;
  const int64_t* first = peaks.const_data_ptr<int64_t>();
  fmt::print(R"({{"mode": "{}", "parameters": {}, "samples": {}, "seconds": [{}], )"
             R"("cpu_seconds": [{}], "peak_rss": [{}], "losses": [{}], "version": "{}"}})"
             "\n",
             argv[1], parameters, batch * world.size(), fmt::join(t.seconds, ", "),
             fmt::join(t.cpu_seconds, ", "), fmt::join(first, first + peaks.numel(), ", "),
             fmt::join(t.losses, ", "), TORCH_VERSION);
  return 0;
} catch (const std::exception& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 1;
}
