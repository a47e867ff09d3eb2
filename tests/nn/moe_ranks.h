// SPDX-License-Identifier: BSD-3-Clause
// A mixture spread over ranks against the same on one: output, gradient of the input and of every
// parameter, losses and loads.
#pragma once
#include <gtest/gtest.h>

#include "braid/comm/differentiable.h"
#include "braid/parallel/context.h"
#include "braid/parallel/mesh.h"
#include "nn/moe_mixture.h"
#include "support/ranks.h"

namespace braid::test {

struct MoeLayout {
  parallel::MeshOptions mesh = {};
  bool sequence = false;
  parallel::ContextMethod method = parallel::ContextMethod::gather;
  int64_t tokens = moe_tokens;
};

// The elements of a whole tensor that a rank holds.
inline at::Tensor piece_of(const at::Tensor& whole, const Param& param) {
  if (param.is_whole()) return whole;
  const at::Tensor piece = at::empty_like(param.tensor), flat = piece.view({-1});
  for (const Run& run : runs_of(param.piece, flat.numel()))
    flat.narrow(0, run.at, run.count).copy_(whole.reshape({-1}).narrow(0, run.from, run.count));
  return piece;
}

class MoeRank {
 public:
  MoeRank(const comm::Group& world, const MoeLayout& layout)
      : layout_(layout), mesh_(layout.mesh, world.size(), world.rank()), world_(world) {
    using parallel::Axis;
    built.tensor = group({Axis::tensor});
    built.context = group({Axis::context});
    built.expert = group({Axis::expert});
    built.sequence = layout.sequence;
    built.method = layout.method;
  }

  comm::Group group(const parallel::Axes& axes) const { return mesh_.group(world_, axes); }
  parallel::TokenShare tokens() const {
    return parallel::share_tokens(layout_.tokens, built.context, layout_.method, true);
  }

  // This rank's samples and tokens of [batch, tokens, width].
  at::Tensor mine(const at::Tensor& whole) const {
    const int64_t samples = whole.size(0) / mesh_.batch_ranks();
    const at::Tensor rows = whole.narrow(0, samples * mesh_.batch_rank(), samples);
    const at::Tensor here = parallel::take_tokens(rows, tokens(), 1);
    if (!layout_.sequence || built.tensor.size() == 1) return here;
    const comm::Counts counts = comm::even_shares(here.size(1), built.tensor.size());
    return here.split_with_sizes(counts, 1)[static_cast<size_t>(built.tensor.rank())];
  }

  nn::Pass pass(int64_t samples) const {
    nn::Pass pass = {.training = true, .seed = 3, .step = 4};
    pass.first_sample = samples / mesh_.batch_ranks() * mesh_.batch_rank();
    pass.tokens = tokens();
    return pass;
  }
  double share() const { return 1.0 / static_cast<double>(mesh_.batch_ranks()); }

  // The gradient of a parameter as the trainer sums it.
  at::Tensor summed_gradient(const Param& param) const {
    using parallel::Axis;
    parallel::Axes axes = {Axis::data, Axis::shard, Axis::context};
    if (!param.expert) axes.push_back(Axis::expert);
    if (param.tensor_partial) axes.push_back(Axis::tensor);
    const at::Tensor sum = param.tensor.grad().clone(at::MemoryFormat::Contiguous);
    group(axes).all_reduce(sum).wait();
    return sum;
  }

  nn::Layout built;

 private:
  MoeLayout layout_;
  parallel::Mesh mesh_;
  comm::Group world_;
};

struct MoeCase {
  nn::MoeOptions moe;
  bool gated = false;
  std::string name = {};
};

inline int64_t ranks_of(const parallel::MeshOptions& mesh) {
  return mesh.data.value_or(1) * mesh.tensor * mesh.context * mesh.expert;
}

// What one rank of many has to show against the outcome of one process.
inline void expect_share(const MoeRank& rank, const MoeCase& test, const MixtureOutcome& wanted,
                         const at::Tensor& x, const at::Tensor& weigh) {
  using parallel::Axis;
  const auto model = mixture(test.moe, test.gated, rank.built);
  const MixtureOutcome got =
      pass_over(*model, rank.mine(x), rank.mine(weigh), rank.pass(x.size(0)), rank.share());
  EXPECT_LT(farthest(got.output, rank.mine(wanted.output)), 1e-12) << test.name;
  EXPECT_LT(farthest(got.input_gradient, rank.mine(wanted.input_gradient)), 1e-12) << test.name;
  for (const Param& param : model->params()) {
    ASSERT_TRUE(param.tensor.grad().defined()) << param.name;
    const at::Tensor piece = piece_of(wanted.gradients.at(param.name), param);
    EXPECT_LT(farthest(rank.summed_gradient(param), piece), 1e-12) << test.name << param.name;
  }
  for (const auto& [name, value] : wanted.extras.losses) {
    const at::Tensor sum = got.extras.losses.at(name).clone();
    rank.group({Axis::data, Axis::expert}).all_reduce(sum).wait();
    EXPECT_LT(farthest(sum, value), 1e-12) << test.name << name;
  }
  const at::Tensor load = got.extras.loads.at("mlp").clone();
  rank.group({Axis::data, Axis::expert, Axis::context}).all_reduce(load).wait();
  EXPECT_TRUE(load.equal(wanted.extras.loads.at("mlp"))) << test.name << load;
}

inline void expect_as_alone(const std::vector<MoeCase>& cases, const MoeLayout& layout) {
  const int64_t samples = 4;
  const at::Tensor x = drawn({samples, layout.tokens, moe_width}, 1, "tokens");
  const at::Tensor weigh = drawn({samples, layout.tokens, moe_width}, 2, "weights");
  std::vector<MixtureOutcome> wanted;
  int64_t dropped = 0;
  for (const MoeCase& test : cases) {
    wanted.push_back(pass_over(*mixture(test.moe, test.gated), x, weigh));
    dropped += wanted.back().extras.loads.at("mlp")[test.moe.experts].item<int64_t>();
  }
  EXPECT_GT(dropped, 0) << "capacity was never short";
  on_ranks(static_cast<int>(ranks_of(layout.mesh)), [&](comm::Group world) {
    const MoeRank rank(world, layout);
    for (size_t i = 0; i < cases.size(); ++i) expect_share(rank, cases[i], wanted[i], x, weigh);
  });
}

}  // namespace braid::test
