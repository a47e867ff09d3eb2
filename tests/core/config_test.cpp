// SPDX-License-Identifier: BSD-3-Clause
#include "braid/core/config.h"

#include <gtest/gtest.h>

#include "support/expect.h"

namespace braid {
namespace {

using test::contains;
using test::error_of;
using Names = std::vector<std::string>;

std::string text_at(const Config& config, std::string_view section, std::string_view key) {
  return config.at(section).at(key).text();
}

TEST(Config, ReadsATreeWithPlaces) {
  const Config config = Config::parse(
      "seed: 7\nmodel:\n  name: vit\n  image: [360, 720]\n  on: 'yes'\n  off:\n", "a.yaml");
  EXPECT_EQ(config.keys(), (Names{"seed", "model"}));
  const Config model = config.at("model");
  EXPECT_TRUE(model.is_map());
  EXPECT_EQ(model.size(), 4u);
  EXPECT_EQ(model.where(), "a.yaml:2");
  EXPECT_EQ(model.at("name").text(), "vit");
  EXPECT_EQ(model.at("name").path(), "model.name");
  EXPECT_EQ(model.at("image").kind(), Config::Kind::list);
  EXPECT_EQ(model.at("image").at(1).text(), "720");
  EXPECT_EQ(model.at("image").at(1).path(), "model.image[1]");
  EXPECT_EQ(model.at("image").at(1).where(), "a.yaml:4");
  EXPECT_TRUE(model.at("on").quoted());
  EXPECT_FALSE(model.at("name").quoted());
  EXPECT_EQ(model.at("off").kind(), Config::Kind::null);
  EXPECT_TRUE(config.has("seed"));
  EXPECT_FALSE(config.has("sed"));
}

TEST(Config, NoneAndNullAreNullUnlessQuoted) {
  const Config config =
      Config::parse("{a: None, b: null, c: ~, d: 'None', e: none, f: !!str null}");
  EXPECT_EQ(config.at("a").kind(), Config::Kind::null);
  EXPECT_EQ(config.at("b").kind(), Config::Kind::null);
  EXPECT_EQ(config.at("c").kind(), Config::Kind::null);
  EXPECT_EQ(config.at("d").text(), "None");
  EXPECT_EQ(config.at("e").text(), "none");
  EXPECT_EQ(config.at("f").text(), "null");
}

TEST(Config, OwnKeysWinOverMergedOnes) {
  const Config config = Config::parse("a: &a {x: 1, y: 1}\nb: {y: 2, <<: *a, z: 3}\n", "m.yaml");
  const Config b = config.at("b");
  EXPECT_EQ(b.keys(), (Names{"x", "y", "z"}));
  EXPECT_EQ(b.at("x").text(), "1");
  EXPECT_EQ(b.at("y").text(), "2");
  EXPECT_EQ(b.at("x").where(), "m.yaml:1");  // where it was written
  EXPECT_EQ(b.at("y").where(), "m.yaml:2");
}

TEST(Config, MergesListsOfMapsFirstWins) {
  const Config config =
      Config::parse("a: &a {x: 1}\nb: &b {x: 2, y: 2}\nc: {<<: [*a, *b], z: 3}\n");
  EXPECT_EQ(text_at(config, "c", "x"), "1");
  EXPECT_EQ(text_at(config, "c", "y"), "2");
  EXPECT_EQ(text_at(config, "c", "z"), "3");
}

TEST(Config, MergesMergedAndNestedMaps) {
  const Config config = Config::parse(
      "base: &base\n  train: &train {steps: 30, batch: 16}\n  seed: 0\n"
      "opt: &opt\n  <<: *base\n  train: &fast {<<: *train, precision: fp16}\n"
      "big:\n  <<: *opt\n  train: {<<: *fast, batch: 64}\n");
  const Config train = config.at("big").at("train");
  EXPECT_EQ(train.at("steps").text(), "30");
  EXPECT_EQ(train.at("batch").text(), "64");
  EXPECT_EQ(train.at("precision").text(), "fp16");
  EXPECT_EQ(text_at(config, "big", "seed"), "0");
  EXPECT_EQ(config.at("base").at("train").at("batch").text(), "16");
  // As in YAML everywhere, << is not deep: an own section replaces the merged one whole.
  const Config whole = Config::parse("a: &a {train: {x: 1, y: 2}}\nb: {<<: *a, train: {x: 3}}\n");
  EXPECT_EQ(whole.at("b").at("train").keys(), Names{"x"});
}

TEST(Config, DottedKeysChangeOneValueOfWhatIsMerged) {
  const Config config = Config::parse(
      "base: &base\n  train: {steps: 30, batch: 16}\n"
      "short: &short\n  <<: *base\n  train.steps: 5\n  model.size.width: 8\n"
      "more: {<<: *short, train.batch: 1}\n",
      "d.yaml");
  const Config more = config.at("more");
  EXPECT_EQ(text_at(more, "train", "steps"), "5");
  EXPECT_EQ(text_at(more, "train", "batch"), "1");
  EXPECT_EQ(more.at("model").at("size").at("width").text(), "8");
  EXPECT_EQ(more.at("train").at("steps").where(), "d.yaml:5");
  EXPECT_EQ(more.at("train").at("steps").path(), "more.train.steps");
  EXPECT_EQ(config.at("base").at("train").at("steps").text(), "30");  // the anchor is untouched
  EXPECT_EQ(more.keys(), (Names{"train", "model"}));
  // In quotes it is a name like any other; at the top of a file with a map it is the name of a
  // config.
  EXPECT_EQ(Config::parse("a: {'x.y': 1}").at("a").keys(), Names{"x.y"});
  EXPECT_EQ(Config::parse("gpt2.small: {x: 1}\nv1.5: {}").keys(), (Names{"gpt2.small", "v1.5"}));
  EXPECT_EQ(text_at(Config::parse("train.steps: 3"), "train", "steps"), "3");
}

TEST(Config, DottedKeyBesideItsSectionIsRefused) {
  const std::string error =
      error_of([] { Config::parse("a:\n  train: {x: 1}\n  train.x: 2\n", "f.yaml"); });
  EXPECT_TRUE(contains(error, "f.yaml:3: train.x and train (at f.yaml:2) set the same value"));
}

TEST(Config, AliasOfAValueKeepsTheLineOfItsKey) {
  const Config config = Config::parse("a: &n 5\nb: *n\nc: &list [1, 2]\nd: *list\n", "x.yaml");
  EXPECT_EQ(config.at("b").text(), "5");
  EXPECT_EQ(config.at("b").where(), "x.yaml:2");
  EXPECT_EQ(config.at("d").at(0).where(), "x.yaml:3");
}

TEST(Config, DuplicateKeysAreAnErrorWithBothLines) {
  const std::string error =
      error_of([] { Config::parse("train:\n  steps: 1\n  batch: 2\n  steps: 3\n", "f.yaml"); });
  EXPECT_TRUE(contains(error, "f.yaml:4: the key steps is there twice"));
  EXPECT_TRUE(contains(error, "first at f.yaml:2"));
  EXPECT_TRUE(contains(error_of([] { Config::parse("a: &a {}\nb:\n  <<: *a\n  <<: *a\n"); }),
                       "<<: [*a, *b]"));
  EXPECT_TRUE(contains(error_of([] { Config::parse("a:\n  b.c: 1\n  b.c: 2\n"); }),
                       "the key b.c is there twice"));
}

TEST(Config, BadMergesAreErrors) {
  EXPECT_TRUE(contains(error_of([] { Config::parse("a: &a 5\nb:\n  <<: *a\n", "f.yaml"); }),
                       "f.yaml:3: << cannot merge 5, which is not a map"));
  EXPECT_TRUE(contains(error_of([] { Config::parse("a: &a {}\nb: {<<: [*a, 3]}\n"); }),
                       "<< cannot merge 3"));
  EXPECT_TRUE(contains(error_of([] { Config::parse("b: {<<: }\n"); }), "<< cannot merge null"));
}

TEST(Config, RecursionIsAnError) {
  EXPECT_TRUE(contains(error_of([] { Config::parse("a: &x\n  b: *x\n", "f.yaml"); }),
                       "f.yaml:2: an alias refers to"));
  EXPECT_TRUE(contains(error_of([] { Config::parse("a: &x\n  <<: *x\n", "f.yaml"); }),
                       "the tree would never end"));
}

TEST(Config, SyntaxErrorsNameTheLine) {
  EXPECT_TRUE(contains(error_of([] { Config::parse("a: 1\nb: [1, 2\nc: 3\n", "f.yaml"); }),
                       "this is not YAML"));
  EXPECT_TRUE(contains(error_of([] { Config::parse("a: 1\nb: c: d\n", "f.yaml"); }),
                       "f.yaml:2: this is not YAML"));
  EXPECT_TRUE(contains(error_of([] { Config::parse("a: *nothing\n", "f.yaml"); }),
                       "anchor is not defined"));
  EXPECT_TRUE(contains(error_of([] { Config::parse("a: 1\n---\nb: 2\n", "f.yaml"); }),
                       "a second YAML document"));
  EXPECT_TRUE(contains(error_of([] { Config::parse("a: !path x\n", "f.yaml"); }),
                       "the YAML tag !path is not known"));
  EXPECT_TRUE(
      contains(error_of([] { Config::parse("{[1]: 2}"); }), "a list stands where a key is needed"));
  EXPECT_TRUE(
      contains(error_of([] { Config::parse(std::string(4000, '[')); }), "this is not YAML"));
}

TEST(Config, ManyNestedAliasesStaySmall) {
  std::string yaml = "l0: &l0 [x]\n";  // 10^5 items if each alias were a copy
  for (int i = 1; i <= 5; ++i) {
    yaml += "l" + std::to_string(i) + ": &l" + std::to_string(i) + " [";
    for (int k = 0; k < 10; ++k) yaml += (k ? ", *l" : "*l") + std::to_string(i - 1);
    yaml += "]\n";
  }
  EXPECT_EQ(Config::parse(yaml).at("l5").size(), 10u);
}

TEST(Config, WrongUseOfANodeIsExplained) {
  const Config config = Config::parse("train:\n  steps: [1]\n", "f.yaml");
  EXPECT_TRUE(contains(error_of([&] { config.at("trian"); }), "trian is missing"));
  EXPECT_TRUE(contains(error_of([&] { config.at("trian"); }), "did you mean train"));
  EXPECT_TRUE(
      contains(error_of([&] { config.at("train").at("lr"); }), "f.yaml:1: train.lr is missing"));
  EXPECT_TRUE(
      contains(error_of([&] { config.at("train").text(); }), "train is a map, not a single value"));
  EXPECT_TRUE(contains(error_of([&] { config.at("train").at("steps").at(3); }),
                       "train.steps has no item 3"));
}

TEST(Config, SetCreatesReplacesAndKnowsItsPlace) {
  const Config before = Config::parse("train: {steps: 1, batch: 2}\nmesh:\n");
  Config config = before;
  config.set("train.steps", "10");
  config.set("mesh.tensor", "2");
  config.set("data.size", "[1, 2]");
  config.set("data.limit", "null");
  config.set("a.b.c", "{d: x}");
  EXPECT_EQ(text_at(config, "train", "steps"), "10");
  EXPECT_EQ(text_at(config, "train", "batch"), "2");
  EXPECT_EQ(config.at("train").at("steps").where(), "--set train.steps=10");
  EXPECT_EQ(text_at(config, "mesh", "tensor"), "2");
  EXPECT_EQ(config.at("data").at("size").at(1).text(), "2");
  EXPECT_EQ(config.at("data").at("size").at(1).where(), "--set data.size=[1, 2]");
  EXPECT_EQ(config.at("data").at("limit").kind(), Config::Kind::null);
  EXPECT_EQ(config.at("a").at("b").at("c").at("d").path(), "a.b.c.d");
  EXPECT_EQ(text_at(before, "train", "steps"), "1");  // copies are values
}

TEST(Config, SetThroughAValueIsRefused) {
  Config config = Config::parse("train:\n  steps: 1\n", "f.yaml");
  const std::string error = error_of([&] { config.set("train.steps.more", "2"); });
  EXPECT_TRUE(contains(error, "train.steps = 1 is not a map"));
  EXPECT_TRUE(contains(error, "f.yaml:2"));
  EXPECT_TRUE(contains(error, "--set train.steps.more=2"));
  EXPECT_TRUE(contains(error_of([&] { config.set("train..steps", "2"); }), "--set path.key=value"));
  const std::string yaml = error_of([&] { config.set("data.train", "*.bin"); });
  EXPECT_TRUE(contains(yaml, "the value of --set data.train=*.bin is not YAML"));
  EXPECT_TRUE(contains(yaml, "--set 'data.train=\"*.bin\"'"));
}

// The same kinds, keys and texts, and whether a text is quoted where that matters.
void expect_same(const Config& a, const Config& b) {
  ASSERT_EQ(a.kind(), b.kind()) << a.path();
  ASSERT_EQ(a.keys(), b.keys()) << a.path();
  ASSERT_EQ(a.size(), b.size()) << a.path();
  if (a.kind() == Config::Kind::scalar) EXPECT_EQ(a.text(), b.text()) << a.path();
  if (a.kind() == Config::Kind::scalar && a.quoted()) EXPECT_TRUE(b.quoted()) << a.path();
  for (const std::string& key : a.keys()) expect_same(a.at(key), b.at(key));
  for (size_t i = 0; a.kind() == Config::Kind::list && i < a.size(); ++i)
    expect_same(a.at(i), b.at(i));
}

TEST(Config, WritesYamlThatReadsBackTheSame) {
  const Config config = Config::parse(
      "plain: {i: 30_000, f: -5e-4, t: abc, dots: a.b, star: data/x_*.bin, b: true, n: null, e: "
      "{}, l: []}\n"
      "quoted: {i: '5', t: \"true\", n: 'None', tilde: '~', empty: '', hash: 'a #b', colon: 'a: "
      "b', comma: 'a, b',\n"
      "  quote: 'say \"x\" \\ y', line: \"a\\nb\\tc\\x01\", dash: '- a', star: '*a', brace: '{a', "
      "dots: '...', utf: 'Zürich'}\n"
      "list: [a, [1, 2], {x: 1, 'y.z': [3]}, null, 'it''s', '<<', '-', '']\n"
      "'<<': text\n'odd: key': 1\n'null': 2\n"
      "folded: >\n  two\n  lines\n",
      "w.yaml");
  expect_same(config, Config::parse(config.to_yaml()));
  EXPECT_EQ(Config::parse("a: {b: {c: [1, x]}}").to_yaml(), "a:\n  b:\n    c: [1, x]\n");
  EXPECT_EQ(Config().to_yaml(), "{}\n");
  expect_same(Config(), Config::parse(Config().to_yaml()));
  expect_same(Config::parse("[1, {a: b}]"), Config::parse(Config::parse("[1, {a: b}]").to_yaml()));
}

}  // namespace
}  // namespace braid
