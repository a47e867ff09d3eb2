// SPDX-License-Identifier: BSD-3-Clause
// A model of the program's own in fit(): options are done or refused, and the run names it.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "braid/nn/autocast.h"
#include "braid/nn/options.h"
#include "braid/parallel/mesh.h"
#include "support/expect.h"
#include "support/files.h"
#include "support/ranks.h"
#include "train/own_net.h"

namespace braid::train {
namespace {

using test::contains;
using test::error_of;
using test::TempDir;

std::string text_in(const std::filesystem::path& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

EndRecord own_fit(nn::Model& model, const RunOptions& run, SessionOptions session = {}) {
  session.quiet = true;
  return fit(model, {.train = own_data()}, run, std::move(session));
}

std::vector<at::Tensor> values_of(const OwnModelOfTest& model) {
  std::vector<at::Tensor> values;
  for (const Param& param : model.params()) values.push_back(param.tensor.detach());
  for (const Param& buffer : model.buffers()) values.push_back(buffer.tensor);
  return values;
}

void expect_equal(const OwnModelOfTest& a, const OwnModelOfTest& b, double tolerance = 0) {
  const std::vector<at::Tensor> x = values_of(a), y = values_of(b);
  ASSERT_EQ(x.size(), 9u);
  for (size_t i = 0; i < x.size(); ++i)
    EXPECT_TRUE(x[i].to(at::kDouble).allclose(y[i].to(at::kDouble), tolerance, tolerance))
        << "value " << i;
}

// A loop by hand, with what `around` puts around the forward pass.
template <class Around>
void train_by_hand(OwnModelOfTest& model, c10::ScalarType input, const Around& around) {
  data::Loader loader(own_data(), {.global_batch = 16, .shuffle = true, .workers = 0});
  optim::Optimizer adam(model.params(), {.name = optim::Algorithm::adam, .lr = 1e-2});
  for (int step = 0; step < 4; ++step) {
    auto batch = loader.next();
    if (!batch) batch = loader.next();  // another epoch
    at::Tensor output;
    {
      [[maybe_unused]] const auto inside = around();
      output = model.forward(batch->input.to(input), {.training = true});
    }
    nn::loss(nn::Loss::cross_entropy, output, batch->target).backward();
    adam.step();
    adam.zero_grad();
  }
}

TEST(OwnModel, ComputesInThePrecisionOfTheConfig) {
  const TempDir dir;
  OwnModelOfTest mixed, by_hand, plain;
  own_fit(mixed, own_run(dir / "bf16", "bf16"));
  train_by_hand(by_hand, c10::kFloat,
                [] { return nn::Autocast(nn::Kernels::reference, c10::kCPU, c10::kBFloat16); });
  expect_equal(mixed, by_hand);
  own_fit(plain, own_run(dir / "fp32"));
  EXPECT_FALSE(plain.net->first->weight.equal(mixed.net->first->weight));

  OwnModelOfTest wide, wide_by_hand;
  wide_by_hand.net->to(at::kDouble);
  own_fit(wide, own_run(dir / "fp64", "fp64"));
  train_by_hand(wide_by_hand, c10::kDouble, [] { return 0; });
  EXPECT_EQ(wide.net->first->weight.scalar_type(), c10::kDouble);
  EXPECT_EQ(wide.net->norm->running_mean.scalar_type(), c10::kDouble);
  expect_equal(wide, wide_by_hand, 1e-12);

  OwnModelOfTest narrow;
  own_fit(narrow, own_run(dir / "bf16_params", "bf16_params"));
  EXPECT_EQ(narrow.net->first->weight.scalar_type(), c10::kBFloat16);
}

TEST(OwnModel, OptionsThatItCannotFollowAreRefused) {
  const TempDir dir;
  const auto refusal = [&](const auto& change) {
    RunOptions run = own_run(dir / "refused");
    change(run);
    OwnModelOfTest model;
    return error_of([&] { own_fit(model, run); });
  };
  const std::string whose = "mine, a model of the program's own";
  std::string text = refusal([](RunOptions& run) { run.memory.recompute = memory::Again::blocks; });
  EXPECT_TRUE(contains(text, "memory.recompute with " + whose));
  EXPECT_TRUE(contains(text, "override nn::Model::blocks()"));
  text = refusal([](RunOptions& run) { run.memory.recompute = memory::Again::attention; });
  EXPECT_TRUE(contains(text, "its first step computed nothing again"));
  std::filesystem::remove_all(dir / "refused");
  text = refusal([](RunOptions& run) { run.memory.recompute = memory::Again::budget; });
  EXPECT_TRUE(contains(text, "memory.recompute = budget with " + whose));
  text = refusal([](RunOptions& run) { run.memory.pack_masks = true; });
  EXPECT_TRUE(contains(text, "memory.pack_masks with " + whose));
  text = refusal([](RunOptions& run) { run.train.micro_batch = 0; });
  EXPECT_TRUE(contains(text, "train.micro_batch = auto with a model or a trainer of your own"));
  text = refusal([](RunOptions& run) {
    run.train.precision = "bf16";
    run.train.fp8 = Fp8::row;
  });
  EXPECT_TRUE(contains(text, "train.fp8 with " + whose));
  text = refusal([](RunOptions& run) {
    run.train.zero = 3;
    run.memory.offload = {"parameters"};
  });
  EXPECT_TRUE(contains(text, "train.zero = 3 with " + whose));
  text = refusal([](RunOptions& run) { run.train.compute = "fp64"; });
  EXPECT_TRUE(contains(text, "train.param = fp32 with train.compute = fp64 with " + whose));
}

TEST(OwnModel, AModelOfBraidIsBuiltForThePrecision) {
  const TempDir dir;
  const auto model = nn::make_mlp({.inputs = 2, .hidden = {8}, .outputs = 2}, {.seed = 1});
  const std::string text = error_of([&] { own_fit(*model, own_run(dir / "run", "bf16")); });
  EXPECT_TRUE(contains(text, "train.precision = bf16 with a model that was built for fp32"));
  EXPECT_TRUE(contains(text, "make it with {.precision = precision(\"bf16\")}"));
}

TEST(OwnModel, ItsRunNamesIt) {
  const TempDir dir;
  OwnModelOfTest model;
  own_fit(model, own_run(dir / "run"));
  const std::string config = text_in(dir / "run" / "config.yaml");
  EXPECT_TRUE(contains(config, "name: own"));
  EXPECT_TRUE(contains(config, "of: mine"));
  const RunOptions saved = load_run((dir / "run" / "config.yaml").string());
  const std::string text = error_of([&] { build_model(saved); });
  EXPECT_TRUE(contains(text, "model.name = own: the model mine was made by the program"));
  // A model that the config describes keeps its name.
  RunOptions described = own_run(dir / "mlp");
  const auto mlp = nn::make_mlp(described.model.mlp, {.seed = 1});
  own_fit(*mlp, described);
  EXPECT_TRUE(contains(text_in(dir / "mlp" / "config.yaml"), "name: mlp"));
}

TEST(OwnModel, OutOfMemorySaysNothingOfAnotherModel) {
  const TempDir dir;
  RunOptions run = own_run(dir / "run");
  run.memory.limit = {3000};
  OwnModelOfTest model;
  const std::string text = error_of([&] { own_fit(model, run); });
  EXPECT_TRUE(contains(text, "did not fit into"));
  const std::string report = text_in(dir / "run" / "out_of_memory" / "report.txt");
  EXPECT_TRUE(contains(report, "predicted    nothing: the model is the program's own"));
  EXPECT_TRUE(contains(report, "what they save of this model is not known"));
  EXPECT_EQ(report.find("--set"), std::string::npos) << report;
}

TEST(OwnModel, BuffersAreSavedAndRestored) {
  const TempDir dir;
  OwnModelOfTest whole, first, second;
  RunOptions run = own_run(dir / "whole");
  run.train.steps = 8;
  run.optimizer.schedule = {};
  own_fit(whole, run);
  run.run.dir = dir / "parts";
  run.train.steps = 4;
  own_fit(first, run);
  run.train.steps = 8;
  own_fit(second, run, {.resume = true});
  EXPECT_EQ(second.net->norm->num_batches_tracked.item<int64_t>(), 8);
  expect_equal(second, whole);
}

TEST(OwnModel, RanksShareTheBuffersOfTheFirst) {
  for (const int zero : {0, 1, 3}) {
    const TempDir dir;
    std::vector<OwnModelOfTest> models;
    for (int i = 0; i < 2; ++i) models.emplace_back(/*with_blocks=*/true);
    models[1].net->norm->running_mean.fill_(7);
    test::on_ranks(2, [&](comm::Group world) {
      RunOptions run = own_run(dir / "run");
      run.train.zero = zero;
      if (zero > 0) run.mesh.shard = 2;
      Ranks ranks;
      ranks.mesh = parallel::Mesh(run.mesh, 2, world.rank(), zero);
      ranks.world = ranks.control = world;
      OwnModelOfTest& model = models[static_cast<size_t>(world.rank())];
      EXPECT_EQ(own_fit(model, run, {.ranks = ranks}).step, 4);
    });
    EXPECT_TRUE(models[0].net->norm->running_mean.equal(models[1].net->norm->running_mean));
    EXPECT_LT(models[1].net->norm->running_mean.abs().max().item<double>(), 2);
    EXPECT_EQ(models[1].net->norm->num_batches_tracked.item<int64_t>(), 4);
  }
}

}  // namespace
}  // namespace braid::train
