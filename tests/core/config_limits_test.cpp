// SPDX-License-Identifier: BSD-3-Clause
// Configs that would take gigabytes, hours or the whole stack.
#include <gtest/gtest.h>

#include <string>

#include "braid/core/config.h"
#include "braid/core/error.h"
#include "support/expect.h"

namespace braid {
namespace {

using test::contains;
using test::error_of;

std::string parse_error(const std::string& yaml) {
  return error_of([&] { Config::parse(yaml, "bomb.yaml"); });
}

// Eleven anchors of ten aliases each: 10^11 values in 600 bytes.
std::string alias_bomb(const std::string& open, const std::string& close, bool named) {
  std::string yaml;
  for (int level = 0; level < 12; ++level) {
    yaml += "_a" + std::to_string(level) + ": &a" + std::to_string(level) + " " + open;
    for (int i = 0; i < 10; ++i)
      yaml += (i > 0 ? ", " : "") + (named ? "k" + std::to_string(i) + ": " : std::string()) +
              (level == 0 ? "x" : "*a" + std::to_string(level - 1));
    yaml += close + "\n";
  }
  return yaml;
}

TEST(ConfigLimits, AliasBombsAreRefused) {
  for (const std::string& yaml : {alias_bomb("[", "]", false) + "layers: *a11\n",
                                  alias_bomb("{", "}", true) + "model: *a11\n"}) {
    const std::string said = parse_error(yaml);
    EXPECT_TRUE(contains(said, "bomb.yaml:6: a "));
    EXPECT_TRUE(contains(said, "holds more than 1,000,000 values"));
    EXPECT_TRUE(contains(said, "alias"));
  }
  // A long text that is used often counts, too.
  std::string texts = "a: &a '" + std::string(1 << 20, 'x') + "'\nb: [";
  for (int i = 0; i < 300; ++i) texts += "*a, ";
  EXPECT_TRUE(contains(parse_error(texts + "1]\n"), "holds more than"));
}

TEST(ConfigLimits, NestingByAliasesAndPathsEndsSomewhere) {
  std::string yaml = "_a0: &a0 {x: 1}\n";
  for (int i = 1; i < 2000; ++i)
    yaml += "_a" + std::to_string(i) + ": &a" + std::to_string(i) + " {x: *a" +
            std::to_string(i - 1) + "}\n";
  EXPECT_TRUE(contains(parse_error(yaml), "nested 501 levels deep"));
  std::string path = "a";
  for (int i = 0; i < 100'000; ++i) path += ".a";
  const std::string said = error_of([&] { Config().set(path, "1"); });
  EXPECT_TRUE(contains(said, "a path of 100001 names"));
  EXPECT_TRUE(contains(parse_error("? " + path + "\n: 1\n"), "a path of 100001 names"));
}

// 13.8 s when each key was compared with all others.
TEST(ConfigLimits, ManyKeysAreReadInOnePass) {
  std::string yaml;
  for (int i = 0; i < 30'000; ++i) yaml += "key" + std::to_string(i) + ": 1\n";
  const Config config = Config::parse(yaml);
  EXPECT_EQ(config.size(), 30'000u);
  EXPECT_EQ(config.at("key29999").text(), "1");
  const std::string twice = parse_error(yaml + "key7: 2\n");
  EXPECT_TRUE(contains(twice, "the key key7 is there twice in one map (first at bomb.yaml:8)"));
  std::string dotted;
  for (int i = 0; i < 1001; ++i) dotted += "a.k" + std::to_string(i) + ": 1\n";
  EXPECT_TRUE(contains(parse_error(dotted), "a map has 1001 dotted keys"));
}

TEST(ConfigLimits, ALongWordHasNoNearest) {
  const std::string word(1 << 20, 'a');
  EXPECT_EQ(nearest(word, {word + "b", "a"}), "");
  EXPECT_EQ(nearest("stpes", {word, "steps"}), "steps");
}

}  // namespace
}  // namespace braid
