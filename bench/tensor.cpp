// SPDX-License-Identifier: BSD-3-Clause
// One rank of an attention layer and an MLP, split over two processes over Gloo, forward and
// backward; bench/peers/tensor.py is the same with torch.distributed.tensor, bench/tensor.sh runs
// them in turn.
//
//   bench_tensor tensor|sequence|overlap RANK WORLD PORT STEPS
//
// Rank 0 prints one JSON object: seconds and CPU seconds a step, bytes sent, a sum of the output.
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

#include "braid/comm/counting.h"
#include "braid/comm/differentiable.h"
#include "braid/comm/store.h"
#include "braid/core/rng.h"
#include "braid/kernels/attention.h"
#include "braid/nn/layers.h"

using namespace braid;

namespace {

constexpr int64_t batch = 4, tokens = 256, width = 512, heads = 8, hidden = 4 * width;
constexpr int64_t head_width = width / heads;

// x + attention(norm(x)), then x + mlp(norm(x)).
struct Block : nn::Layer {
  explicit Block(const nn::Scope& where)
      : Layer(where),
        norm1(child<nn::LayerNorm>("norm1", width, 1e-5)),
        norm2(child<nn::LayerNorm>("norm2", width, 1e-5)),
        mlp(child<nn::MlpBlock>("mlp", width, nn::MlpBlockOptions{.hidden = hidden})) {
    nn::LinearOptions split = {.split = nn::Split::columns, .unit = head_width};
    for (const char* name : {"q", "k", "v"})
      qkv.push_back(child<nn::Linear>(name, width, width, split));
    split.split = nn::Split::rows;
    proj = child<nn::Linear>("proj", width, width, split);
  }

  at::Tensor forward(const at::Tensor& x) const {
    const nn::Pass pass = {};
    const auto parts = columns(norm1->forward(x), pass, {qkv[0].get(), qkv[1].get(), qkv[2].get()});
    const auto by_head = [](const at::Tensor& y) {
      return y.view({y.size(0), y.size(1), -1, head_width}).transpose(1, 2);
    };
    const at::Tensor mixed =
        kernels::attention(by_head(parts[0]), by_head(parts[1]), by_head(parts[2]), {});
    const at::Tensor y = x.add(proj->forward(mixed.transpose(1, 2).flatten(2)));
    return y.add(mlp->forward(norm2->forward(y), pass));
  }

  std::shared_ptr<nn::LayerNorm> norm1, norm2;
  std::shared_ptr<nn::MlpBlock> mlp;
  std::vector<std::shared_ptr<nn::Linear>> qkv;
  std::shared_ptr<nn::Linear> proj;
};

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double cpu_seconds() {
  rusage used;
  getrusage(RUSAGE_SELF, &used);
  const auto of = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return of(used.ru_utime) + of(used.ru_stime);
}

struct Timings {
  std::vector<double> seconds, cpu_seconds;
  double sum = 0;
};

Timings run(const Block& block, const nn::Layout& layout, int steps) {
  at::Tensor whole = at::empty({batch, tokens, width});
  fill_normal(whole, random_key(1, "x"));
  if (layout.sequence)
    whole = whole
                .split_with_sizes(comm::even_shares(tokens, layout.tensor.size()),
                                  1)[layout.tensor.rank()]
                .contiguous();
  Timings timings;
  for (int i = 0; i < steps; ++i) {
    const double begin = now(), begin_cpu = cpu_seconds();
    const at::Tensor x = whole.detach().requires_grad_();
    const at::Tensor y = block.forward(x);
    y.backward(at::ones_like(y));
    for (const at::Tensor& weight : block.parameters()) weight.mutable_grad().reset();
    timings.seconds.push_back(now() - begin);
    timings.cpu_seconds.push_back(cpu_seconds() - begin_cpu);
    if (i == 0) timings.sum = y.sum().item<double>();
  }
  return timings;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 6) {
    fmt::print(stderr, "usage: bench_tensor tensor|sequence|overlap RANK WORLD PORT STEPS\n");
    return 2;
  }
  at::set_num_threads(1);
  const std::string mode = argv[1];
  const int rank = std::atoi(argv[2]), size = std::atoi(argv[3]), steps = std::atoi(argv[5]);
  const comm::Store store = comm::Store::tcp({.port = std::atoi(argv[4]), .server = rank == 0});
  const auto traffic = std::make_shared<comm::Traffic>();
  const comm::Group world(comm::counting(comm::gloo(store, rank, size), traffic));
  const nn::Layout layout = {
      .tensor = world, .sequence = mode != "tensor", .overlap = mode == "overlap" ? 4 : 1};
  const Block block(nn::Scope{{.seed = 1, .layout = layout}, "block"});
  const Timings t = run(block, layout, steps);
  if (rank != 0) return 0;
  fmt::print(R"({{"mode": "{}", "seconds": [{}], "cpu_seconds": [{}], "bytes": {}, "sum": {}, )"
             R"("version": "{}"}})"
             "\n",
             mode, fmt::join(t.seconds, ", "), fmt::join(t.cpu_seconds, ", "),
             traffic->wire_bytes() / steps, t.sum, TORCH_VERSION);
  return 0;
} catch (const std::exception& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 1;
}
