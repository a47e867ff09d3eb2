// SPDX-License-Identifier: BSD-3-Clause
// configs/: every file loads under every name, and the merges give the numbers of the courses they
// come from.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>

#include "braid/core/config.h"
#include "braid/core/units.h"

namespace braid {
namespace {

using Names = std::vector<std::string>;

const std::filesystem::path kConfigs = std::filesystem::path(BRAID_SOURCE_DIR) / "configs";

Config recipe(const std::string& spec) { return Config::load((kConfigs / spec).string()); }

double number(const Config& config, std::string_view section, std::string_view key) {
  return parse_number(config.at(section).at(key).text()).value_or(NAN);
}
std::string text(const Config& config, std::string_view section, std::string_view key) {
  return config.at(section).at(key).text();
}

TEST(Recipes, EveryFileLoadsUnderEveryName) {
  const std::set<std::string> sections = {"seed",      "run",    "model",   "data",   "train",
                                          "optimizer", "valid",  "mesh",    "report", "checkpoint",
                                          "parallel",  "memory", "profile", "launch"};
  std::set<std::string> run_names;
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kConfigs)) {
    const std::string file = entry.path().string();
    ++files;
    const Names names = Config::names(file);
    EXPECT_FALSE(names.empty()) << file;
    for (const std::string& name : names) {
      const Config config = Config::load(file + ":" + name);
      for (const std::string& key : config.keys())
        EXPECT_TRUE(sections.contains(key)) << file << ":" << name << " " << key;
      for (const char* section : {"run", "model", "data", "train", "optimizer"})
        EXPECT_TRUE(config.at(section).is_map()) << file << ":" << name << " " << section;
      EXPECT_TRUE(run_names.insert(text(config, "run", "name")).second)
          << name << " writes into another one's folder";
      const std::string yaml = config.to_yaml();
      EXPECT_EQ(Config::parse(yaml).to_yaml(), yaml);
    }
  }
  EXPECT_EQ(files, 7);
}

TEST(Recipes, TheFirstLineIsTheCommand) {
  for (const auto& entry : std::filesystem::directory_iterator(kConfigs)) {
    std::string line;
    std::getline(std::ifstream(entry.path()) >> std::ws, line);
    const std::string command = "# braid train configs/";
    ASSERT_TRUE(line.starts_with(command)) << line;
    const std::string spec =
        line.substr(command.size(), line.find(' ', command.size()) - command.size());
    EXPECT_NO_THROW(recipe(spec)) << line;
  }
}

TEST(Recipes, VitHasTheConfigsOfTheCourse) {
  EXPECT_EQ(Config::names((kConfigs / "vit.yaml").string()),
            (Names{"base", "short", "short_opt", "opt", "bs16_opt", "bs32_opt", "bs64_opt",
                   "bs128_opt", "bs256_opt", "bs512_opt", "bs1024_opt", "bs2048_opt", "mp",
                   "mp_bs16", "mp_bs32", "mp_patch4", "demo"}));
}

struct VitRow {
  const char* name;
  double batch, lr, steps, width, patch, workers;
  const char* precision;
};

class VitTable : public testing::TestWithParam<VitRow> {};

TEST_P(VitTable, HasTheNumbersOfTheCourse) {
  const VitRow row = GetParam();
  const Config config = recipe(std::string("vit.yaml:") + row.name);
  EXPECT_EQ(number(config, "train", "global_batch"), row.batch);
  EXPECT_EQ(number(config, "optimizer", "lr"), row.lr);
  EXPECT_EQ(number(config, "train", "steps"), row.steps);
  EXPECT_EQ(number(config, "model", "width"), row.width);
  EXPECT_EQ(number(config, "model", "patch"), row.patch);
  EXPECT_EQ(number(config, "data", "workers"), row.workers);
  EXPECT_EQ(text(config, "train", "precision"), row.precision);
  // Common to all of them.
  EXPECT_EQ(number(config, "model", "depth"), 12);
  EXPECT_EQ(number(config, "model", "heads"), 8);
  EXPECT_EQ(number(config, "model", "channels_in"), 20);
  EXPECT_EQ(config.at("model").at("image").at(1).text(), "720");
  EXPECT_EQ(text(config, "train", "loss"), "relative_l2");
  EXPECT_EQ(text(config, "train", "area"), "reference");
  EXPECT_EQ(config.at("data").at("names").size(), 20u);
  EXPECT_EQ(text(config, "train", "whole_epochs"), "true");
  EXPECT_EQ(text(config, "optimizer", "schedule"), "cosine");
  EXPECT_EQ(config.at("optimizer").at("betas").at(1).text(), "0.95");
  const bool is_short = std::string(row.name).starts_with("short");
  EXPECT_EQ(config.at("data").at("limit_train").kind() == Config::Kind::null, !is_short);
}

