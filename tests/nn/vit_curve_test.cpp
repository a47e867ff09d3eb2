// SPDX-License-Identifier: BSD-3-Clause
// The course's `mp` model at a tiny width: tensor, context and data together train as one process.
#include <c10/core/GradMode.h>

#include "nn/vit_layouts.h"
#include "support/ranks.h"

namespace braid::nn {
namespace {

using parallel::Axis;

constexpr int steps = 5;
constexpr double rate = 10;  // gradients of a relative error of tiny weights are small
constexpr int64_t global_batch = 4;

// 8 heads and 12 blocks as in configs/vit.yaml:mp; the width is 16 instead of 1536.
VitOptions tiny_mp() {
  return {.image = {24, 40},
          .patch = 8,
          .channels_in = 4,
          .channels_out = 4,
          .width = 16,
          .depth = 12,
          .heads = 8};
}

// Gradients are sums over context and, where they are in parts, over tensor; means over data.
void descend(const Model& model, const Layout& layout, const comm::Group& data) {
  const c10::NoGradGuard no_graph;
  std::vector<at::Tensor> all, parts;
  for (const Param& param : model.params()) {
    all.push_back(param.tensor.grad());
    if (param.tensor_partial) parts.push_back(all.back());
  }
  layout.context.all_reduce(all).wait();
  if (!parts.empty()) layout.tensor.all_reduce(parts).wait();
  data.all_reduce(all, comm::Op::mean).wait();
  for (const Param& param : model.params()) {
    param.tensor.sub_(param.tensor.grad(), rate);
    param.tensor.mutable_grad().reset();
  }
}

at::Tensor sample_range(const at::Tensor& all, int64_t rank, int64_t ranks) {
  const int64_t each = global_batch / ranks;
  return all.narrow(0, rank * each, each);
}

std::vector<double> curve(const Layout& layout, const comm::Group& data) {
  const VitOptions options = tiny_mp();
  const auto model =
      make_vit(options, {.seed = 3, .precision = precision("fp64"), .layout = layout});
  const at::Tensor x = sample_range(vit_input(options, global_batch), data.rank(), data.size());
  const at::Tensor t = x.mul(0.5).add(1);
  std::vector<double> losses;
  for (int step = 0; step < steps; ++step) {
    const at::Tensor y = model->forward(x, {.training = true, .step = step});
    const at::Tensor value =
        loss(Loss::relative_l2, y, model->local_target(t), model->loss_share());
    value.backward();
    const at::Tensor mean = value.detach().clone();
    data.all_reduce(mean, comm::Op::mean).wait();
    losses.push_back(mean.item<double>());
    descend(*model, layout, data);
  }
  return losses;
}

struct CurveCase {
  std::string name;
  int ranks;
  parallel::MeshOptions mesh;
  bool sequence = false;
};
void PrintTo(const CurveCase& c, std::ostream* out) { *out << c.name; }

class VitMp : public testing::TestWithParam<CurveCase> {};
INSTANTIATE_TEST_SUITE_P(
    Nersc, VitMp,
    testing::Values(CurveCase{"tp4", 4, {.tensor = 4}},
                    CurveCase{"tp4_sequence", 4, {.tensor = 4}, true},
                    CurveCase{"cp4", 4, {.context = 4}},
                    CurveCase{"tp2_cp2_dp2", 8, {.data = 2, .tensor = 2, .context = 2}}),
    [](const auto& info) { return info.param.name; });

TEST_P(VitMp, HasTheLossCurveOfOneProcess) {
  const std::vector<double> wanted = curve({}, {});
  EXPECT_LT(wanted.back(), 0.9 * wanted.front()) << "it learns";
  test::on_ranks(GetParam().ranks, [&](comm::Group world) {
    const parallel::Mesh mesh(GetParam().mesh, world.size(), world.rank());
    const Layout layout = spread_over(world, mesh, {.sequence = GetParam().sequence});
    const std::vector<double> got = curve(layout, mesh.group(world, {Axis::data}));
    for (int step = 0; step < steps; ++step)
      EXPECT_NEAR(got[static_cast<size_t>(step)], wanted[static_cast<size_t>(step)], 1e-12)
          << "step " << step;
  });
}

}  // namespace
}  // namespace braid::nn
