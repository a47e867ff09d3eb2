// SPDX-License-Identifier: BSD-3-Clause
// braid inspect --memory: a dry step of a config, on a machine without the device it counts for.
#include <gtest/gtest.h>

#include "cli/braid.h"

namespace braid::test {
namespace {

nlohmann::json memory_of(const std::string& config, const std::string& device) {
  const Outcome done = braid_run({"inspect", config, "--memory", "--device", device, "--json"});
  EXPECT_EQ(done.code, 0) << done.err;
  return json_of(done)["memory"];
}

TEST_F(Cli, InspectMemoryCountsAStepForEitherDevice) {
  for (const char* device : {"cpu", "cuda"}) {
    const nlohmann::json memory = memory_of(config("vit"), device);
    EXPECT_EQ(memory["device"], device);
    const nlohmann::json& step = memory["step"];
    int64_t sum = 0;
    for (const auto& [kind, bytes] : step["by_kind"].items()) sum += bytes.get<int64_t>();
    EXPECT_EQ(sum, step["bytes"]);
    sum = 0;
    for (const nlohmann::json& row : step["by_module"]) sum += row["bytes"].get<int64_t>();
    EXPECT_EQ(sum, step["bytes"]);
    EXPECT_GT(step["by_kind"]["activation"], 0);
    EXPECT_EQ(memory["backward"]["by_kind"]["optimizer_state"], 0);
    EXPECT_GT(step["by_kind"]["optimizer_state"], 0);
    EXPECT_EQ(step["largest"].size(), 3u);
    ASSERT_EQ(memory["savings"].size(), 3u);
    // bf16 saves activations and adds casts of weights: in a model as small as this one it may
    // lose.
    EXPECT_TRUE(contains(memory["savings"][0]["change"].get<std::string>(), "precision=bf16"));
    for (int i = 1; i < 3; ++i) EXPECT_LT(memory["savings"][i]["bytes"], step["bytes"]) << i;
    EXPECT_GT(memory["flops_step"], 0);
  }
}

TEST_F(Cli, InspectMemoryIsReadable) {
  const Outcome done = braid_run({"inspect", config("vit"), "--memory", "--device", "cuda"});
  ASSERT_EQ(done.code, 0) << done.err;
  for (const char* part :
       {"memory on cuda, dry run in", "peak of a step:", "activation", "by module",
        "largest at the peak", "--set train.precision=bf16", "same result, accumulated"})
    EXPECT_TRUE(contains(done.out, part));
  EXPECT_EQ(braid_run({"inspect", config("vit"), "--memory", "--device", "tpu"}).code, 2);
}

TEST_F(Cli, InspectMemoryTellsOfNarrowStreams) {
  const auto said = [&](const std::string& model, const std::string& set) {
    return contains(braid_run({"inspect", config(model), "--memory", "--set", set}).out,
                    "--set train.stream=bf16");
  };
  EXPECT_TRUE(said("vit", "train.precision=bf16"));
  EXPECT_FALSE(said("vit", "train.precision=bf16_params"));
  EXPECT_FALSE(said("mlp", "train.precision=bf16"));
}

}  // namespace
}  // namespace braid::test