INSTANTIATE_TEST_SUITE_P(
    Nersc, VitTable,
    testing::Values(VitRow{"base", 16, 5e-4, 30000, 384, 8, 0, "tf32"},
                    VitRow{"short", 16, 5e-4, 128, 384, 8, 0, "tf32"},
                    VitRow{"short_opt", 16, 5e-4, 128, 384, 8, 8, "fp16"},
                    VitRow{"opt", 16, 5e-4, 30000, 384, 8, 8, "fp16"},
                    VitRow{"bs16_opt", 16, 5e-4, 30000, 384, 8, 8, "fp16"},
                    VitRow{"bs32_opt", 32, 7.07e-4, 30000, 384, 8, 8, "fp16"},
                    VitRow{"bs64_opt", 64, 1e-3, 30000, 384, 8, 8, "fp16"},
                    VitRow{"bs128_opt", 128, 1.41e-3, 30000, 384, 8, 8, "fp16"},
                    VitRow{"bs256_opt", 256, 2e-3, 30000, 384, 8, 8, "fp16"},
                    VitRow{"bs512_opt", 512, 2.83e-3, 30000, 384, 8, 8, "fp16"},
                    VitRow{"bs1024_opt", 1024, 4e-3, 30000, 384, 8, 8, "fp16"},
                    VitRow{"bs2048_opt", 2048, 5.66e-3, 30000, 384, 8, 8, "fp16"},
                    VitRow{"mp", 64, 1e-3, 30000, 1536, 8, 8, "fp16"},
                    VitRow{"mp_bs16", 16, 5e-4, 30000, 1536, 8, 8, "fp16"},
                    VitRow{"mp_bs32", 32, 7.07e-4, 30000, 1536, 8, 8, "fp16"},
                    VitRow{"mp_patch4", 64, 1e-3, 30000, 1536, 4, 8, "fp16"}),
    [](const auto& row) { return std::string(row.param.name); });

TEST(Recipes, ShortLimitsItsSamples) {
  for (const char* name : {"vit.yaml:short", "vit.yaml:short_opt"}) {
    EXPECT_EQ(number(recipe(name), "data", "limit_train"), 512);
    EXPECT_EQ(number(recipe(name), "data", "limit_valid"), 128);
  }
}

TEST(Recipes, SwinirFollowsTheSteps) {
  const Config crops = recipe("swinir.yaml:crops");
  EXPECT_EQ(number(crops, "train", "global_batch"), 16);
  EXPECT_EQ(crops.at("data").at("size").at(0).text(), "128");
  EXPECT_EQ(text(crops, "train", "loss"), "l1");
  EXPECT_EQ(number(crops, "optimizer", "lr"), 8e-4);
  EXPECT_EQ(number(crops, "optimizer", "weight_decay"), 1e-6);
  EXPECT_EQ(number(crops, "optimizer", "gamma"), 0.97);
  const Config full = recipe("swinir.yaml:full");
  EXPECT_EQ(number(full, "train", "global_batch"), 1);
  EXPECT_EQ(full.at("data").at("size").size(), 0u);
  EXPECT_EQ(text(full, "train", "precision"), "fp32");
  EXPECT_EQ(text(full, "data", "train"), text(crops, "data", "train"));
  EXPECT_EQ(text(recipe("swinir.yaml:full_amp"), "train", "precision"), "fp16");
}

TEST(Recipes, MlpScalesItsLearningRate) {
  const Config base = recipe("mlp.yaml");
  EXPECT_EQ(number(base, "train", "epochs"), 50);
  EXPECT_EQ(number(base, "train", "global_batch"), 32);
  EXPECT_EQ(number(base, "data", "noise"), 0.05);
  EXPECT_EQ(number(base, "optimizer", "lr"), 1e-3);
  EXPECT_FALSE(recipe("mlp.yaml:batch256").at("optimizer").has("scale_lr"));
  const Config scaled = recipe("mlp.yaml:batch256_scaled");
  EXPECT_EQ(number(scaled, "train", "global_batch"), 256);
  EXPECT_EQ(text(scaled, "optimizer", "scale_lr"), "linear");
  EXPECT_EQ(number(scaled, "optimizer", "base_batch"), 32);
  EXPECT_EQ(number(scaled, "optimizer", "lr"), 1e-3);
}

// Parameters of a tied GPT-2 and of a Llama, by their formulas.
double gpt_parameters(const Config& c) {
  const double w = number(c, "model", "width");
  const double embeddings = (number(c, "model", "vocabulary") + number(c, "model", "sequence")) * w;
  return embeddings + number(c, "model", "layers") * (12 * w * w + 13 * w) + 2 * w;
}
double llama_parameters(const Config& c) {
  const double w = number(c, "model", "width");
  const double kv = w * number(c, "model", "kv_heads") / number(c, "model", "heads");
  const double layer = 2 * w * w + 2 * w * kv + 3 * w * number(c, "model", "hidden") + 2 * w;
  return 2 * number(c, "model", "vocabulary") * w + w + number(c, "model", "layers") * layer;
}

TEST(Recipes, GptAndLlamaHaveThePublishedSizes) {
  EXPECT_EQ(gpt_parameters(recipe("gpt.yaml:gpt2")), 124'439'808);
  EXPECT_EQ(gpt_parameters(recipe("gpt.yaml:gpt2_medium")), 354'823'168);
  EXPECT_EQ(gpt_parameters(recipe("gpt.yaml:gpt2_large")), 774'030'080);
  EXPECT_EQ(gpt_parameters(recipe("gpt.yaml:gpt2_xl")), 1'557'611'200);
  EXPECT_EQ(llama_parameters(recipe("llama.yaml:8b")), 8'030'261'248);
  EXPECT_EQ(llama_parameters(recipe("llama.yaml:70b")), 70'553'706'496);
  EXPECT_EQ(llama_parameters(recipe("llama.yaml:405b")), 405'853'388'800);
  EXPECT_EQ(number(recipe("llama.yaml:405b"), "optimizer", "lr"), 8e-5);
}

}  // namespace
}  // namespace braid
