// SPDX-License-Identifier: BSD-3-Clause
#include "braid/core/options.h"

#include <gtest/gtest.h>

#include "support/expect.h"

namespace braid {

enum class Pace { slow, fast, none };

struct InnerOptions {
  int64_t depth = 2;
  bool on = false;
};
void describe(Fields& f, InnerOptions& o) {
  f.field("depth", o.depth, "layers", {.at_least = 1});
  f.field("on", o.on, "switch");
}

struct AllOptions {
  bool flag = true;
  int64_t steps = 5;
  double lr = 0.5;
  std::string name = "x";
  std::string kind = "a";
  Bytes bucket = {25'000'000};
  Seconds limit = {60};
  std::optional<int64_t> micro = {};
  std::optional<double> clip = 1.0;
  std::optional<std::string> note = {};
  std::optional<Seconds> time = {};
  std::vector<int64_t> size = {1, 2};
  std::vector<double> betas = {0.9, 0.95};
  std::vector<std::string> to = {"console"};
  Pace pace = Pace::fast;
  InnerOptions inner = {};
};
void describe(Fields& f, AllOptions& o) {
  f.field("flag", o.flag, "a flag");
  f.field("steps", o.steps, "optimizer steps", {.at_least = 0, .at_most = 1e9});
  f.field("lr", o.lr, "learning rate", {.above = 0});
  f.field("name", o.name, "any text");
  f.field("kind", o.kind, "a word", {.one_of = {"a", "b"}});
  f.field("bucket", o.bucket, "bytes of a bucket", {.at_least = 1});
  f.field("limit", o.limit, "time limit");
  f.field("micro", o.micro, "samples at once", {.at_least = 1, .none = "auto"});
  f.field("clip", o.clip, "largest norm", {.above = 0});
  f.field("note", o.note, "a remark");
  f.field("time", o.time, "stop after");
  f.field("size", o.size, "height and width", {.at_least = 1});
  f.field("betas", o.betas, "decay of the moments", {.at_least = 0, .at_most = 1});
  f.field("to", o.to, "sinks", {.one_of = {"console", "jsonl"}});
  f.choice("pace", o.pace, {"slow", "fast", "none"}, "how fast");
  f.section("inner", o.inner, "a section");
}

namespace {

using test::contains;
using test::error_of;

AllOptions read(const std::string& yaml) {
  return read_options<AllOptions>(Config::parse("train:\n  " + yaml, "f.yaml").at("train"));
}
std::string error_in(const std::string& yaml) {
  return error_of([&] { read(yaml); });
}

TEST(ReadFields, FillsEveryType) {
  const AllOptions o = read(
      "{flag: no, steps: 30_000, lr: 7.07e-4, name: 12, kind: b, bucket: 16 GiB, limit: 1h30m, "
      "micro: 4, clip: none,\n"
      "   note: hello, time: 5m, size: [360, 720], betas: [0.8, 1], to: [jsonl, console], pace: "
      "slow, inner: {depth: 3, on: On}}");
  EXPECT_FALSE(o.flag);
  EXPECT_EQ(o.steps, 30000);
  EXPECT_EQ(o.lr, 7.07e-4);
  EXPECT_EQ(o.name, "12");
  EXPECT_EQ(o.kind, "b");
  EXPECT_EQ(o.bucket, Bytes{int64_t{16} << 30});
  EXPECT_EQ(o.limit, Seconds{5400});
  EXPECT_EQ(o.micro, 4);
  EXPECT_EQ(o.clip, std::nullopt);
  EXPECT_EQ(o.note, "hello");
  EXPECT_EQ(o.time, Seconds{300});
  EXPECT_EQ(o.size, (std::vector<int64_t>{360, 720}));
  EXPECT_EQ(o.betas, (std::vector<double>{0.8, 1}));
  EXPECT_EQ(o.to, (std::vector<std::string>{"jsonl", "console"}));
  EXPECT_EQ(o.pace, Pace::slow);
  EXPECT_EQ(o.inner.depth, 3);
  EXPECT_TRUE(o.inner.on);
}

TEST(ReadFields, AbsentFieldsKeepTheirDefaults) {
  const AllOptions o = read("{steps: 3e4, inner: }");
  EXPECT_EQ(o.steps, 30000);
  EXPECT_EQ(o.lr, 0.5);
  EXPECT_EQ(o.clip, 1.0);
  EXPECT_EQ(o.pace, Pace::fast);
  EXPECT_EQ(o.inner.depth, 2);
  EXPECT_EQ(read_options<AllOptions>(Config()).steps, 5);
  EXPECT_EQ(read_options<AllOptions>(Config::parse("")).steps,
            5);  // a null section is an empty one
  EXPECT_EQ(read_options(Config(), AllOptions{.steps = 9}).steps, 9);
}

TEST(ReadFields, OptionalsTakeNullNoneOrTheirWord) {
  EXPECT_EQ(read("{clip: null}").clip, std::nullopt);
  EXPECT_EQ(read("{clip: None}").clip, std::nullopt);
  EXPECT_EQ(read("{clip: none}").clip, std::nullopt);
  EXPECT_EQ(read("{micro: auto}").micro, std::nullopt);
  EXPECT_EQ(read("{note: none}").note, std::nullopt);
  EXPECT_EQ(read("{note: 'none'}").note, "none");  // in quotes it is a text
  EXPECT_TRUE(contains(error_in("{micro: none}"), "train.micro = none is not an integer or auto"));
}

struct ZeroWord {
  std::optional<int64_t> micro;
};
void describe(Fields& f, ZeroWord& o) {
  f.field("micro", o.micro, "samples at once", {.at_least = 1, .none = "all", .zero = "auto"});
}

TEST(ReadFields, AnOptionalMayHaveAWordForZero) {
  const auto micro = [](const char* text) {
    return read_options<ZeroWord>(Config::parse(text)).micro;
  };
  EXPECT_EQ(micro("{micro: auto}"), 0);
  EXPECT_EQ(micro("{micro: all}"), std::nullopt);
  EXPECT_EQ(micro("{micro: 3}"), 3);
  const auto complaint = [&](const char* text) { return error_of([&] { micro(text); }); };
  EXPECT_TRUE(contains(complaint("{micro: 0}"), "must be at least 1"));
  EXPECT_TRUE(contains(complaint("{micro: some}"), "is not an integer or auto or all"));
  ZeroWord zero{.micro = 0}, none;
  WriteFields written;
  describe(written, zero);
  EXPECT_TRUE(contains(written.config.to_yaml(), "micro: auto"));
  ListFields listed;
  describe(listed, none);
  EXPECT_EQ(listed.rows.at(0).type, "integer, auto or all");
  EXPECT_EQ(listed.rows.at(0).value, "all");
}

TEST(ReadFields, NullEmptiesTextsAndListsAndMeansNoneOfAChoice) {
  EXPECT_EQ(read("{name: null}").name, "");
  EXPECT_EQ(read("{name: ''}").name, "");
  EXPECT_TRUE(read("{size: null}").size.empty());
  EXPECT_TRUE(read("{size: []}").size.empty());
  EXPECT_EQ(read("{pace: None}").pace, Pace::none);
  EXPECT_TRUE(contains(error_in("{kind: null}"), "train.kind = null is not a text"));
  EXPECT_TRUE(contains(error_in("{steps: null}"), "train.steps = null is not an integer"));
}

TEST(ReadFields, ListsTakeASingleValue) {
  EXPECT_EQ(read("{size: 7}").size, std::vector<int64_t>{7});
  EXPECT_EQ(read("{to: jsonl}").to, std::vector<std::string>{"jsonl"});
  EXPECT_TRUE(contains(error_in("{size: [1, x]}"), "train.size[1] = x is not an integer"));
  EXPECT_TRUE(contains(error_in("{size: [1, [2]]}"), "train.size[1] = [2] is not an integer"));
  EXPECT_TRUE(contains(error_in("{size: [1, -2]}"), "train.size[1] = -2 must be at least 1"));
  EXPECT_TRUE(contains(error_in("{to: [console, jsno]}"), "did you mean jsonl?"));
}

TEST(ReadFields, WrongTypesNameFileLineAndPath) {
  const std::string error = error_in("name: y\n  steps: abc\n");
  EXPECT_TRUE(contains(error, "braid: f.yaml:3: train.steps = abc is not an integer"));
  EXPECT_TRUE(contains(error, "why: an integer looks like 30000, 30_000 or 3e4"));
  EXPECT_TRUE(contains(error, "fix: set train.steps (optimizer steps) to an integer"));
  EXPECT_TRUE(contains(error_in("{steps: 2.5}"), "train.steps = 2.5 is not an integer"));
  EXPECT_TRUE(contains(error_in("{steps: [1]}"), "train.steps = [1] is not an integer"));
  EXPECT_TRUE(contains(error_in("{steps: {a: 1}}"), "train.steps = a map is not an integer"));
  EXPECT_TRUE(contains(error_in("{lr: fast}"), "train.lr = fast is not a number"));
  EXPECT_TRUE(contains(error_in("{lr: .inf}"), "train.lr = .inf is not a number"));
  EXPECT_TRUE(contains(error_in("{flag: maybe}"), "train.flag = maybe is not yes or no"));
  EXPECT_TRUE(contains(error_in("{bucket: 16 G}"), "train.bucket = 16 G is not a number of bytes"));
  EXPECT_TRUE(contains(error_in("{limit: 5 parsec}"), "train.limit = 5 parsec is not a time"));
  EXPECT_TRUE(contains(error_in("{name: [a]}"), "train.name = [a] is not a text"));
}

TEST(ReadFields, ImpossibleValuesNameTheRule) {
  EXPECT_TRUE(contains(error_in("{steps: -1}"), "f.yaml:2: train.steps = -1 must be at least 0"));
  EXPECT_TRUE(contains(error_in("{steps: 2e9}"), "train.steps = 2e9 must be at most 1000000000"));
  EXPECT_TRUE(contains(error_in("{lr: 0}"), "train.lr = 0 must be above 0"));
  EXPECT_TRUE(contains(error_in("{clip: -1}"), "train.clip = -1 must be above 0"));
  EXPECT_TRUE(contains(error_in("{bucket: 0}"), "train.bucket = 0 must be at least 1"));
  EXPECT_TRUE(
      contains(error_in("{inner: {depth: 0}}"), "train.inner.depth = 0 must be at least 1"));
}

TEST(ReadFields, ChoicesNameTheNearestWord) {
  const std::string error = error_in("{pace: fats}");
  EXPECT_TRUE(contains(error, "f.yaml:2: train.pace = fats is not known"));
  EXPECT_TRUE(contains(error, "train.pace is one of slow, fast, none"));
  EXPECT_TRUE(contains(error, "did you mean fast?"));
  EXPECT_TRUE(contains(error_in("{pace: walking}"), "set train.pace to one of them"));
}

TEST(ReadFields, UnknownKeysNameTheNearestOrAll) {
  const std::string near = error_in("name: y\n  stesp: 3\n");
  EXPECT_TRUE(contains(near, "f.yaml:3: unknown key train.stesp"));
  EXPECT_TRUE(contains(near, "did you mean train.steps?"));
  const std::string far = error_in("{inner: {qqqqqq: 3}}");
  EXPECT_TRUE(contains(far, "unknown key train.inner.qqqqqq"));
  EXPECT_TRUE(contains(far, "the keys of train.inner are depth, on"));
  Config config;
  config.set("stesp", "3");
  EXPECT_TRUE(contains(error_of([&] { read_options<AllOptions>(config); }),
                       "--set stesp=3: unknown key stesp"));
}

TEST(ReadFields, SectionsMustBeMaps) {
  EXPECT_TRUE(contains(error_in("{inner: 5}"), "f.yaml:2: train.inner = 5 is not a section"));
  EXPECT_TRUE(contains(error_of([] { read_options<AllOptions>(Config::parse("[1]")); }),
                       "the config = [1] is not a section"));
}

TEST(WriteFields, WhatIsWrittenReadsBackTheSame) {
  AllOptions o{.flag = false,
               .steps = 7,
               .lr = 1.0 / 3,
               .name = "true",
               .kind = "b",
               .bucket = {1537},
               .limit = {0.1}};
  o.note = "none";
  o.to = {};
  o.pace = Pace::none;
  o.inner.depth = 9;
  WriteFields written;
  describe(written, o);
  const std::string yaml = written.config.to_yaml();
  const AllOptions back = read_options<AllOptions>(Config::parse(yaml));
  WriteFields again;
  AllOptions copy = back;
  describe(again, copy);
  EXPECT_EQ(again.config.to_yaml(), yaml);
  EXPECT_EQ(back.lr, o.lr);
  EXPECT_EQ(back.name, "true");
  EXPECT_EQ(back.bucket, o.bucket);
  EXPECT_EQ(back.limit, o.limit);
  EXPECT_EQ(back.note, "none");
  EXPECT_EQ(back.pace, Pace::none);
  EXPECT_EQ(back.inner.depth, 9);
  for (const char* line :
       {"steps: 7\n", "name: \"true\"\n", "note: \"none\"\n", "micro: auto\n", "to: []\n",
        "time: none\n", "betas: [0.9, 0.95]\n", "pace: none\n", "inner:\n  depth: 9\n"})
    EXPECT_TRUE(contains(yaml, line));
}

TEST(ListFields, ListsPathTypeDefaultAndHelp) {
  ListFields list;
  AllOptions o;
  list.section("train", o, "training");
  const auto row = [&](const std::string& path) {
    for (const OptionRow& r : list.rows)
      if (r.path == path) return r;
    ADD_FAILURE() << path;
    return OptionRow{};
  };
  EXPECT_EQ(list.rows.size(), 17u);
  EXPECT_EQ(row("train.steps").type, "integer");
  EXPECT_EQ(row("train.steps").value, "5");
  EXPECT_EQ(row("train.steps").help, "optimizer steps");
  EXPECT_EQ(row("train.micro").type, "integer or auto");
  EXPECT_EQ(row("train.micro").value, "auto");
  EXPECT_EQ(row("train.bucket").value, "25000000");
  EXPECT_EQ(row("train.limit").value, "1m");
  EXPECT_EQ(row("train.size").type, "list of integers");
  EXPECT_EQ(row("train.pace").value, "fast");
  EXPECT_EQ(row("train.pace").one_of, (std::vector<std::string>{"slow", "fast", "none"}));
  EXPECT_EQ(row("train.inner.on").type, "yes/no");
}

}  // namespace
}  // namespace braid
