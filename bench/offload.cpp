// SPDX-License-Identifier: BSD-3-Clause
// The update on the host: the optimizer's fused kernels against the plain loop of tensor operators,
// with gradients in the dtype of the weights, and whole steps with the optimizer on the host.
//
//   bench_offload 64 8          # million elements, updates; all cores
//   bench_offload 64 8 cuda     # and the copies to and from a GPU
//
// Prints one JSON object: elements/s and GB/s of each, their ratio, and on a GPU the rates of the
// copies down and up.
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <exception>
#include <functional>
#include <string>
#include <vector>

#include "braid/core/accelerator.h"
#include "braid/core/rng.h"
#include "braid/optim/optimizer.h"
#include "braid/parallel/host.h"

using namespace braid;

namespace {

double seconds_of(int repeats, const std::function<void()>& work) {
  work();  // states are made, caches filled
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < repeats; ++i) work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / repeats;
}

struct Adam {
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, decay = 0.1;
};

// The same mathematics, an operator at a time over the whole tensor.
struct PlainAdamW {
  explicit PlainAdamW(const at::Tensor& weight)
      : exp_avg(at::zeros_like(weight)), exp_avg_sq(at::zeros_like(weight)) {}

  void step(const at::Tensor& weight, const at::Tensor& grad, const Adam& o) {
    ++steps;
    const at::Tensor wide = grad.to(weight.scalar_type());
    weight.mul_(1 - o.lr * o.decay);
    exp_avg.lerp_(wide, 1 - o.beta1);
    exp_avg_sq.mul_(o.beta2).addcmul_(wide, wide, 1 - o.beta2);
    const double correction = 1 - std::pow(o.beta1, steps), second = 1 - std::pow(o.beta2, steps);
    const at::Tensor root = exp_avg_sq.sqrt().div_(std::sqrt(second)).add_(o.eps);
    weight.addcdiv_(exp_avg, root, -o.lr / correction);
  }

  at::Tensor exp_avg, exp_avg_sq;
  int steps = 0;
};

at::Tensor drawn(int64_t elements, c10::ScalarType dtype, const char* name) {
  const at::Tensor x = at::empty({elements}, c10::kFloat);
  fill_normal(x, random_key(0, name), {.std = 0.02});
  return x.to(dtype);
}

// Reads and writes weight and both states, reads the gradient.
double bytes_of(const at::Tensor& weight, const at::Tensor& grad) {
  return 6.0 * static_cast<double>(weight.nbytes()) + static_cast<double>(grad.nbytes());
}

std::string updates(int64_t elements, int repeats, c10::ScalarType grad_dtype) {
  const at::NoGradGuard no_grad;
  const at::Tensor plain_weight = drawn(elements, c10::kFloat, "weight");
  const at::Tensor weight = drawn(elements, c10::kFloat, "weight");
  const at::Tensor grad = drawn(elements, grad_dtype, "grad");
  const Adam adam;
  PlainAdamW plain(plain_weight);
  optim::Optimizer fused({{"weight", weight}}, {.lr = adam.lr, .weight_decay = adam.decay});
  weight.mutable_grad() = grad;
  const double slow = seconds_of(repeats, [&] { plain.step(plain_weight, grad, adam); });
  const double fast = seconds_of(repeats, [&] { fused.step(); });
  const double off = weight.sub(plain_weight).abs().max().item<double>();
  const auto count = static_cast<double>(elements);
  return fmt::format(
      R"({{"grad": "{}", "fused_elements_s": {:.3e}, "plain_elements_s": {:.3e}, )"
      R"("fused_GB_s": {:.2f}, "plain_GB_s": {:.2f}, "ratio": {:.2f}, "largest_difference": {:.1e}}})",
      c10::toString(grad_dtype), count / fast, count / slow, bytes_of(weight, grad) / fast / 1e9,
      bytes_of(plain_weight, grad) / slow / 1e9, slow / fast, off);
}

// Gradients down as in a backward pass, weights up as in publish().
std::string copies(int64_t elements, int repeats) {
  const c10::Device gpu(c10::kCUDA, 0);
  std::vector<Param> params;
  for (int i = 0; i < 16; ++i)
    params.push_back({fmt::format("weight{}", i),
                      at::zeros({elements / 16}, at::TensorOptions(c10::kBFloat16).device(gpu))
                          .requires_grad_()});
  parallel::HostParams host(params, {.stream = false});
  const auto wait = [&] { accelerator()->synchronize(0); };
  const double down = seconds_of(repeats, [&] {
    for (const Param& param : params)
      param.tensor.mutable_grad() = at::zeros_like(param.tensor.detach());
    wait();
    host.finish();
  });
  const double up = seconds_of(repeats, [&] {
    host.publish();
    wait();
  });
  const double bytes = 2.0 * static_cast<double>(elements);
  return fmt::format(R"({{"down_GB_s": {:.2f}, "up_GB_s": {:.2f}}})", bytes / down / 1e9,
                     bytes / up / 1e9);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const int64_t elements = (argc > 1 ? std::atoll(argv[1]) : 32) * 1'000'000;
    const int repeats = argc > 2 ? std::atoi(argv[2]) : 5;
    const bool gpu = argc > 3 && std::string(argv[3]) == "cuda" && accelerator() != nullptr;
    fmt::print(R"({{"elements": {}, "threads": {}, "updates": [{}, {}], "copies": {}}})"
               "\n",
               elements, at::get_num_threads(), updates(elements, repeats, c10::kFloat),
               updates(elements, repeats, c10::kBFloat16),
               gpu ? copies(elements, repeats) : "null");
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_offload: {}\n", error.what());
    return 1;
  }
  return 0;
}
