// SPDX-License-Identifier: BSD-3-Clause
#include "braid/checkpoint/store.h"

#include <gtest/gtest.h>

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>

#include <cmath>
#include <fstream>

#include "braid/checkpoint/safetensors.h"
#include "checkpoint/saved.h"
#include "support/expect.h"
#include "support/files.h"

namespace braid::checkpoint {
namespace {

namespace fs = std::filesystem;

Snapshot snapshot_at(int64_t step, double loss = 1.0) {
  Snapshot s{.step = step, .state = {}, .metrics = {{"loss", loss}}, .config = "seed: 1\n"};
  s.state.tensors["model/layer.weight"] = at::full({2, 3}, static_cast<double>(step));
  s.state.tensors["optimizer/layer.weight/exp_avg"] = at::arange(6, at::kFloat).view({2, 3});
  s.state.values["name"] = "r\u00fcn \"a\"\n";
  s.state.set("lr", 0.1 + 0.2);
  return s;
}

std::vector<std::string> names_in(const fs::path& dir) {
  std::vector<std::string> names;
  for (const auto& item : fs::directory_iterator(dir)) names.push_back(item.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

TEST(Store, GivesBackWhatWasSaved) {
  const test::TempDir dir;
  Store store(dir / "ck");
  EXPECT_FALSE(store.newest());
  EXPECT_EQ(store.save(snapshot_at(1200, 0.1)), dir / "ck" / "step-00001200");
  const auto found = store.newest();
  ASSERT_TRUE(found);
  const Snapshot& s = found->snapshot;
  EXPECT_EQ(s.step, 1200);
  EXPECT_EQ(s.config, "seed: 1\n");
  EXPECT_EQ(s.metrics.at("loss"), 0.1);
  EXPECT_EQ(s.state.number("lr"), 0.1 + 0.2);
  EXPECT_EQ(s.state.text("name"), "r\u00fcn \"a\"\n");
  EXPECT_TRUE(s.state.tensor("model/layer.weight").equal(at::full({2, 3}, 1200.0)));
  EXPECT_EQ(s.state.tensors.size(), 2u);
  EXPECT_TRUE(found->skipped.empty());
}

TEST(Store, FolderHoldsTheFilesOfTheLayout) {
  const test::TempDir dir;
  const fs::path made = Store(dir / "ck").save(snapshot_at(7));
  EXPECT_EQ(names_in(made),
            (std::vector<std::string>{"config.yaml", "manifest.json", "model.safetensors",
                                      "state-00000-of-00001.safetensors"}));
  const Tensors model = read_safetensors(made / "model.safetensors").tensors;
  EXPECT_EQ(model.size(), 1u);
  EXPECT_TRUE(model.contains("layer.weight"));  // the names of the model, without a prefix
}

TEST(Store, KeepsOtherFilesWithAHash) {
  const test::TempDir dir;
  Snapshot s = snapshot_at(7);
  s.files["data.json"] = "{\"a\": 1}\n";
  const fs::path made = Store(dir / "ck").save(s);
  EXPECT_EQ(Reader(made).file("data.json"), s.files["data.json"]);
  EXPECT_EQ(Reader(made).files(), (std::vector<std::string>{"config.yaml", "data.json"}));
  EXPECT_EQ(Reader(made).file("none.json"), "");
  std::ofstream(made / "data.json") << "{\"a\": 2}\n";
  EXPECT_TRUE(test::contains(test::error_of([&] { Reader(made).file("data.json"); }),
                             "data.json differs from what was saved"));
}

TEST(Store, WeightsAloneForPredict) {
  const test::TempDir dir;
  const fs::path made = Store(dir / "ck").save(snapshot_at(7));
  const Snapshot s = load(made, Parts::weights);
  EXPECT_EQ(s.state.tensors.size(), 1u);
  EXPECT_TRUE(s.state.has("model/layer.weight"));
  EXPECT_EQ(s.config, "seed: 1\n");
}

TEST(Store, KeepsTheNewestAndTheBest) {
  const test::TempDir dir;
  Store store(dir / "ck", {.keep = 2, .best = 1, .metric = "loss"});
  const double losses[] = {5, 1, 3, 4, 2};
  for (int i = 0; i < 5; ++i) saved(store, snapshot_at(i + 1, losses[i]));
  EXPECT_EQ(names_in(dir / "ck"),
            (std::vector<std::string>{"step-00000002", "step-00000004", "step-00000005"}));
  EXPECT_EQ(store.best().filename(), "step-00000002");
  EXPECT_EQ(Store(dir / "ck", {.highest = true}).best().filename(), "step-00000004");
}

TEST(Store, ANotFiniteMetricIsNeverBest) {
  const test::TempDir dir;
  Store store(dir / "ck", {.keep = 1, .best = 1, .highest = true});
  store.save(snapshot_at(1, 3));
  store.save(snapshot_at(2, std::nan("")));
  saved(store, snapshot_at(3, INFINITY));
  EXPECT_EQ(names_in(dir / "ck"), (std::vector<std::string>{"step-00000001", "step-00000003"}));
  EXPECT_EQ(store.best().filename(), "step-00000001");
  EXPECT_TRUE(std::isnan(store.newest()->snapshot.metrics.at("loss")));
}

TEST(Store, SavingAStepAgainReplacesIt) {
  const test::TempDir dir;
  Store store(dir / "ck");
  store.save(snapshot_at(3, 9));
  saved(store, snapshot_at(3, 8));
  EXPECT_EQ(names_in(dir / "ck"), (std::vector<std::string>{"step-00000003"}));
  EXPECT_EQ(store.newest()->snapshot.metrics.at("loss"), 8);
}

// A run started anew in an old folder: its first checkpoint is older than all others, and stays.
TEST(Store, NeverRemovesTheOneJustSaved) {
  const test::TempDir dir;
  Store store(dir / "ck", {.keep = 1, .best = 0});
  store.save(snapshot_at(100));
  const fs::path made = saved(store, snapshot_at(5));
  EXPECT_TRUE(fs::exists(made / "manifest.json"));
}

TEST(Store, ListsStepsInOrderAndNothingElse) {
  const test::TempDir dir;
  Store store(dir / "ck", {.keep = 9});
  for (const int64_t step : {20, 3, 123456789}) store.save(snapshot_at(step));
  fs::create_directories(dir / "ck/step-000000xy");
  fs::create_directories(dir / "ck/step-00000004.tmp-1");
  std::ofstream(dir / "ck/step-00000009") << "a file";
  const auto all = store.list();
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0].filename(), "step-00000003");
  EXPECT_EQ(all[2].filename(), "step-123456789");
}

TEST(Store, WithoutAThreadNothingIsUnderWayAfterwards) {
  const test::TempDir dir;
  Store store(dir / "ck", {.background = false});
  const fs::path made = store.save(snapshot_at(7));
  EXPECT_FALSE(store.busy());
  EXPECT_TRUE(fs::exists(made / "manifest.json"));
  EXPECT_TRUE(
      store.newest()->snapshot.state.tensor("model/layer.weight").equal(at::full({2, 3}, 7.0)));
}

// The state may change as soon as save() has returned, and later saves use the same memory.
TEST(Store, SavesTheStateOfTheMoment) {
  const test::TempDir dir;
  Store store(dir / "ck", {.keep = 9});
  Snapshot snapshot = snapshot_at(1);
  for (int64_t step = 1; step <= 3; ++step) {
    snapshot.step = step;
    snapshot.state.tensors["model/layer.weight"].fill_(static_cast<double>(step));
    store.save(snapshot);
    snapshot.state.tensors["model/layer.weight"].fill_(-1);
  }
  for (const fs::path& folder : store.list()) {
    const Snapshot back = load(folder);
    EXPECT_TRUE(back.state.tensor("model/layer.weight")
                    .equal(at::full({2, 3}, static_cast<double>(back.step))));
  }
}

// A folder that the first version of the format wrote (2 steps of configs/mlp.yaml).
TEST(Store, ReadsTheFirstFormat) {
  const fs::path old = fs::path(BRAID_SOURCE_DIR) / "tests/golden/checkpoint_v1";
  const Snapshot s = load(old);
  EXPECT_EQ(s.step, 2);
  EXPECT_EQ(s.state.integer("loader/seen"), 64);
  const Tensors model = read_safetensors(old / "model.safetensors").tensors;
  for (const auto& [name, tensor] : model)
    EXPECT_TRUE(s.state.tensor("model/" + name).equal(tensor)) << name;
  EXPECT_EQ(s.state.tensors.size(), 4 * model.size());
  EXPECT_EQ(load(old, Parts::weights).state.tensors.size(), model.size());
  const test::TempDir dir;
  fs::copy(old, dir / "broken");
  std::fstream(dir / "broken/model.safetensors", std::ios::in | std::ios::out).seekp(9000).put('x');
  EXPECT_TRUE(test::contains(test::error_of([&] { load(dir / "broken"); }),
                             "model.safetensors differs from what was saved (hash "));
}

TEST(Store, ReadsItsOptions) {
  const auto options =
      read_options<CheckpointOptions>(Config::parse("{every: 100, keep: 3, metric: rmse}"));
  EXPECT_EQ(options.every, 100);
  EXPECT_EQ(options.metric, "rmse");
  EXPECT_TRUE(test::contains(
      test::error_of([] { read_options<CheckpointOptions>(Config::parse("{keep: 0}")); }), "keep"));
}

}  // namespace
}  // namespace braid::checkpoint
