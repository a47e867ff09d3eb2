// SPDX-License-Identifier: BSD-3-Clause
// What the operators of braid reach at the shapes of bench/models.json, forward and backward, and
// what ATen's reach.
//
//   bench_kernels [part of a name] [--steps 20] [--shrink 64]     one JSON object a line
//
// Without a GPU use --shrink. `backward` is forward and backward together less forward.
#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <exception>

#include "braid/core/accelerator.h"
#include "braid/core/rng.h"
#include "kernel_case.h"

namespace braid::bench {

std::vector<ModelShape> model_shapes(const KernelPlace& place) {
  std::vector<ModelShape> all = {
      {"vit_d384", 16, 4050, 384, 8, 1536, 8},
      {"vit_d1536", 16, 4050, 1536, 8, 6144, 8},
      {"swinir", 16, 4096, 180, 6, 360, 6},
      {"gpt", 64, 1024, 768, 12, 3072, 12, 50304, true},
      {"llama_8l", 2, 8192, 4096, 32, 14336, 8, 128256, true},
  };
  for (ModelShape& shape : all) {
    shape.batch = std::max<int64_t>(1, shape.batch / place.shrink);
    if (place.shrink > 1) shape.tokens = std::min<int64_t>(shape.tokens, 64);
    shape.vocabulary /= place.shrink;
  }
  return all;
}

at::Tensor random_tensor(at::IntArrayRef sizes, c10::ScalarType dtype, c10::Device device) {
  at::Tensor block = at::empty({1 << 16}, c10::kFloat);  // repeated: large ones take long
  fill_normal(block, random_key(0, "bench"));
  at::Tensor tensor = at::empty(sizes, at::TensorOptions(dtype).device(device));
  const at::Tensor flat = tensor.view({-1}), values = block.to(device, dtype);
  for (int64_t i = 0; i < flat.numel(); i += block.numel()) {
    const int64_t count = std::min(block.numel(), flat.numel() - i);
    flat.narrow(0, i, count).copy_(values.narrow(0, 0, count));
  }
  return tensor;
}

at::Tensor leaf(at::IntArrayRef sizes, c10::ScalarType dtype, c10::Device device) {
  return random_tensor(sizes, dtype, device).requires_grad_();
}

double bytes_of(const std::vector<at::Tensor>& tensors) {
  double bytes = 0;
  for (const at::Tensor& tensor : tensors) bytes += static_cast<double>(tensor.nbytes());
  return bytes;
}

namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

struct Timer {
  c10::Device device;
  int64_t steps;

  void wait() const {
    if (device.is_cuda()) accelerator()->synchronize(device.index());
  }
  // Seconds a call, the best of three times `steps` calls.
  template <class Call>
  double seconds(const Call& call) const {
    for (int i = 0; i < 3; ++i) call();
    double best = 1e30;
    for (int round = 0; round < 3; ++round) {
      wait();
      const auto begin = Clock::now();
      for (int64_t i = 0; i < steps; ++i) call();
      wait();
      best = std::min(best, std::chrono::duration<double>(Clock::now() - begin).count());
    }
    return best / static_cast<double>(steps);
  }
};

json reached(double seconds, const Work& work) {
  json result = {{"us", 1e6 * seconds}};
  if (work.flops > 0) result["tflops"] = work.flops / seconds / 1e12;
  if (work.bytes > 0) result["tbs"] = work.bytes / seconds / 1e12;
  return result;
}

json measured(const Timer& timer, const KernelCase& one,
              const std::function<std::vector<at::Tensor>()>& run) {
  const double forward = timer.seconds([&] { run(); });
  json result = {{"forward", reached(forward, one.forward)}};
  if (one.leaves.empty()) return result;
  std::vector<at::Tensor> grads;
  for (const at::Tensor& output : run())
    grads.push_back(output.detach().clone());  // of the output's size and layout
  const double both = timer.seconds([&] { torch::autograd::grad(run(), one.leaves, grads); });
  result["backward"] = reached(std::max(both - forward, 1e-9), one.backward);
  return result;
}

void tune_products(bool on) {
  if (accelerator() != nullptr) accelerator()->tune_products(on);
}

json result_of(const Timer& timer, const NamedCase& named) {
  json line = {{"op", named.op}, {"model", named.model}};
  const KernelCase one = named.make();
  try {
    tune_products(true);
    line["braid"] = measured(timer, one, one.ours);
    tune_products(false);  // as torch chooses by itself
    if (one.aten) line["aten"] = measured(timer, one, one.aten);
  } catch (const std::exception& error) {
    line["error"] = std::string(error.what()).substr(0, 300);
  }
  return line;
}

std::vector<NamedCase> all_cases(const KernelPlace& place) {
  std::vector<NamedCase> all;
  for (const auto& some : {product_cases(place), attention_cases(place), norm_cases(place),
                           linear_cases(place), window_cases(place), update_cases(place)})
    all.insert(all.end(), some.begin(), some.end());
  return all;
}

int run_cases(const KernelPlace& place, const std::string& wanted, int64_t steps) {
  for (const NamedCase& named : all_cases(place)) {
    if ((named.op + " " + named.model).find(wanted) == std::string::npos) continue;
    fmt::print("{}\n", result_of({place.device, steps}, named).dump());
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace braid::bench

int main(int count, char** words) {
  using namespace braid;
  bench::KernelPlace place;
  std::string wanted;
  int64_t steps = 20;
  CLI::App app("operators at the shapes of the models");
  app.add_option("case", wanted, "part of \"operator model\"");
  app.add_option("--steps", steps, "calls that are timed together");
  app.add_option("--shrink", place.shrink, "smaller batches and vocabularies, for a CPU");
  CLI11_PARSE(app, count, words);
  if (accelerator() != nullptr) place.device = {c10::kCUDA, 0};
  return bench::run_cases(place, wanted, steps);
}
