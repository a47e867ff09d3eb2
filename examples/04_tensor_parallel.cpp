// SPDX-License-Identifier: BSD-3-Clause
// A two-layer net in a plain LibTorch module whose hidden layer is spread over the ranks: the lines
// marked with -> make it so. Each rank holds a part of the weights; all see the same samples.
//   torchrun --no-python --nproc-per-node 3 build/bin/04_tensor_parallel
#include <braid/braid.h>
#include <braid/parallel/tensor.h>
#include <torch/nn/functional/loss.h>

#include <cmath>
#include <cstdio>

using braid::parallel::SplitAxis;

struct Net : torch::nn::Module {
  explicit Net(SplitAxis where) : axis(std::move(where)) {
    const braid::Range mine = braid::parallel::split_ranges(hidden, axis.group)[0];  // ->
    w1 = made("w1", {mine.size(), 2}, mine.begin * 2, 1 / std::sqrt(2.0));
    b1 = made("b1", {mine.size()}, mine.begin, 1 / std::sqrt(2.0));
    w2 = made("w2", {mine.size(), 2}, mine.begin * 2, 1 / std::sqrt(hidden));
    b2 = made("b2", {2}, 0, 1 / std::sqrt(hidden));
  }
  // The same numbers as on one rank: by name and place in the whole.
  at::Tensor made(const char* name, at::IntArrayRef sizes, int64_t first, double bound) {
    at::Tensor values = at::empty(sizes);
    braid::fill_uniform(values, braid::random_key(7, name), -bound, bound, first);
    return register_parameter(name, values);
  }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor h = braid::parallel::column_linears(x, {{w1, b1}}, axis)[0];  // ->
    return braid::parallel::row_linear(h.relu(), {w2.t(), b2}, axis);              // ->
  }
  static constexpr int64_t hidden = 200;
  SplitAxis axis;
  at::Tensor w1, b1, w2, b2;
};

int main() {
  const braid::launch::World job = braid::launch::open_world(braid::launch::environment());
  const braid::comm::Group& world = job.ranks;
  Net net({.group = world});  // ->
  auto spiral = braid::data::open_source({.kind = braid::data::Kind::spiral, .points = 2000},
                                         braid::data::Split::train, 1);
  braid::data::Loader loader(spiral, {.global_batch = 96, .seed = 1});
  braid::optim::Optimizer adam(braid::named_params(net),
                               {.name = braid::optim::Algorithm::adam, .lr = 1e-2});
  at::Tensor loss;
  for (int epoch = 0; epoch < 40; ++epoch)
    while (auto batch = loader.next()) {
      loss = torch::nn::functional::cross_entropy(net.forward(batch->input), batch->target);
      loss.backward();  // gradients of the parts are whole: nothing to sum
      adam.step();
      adam.zero_grad();
    }
  if (world.rank() == 0)
    std::printf("%d ranks, %ld of 200 hidden units here, loss %.3f\n", world.size(),
                static_cast<long>(net.w1.size(0)), loss.item<double>());
  return loss.item<double>() < 0.6 ? 0 : 1;
}
