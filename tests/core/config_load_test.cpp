// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "braid/core/config.h"
#include "support/expect.h"
#include "support/files.h"

namespace braid {
namespace {

using test::contains;
using test::error_of;
using Names = std::vector<std::string>;

class ConfigFiles : public testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& yaml) {
    const std::filesystem::path file = dir_ / name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << yaml;
    return file.string();
  }
  test::TempDir dir_;
};

constexpr const char* kNamed =
    ".sizes: &sizes {width: 8}\n"
    "_more: 5\n"
    "base: &base\n  model: {<<: *sizes, name: vit}\n  train: {steps: 30}\n"
    "short:\n  <<: *base\n  train.steps: 3\n"
    "empty:\n";

TEST_F(ConfigFiles, NamedConfigsAreChosenByNameOrBase) {
  const std::string file = write("vit.yaml", kNamed);
  EXPECT_EQ(Config::names(file), (Names{"base", "short", "empty"}));
  EXPECT_EQ(Config::load(file).at("train").at("steps").text(), "30");
  const Config config = Config::load(file + ":short");
  EXPECT_EQ(config.path(), "");
  EXPECT_EQ(config.at("train").at("steps").text(), "3");
  EXPECT_EQ(config.at("train").at("steps").path(), "train.steps");
  EXPECT_EQ(config.at("train").at("steps").where(), file + ":8");
  EXPECT_EQ(config.at("model").at("width").text(), "8");
  EXPECT_EQ(Config::load(file + ":empty").size(), 0u);
}

TEST_F(ConfigFiles, FlatFilesHaveNoNames) {
  const std::string file = write("flat.yaml", "_w: &w 8\nmodel: {width: *w}\ntrain: {steps: 3}\n");
  EXPECT_EQ(Config::names(file), Names{});
  EXPECT_EQ(Config::load(file).keys(), (Names{"model", "train"}));
  const std::string error = error_of([&] { Config::load(file + ":short"); });
  EXPECT_TRUE(contains(error, "holds one config, so there is no short in it"));
  EXPECT_TRUE(contains(error, "its top level has model"));
  EXPECT_TRUE(contains(error, "flat.yaml:2"));
  // One key that holds no map makes a file flat; an empty file is an empty config.
  EXPECT_EQ(Config::names(write("mixed.yaml", "a: {x: 1}\nb: 3\n")), Names{});
  EXPECT_EQ(Config::load(write("empty.yaml", "# nothing\n")).size(), 0u);
}

TEST_F(ConfigFiles, UnknownNamesListTheKnownOnes) {
  const std::string file = write("vit.yaml", kNamed);
  const std::string error = error_of([&] { Config::load(file + ":shrot"); });
  EXPECT_TRUE(contains(error, "has no config called shrot"));
  EXPECT_TRUE(contains(error, "did you mean " + file + ":short?"));
  EXPECT_TRUE(contains(error, "its configs are base, short, empty"));
  const std::string other = write("other.yaml", "tiny: {seed: 1}\nlarge: {seed: 2}\n");
  const std::string no_base = error_of([&] { Config::load(other); });
  EXPECT_TRUE(contains(no_base, "none of them is called base"));
  EXPECT_TRUE(contains(no_base, other + ":tiny (there are tiny, large)"));
  EXPECT_TRUE(contains(error_of([&] { Config::load(file + ":"); }), "no name follows the colon"));
}

TEST_F(ConfigFiles, PathsMayHoldColons) {
  const std::string file = write("a:b/vit.yaml", kNamed);
  EXPECT_EQ(Config::load(file).at("train").at("steps").text(), "30");
  EXPECT_EQ(Config::load(file + ":short").at("train").at("steps").text(), "3");
  const std::string odd = write("x:y.yaml", "seed: 4\n");
  EXPECT_EQ(Config::load(odd).at("seed").text(), "4");
}

TEST_F(ConfigFiles, UnreadableFilesAreNamed) {
  const std::string file = write("vit.yaml", kNamed);
  const std::string missing = (dir_ / "vti.yaml").string();
  const std::string error = error_of([&] { Config::load(missing + ":short"); });
  EXPECT_TRUE(contains(error, "cannot read the config " + missing));
  EXPECT_TRUE(contains(error, "did you mean " + file));
  EXPECT_TRUE(contains(error_of([&] { Config::load((dir_ / "quite_another").string()); }),
                       "configs in that folder: vit.yaml"));
  EXPECT_TRUE(contains(error_of([&] { Config::load(dir_.path().string()); }), "it is a folder"));
  EXPECT_TRUE(contains(error_of([&] { Config::load(write("l.yaml", "[1, 2]\n")); }),
                       "holds list, not a map"));
  const std::string broken = write("broken.yaml", "a: 1\nb: c: d\n");
  EXPECT_TRUE(contains(error_of([&] { Config::load(broken); }), broken + ":2: this is not YAML"));
  try {
    Config::load(missing);
    FAIL();
  } catch (const Error& wrong) {
    EXPECT_EQ(wrong.code(), Exit::config);
  }
}

TEST_F(ConfigFiles, SetsAreAppliedLastInOrder) {
  const std::string file = write("vit.yaml", kNamed);
  const Config config =
      Config::load(file + ":short", {"train.steps=4", "data.size=[1, 2]", "train.steps=5",
                                     "model=null", "run.name=a=b", "seed=7", "data.valid="});
  EXPECT_EQ(config.at("train").at("steps").text(), "5");
  EXPECT_EQ(config.at("train").at("steps").where(), "--set train.steps=5");
  EXPECT_EQ(config.at("data").at("size").size(), 2u);
  EXPECT_EQ(config.at("model").kind(), Config::Kind::null);
  EXPECT_EQ(config.at("run").at("name").text(), "a=b");
  EXPECT_EQ(config.at("seed").text(), "7");
  EXPECT_EQ(config.at("data").at("valid").kind(), Config::Kind::null);
}

TEST_F(ConfigFiles, MalformedSetsAreExplained) {
  const std::string file = write("flat.yaml", "seed: 1\n");
  for (const char* set : {"train.steps", "=3", "", "a..b=3", ".a=3", "a.=3", "a b=3"}) {
    const std::string error = error_of([&] { Config::load(file, {set}); });
    EXPECT_TRUE(contains(error, std::string("--set ") + set + " is not"));
    EXPECT_TRUE(contains(error, "fix: --set path.key=value"));
  }
}

}  // namespace
}  // namespace braid
