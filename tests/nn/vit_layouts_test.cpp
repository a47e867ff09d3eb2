// SPDX-License-Identifier: BSD-3-Clause
// A ViT over tensor, sequence, context and pipeline has the loss and all gradients of one process.
#include "nn/vit_layouts.h"

#include "support/expect.h"
#include "support/ranks.h"

namespace braid::nn {
namespace {

using parallel::ContextMethod;
using parallel::Mesh;

struct Case {
  std::string name;
  int ranks;
  parallel::MeshOptions mesh;
  Layout how = {};
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const int n : {2, 3, 4}) {
    const std::string ranks = std::to_string(n);
    cases.push_back({"tensor_" + ranks, n, {.tensor = n}});
    cases.push_back({"sequence_" + ranks, n, {.tensor = n}, {.sequence = true}});
  }
  const std::map<std::string, ContextMethod> methods = {{"gather", ContextMethod::gather},
                                                        {"ring", ContextMethod::ring},
                                                        {"all_to_all", ContextMethod::all_to_all}};
  for (const auto& [name, method] : methods) {
    for (const int n : {2, 3, 4})
      cases.push_back(
          {"context_" + std::to_string(n) + "_" + name, n, {.context = n}, {.method = method}});
    for (const bool sequence : {false, true})
      cases.push_back({std::string(sequence ? "sequence" : "tensor") + "_2_context_2_" + name,
                       4,
                       {.tensor = 2, .context = 2},
                       {.sequence = sequence, .method = method}});
  }
  cases.push_back({"sequence_2_regather", 2, {.tensor = 2}, {.sequence = true, .regather = true}});
  cases.push_back({"sequence_2_overlap_3", 2, {.tensor = 2}, {.sequence = true, .overlap = 3}});
  return cases;
}

class VitLayouts : public testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Axes, VitLayouts, testing::ValuesIn(all_cases()),
                         [](const auto& info) { return info.param.name; });

TEST_P(VitLayouts, HaveLossOutputAndGradientsOfOneProcess) {
  const Case& layout = GetParam();
  for (const double dropout : {0.0, 0.2}) {
    SCOPED_TRACE(dropout);
    const Alone alone(small_vit(dropout));
    test::on_ranks(layout.ranks, [&](comm::Group world) {
      const Mesh mesh(layout.mesh, world.size(), world.rank());
      expect_same(alone, spread_over(world, mesh, layout.how));
    });
  }
}

// The course's own context parallelism leaves this gradient in parts, so that replicas drift apart:
// the norm works on a rank's tokens, and nobody sums.
TEST(VitContext, TheGradientOfTheFinalNormIsSummed) {
  const Alone alone(small_vit());
  test::on_ranks(4, [&](comm::Group world) {
    const Layout layout = spread_over(world, Mesh({.context = 4}, 4, world.rank()));
    const auto model =
        make_vit(alone.options, {.seed = 1, .precision = precision("fp64"), .layout = layout});
    const at::Tensor y = model->forward(vit_input(alone.options), training_pass());
    loss(Loss::relative_l2, y, model->local_target(vit_target(alone.options)), model->loss_share())
        .backward();
    for (const Param& param : model->params()) {
      if (param.name != "norm.weight" && param.name != "norm.bias") continue;
      const at::Tensor& whole = alone.grads.at(param.name);
      const double missing = param.tensor.grad().sub(whole).norm().item<double>();
      EXPECT_GT(missing / whole.norm().item<double>(), 0.3) << "one rank has a part of it alone";
      expect_close(summed_grad(param, layout), whole, param.name);
    }
  });
}

TEST(VitContext, OutputAndTargetArePatchesOfOwnTokens) {
  const VitOptions o = small_vit();
  const Layout layout = {.context = comm::Group(comm::dry(1, 4))};
  const auto model = make_vit(o, {.precision = precision("fp64"), .layout = layout});
  const at::Tensor target = model->local_target(vit_target(o));
  EXPECT_EQ(target.sizes(), at::IntArrayRef({vit_samples, 9, 2 * 4 * 4}));
  EXPECT_EQ(model->forward(vit_input(o), {}).sizes(), target.sizes());
  // Token 9, the first one here, is the patch of row 1 and column 2; channels are innermost.
  const at::Tensor patch = vit_target(o).narrow(2, 4, 4).narrow(3, 8, 4);
  EXPECT_TRUE(target.select(1, 0).equal(patch.permute({0, 2, 3, 1}).reshape({vit_samples, 32})));
}

std::string refusal(const VitOptions& options, const Layout& layout) {
  return test::error_of([&] { make_vit(options, {.layout = layout}); });
}

TEST(VitLayout, RefusesWhatDoesNotFit) {
  const auto world = [](int size) { return comm::Group(comm::dry(0, size)); };
  const std::string heads = refusal(small_vit(), {.tensor = world(5)});
  EXPECT_TRUE(test::contains(heads, "mesh.tensor = 5 does not divide model.heads = 12"));
  EXPECT_TRUE(test::contains(heads, "a rank of the tensor axis holds whole attention heads"));
  EXPECT_TRUE(test::contains(heads, "set mesh.tensor to one of"));
  const std::string exchange = refusal(
      small_vit(), {.tensor = world(4), .context = world(2), .method = ContextMethod::all_to_all});
  EXPECT_TRUE(test::contains(exchange, "mesh.context = 2 does not divide 3 heads of a rank"));
  const std::string tokens = refusal(small_vit(), {.sequence = true, .context = world(36)});
  EXPECT_TRUE(test::contains(tokens, "mesh.context = 36 for 35 tokens"));
  const std::string both =
      refusal(small_vit(), {.tensor = world(4), .sequence = true, .context = world(9)});
  EXPECT_TRUE(test::contains(both, "mesh.tensor = 4 x mesh.context = 9 for 35 tokens"));
}

}  // namespace
}  // namespace braid::nn
