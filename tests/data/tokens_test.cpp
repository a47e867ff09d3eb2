// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <fstream>
#include <map>

#include "braid/data/make.h"
#include "braid/data/options.h"
#include "support/expect.h"
#include "support/files.h"

namespace braid::data {
namespace {

using test::contains;
using test::error_of;

template <class Word>
void write_tokens(const std::filesystem::path& file, const std::vector<Word>& tokens,
                  std::vector<int32_t> header = {}) {
  std::ofstream out(file, std::ios::binary);
  if (!header.empty()) {
    header.resize(256);
    out.write(reinterpret_cast<const char*>(header.data()), 1024);
  }
  out.write(reinterpret_cast<const char*>(tokens.data()),
            static_cast<std::streamsize>(tokens.size() * sizeof(Word)));
}

template <class Word>
std::vector<Word> counting_tokens(Word first, size_t count) {
  std::vector<Word> tokens(count);
  for (size_t i = 0; i < count; ++i) tokens[i] = static_cast<Word>(first + i);
  return tokens;
}

DataOptions token_options(const std::string& train, int64_t sequence = 4) {
  DataOptions options;
  options.kind = Kind::tokens;
  options.train = train;
  options.sequence = sequence;
  return options;
}

std::pair<std::vector<int64_t>, std::vector<int64_t>> read_tokens(const Source& source,
                                                                  int64_t index) {
  const Sample sample = empty_sample(source.spec());
  source.read({.index = index}, sample);
  const auto values = [](const at::Tensor& t) {
    return std::vector<int64_t>(t.const_data_ptr<int64_t>(),
                                t.const_data_ptr<int64_t>() + t.numel());
  };
  return {values(sample.input), values(sample.target)};
}

using Pair = std::pair<std::vector<int64_t>, std::vector<int64_t>>;

TEST(Tokens, AreReadWithAndWithoutHeader) {
  test::TempDir dir;
  write_tokens(dir / "bare16.bin", counting_tokens<uint16_t>(60000, 10));
  write_tokens(dir / "bare32.bin", counting_tokens<uint32_t>(60000, 10));
  write_tokens(dir / "gpt2.bin", counting_tokens<uint16_t>(60000, 10), {20240520, 1, 10});
  write_tokens(dir / "llama3.bin", counting_tokens<uint32_t>(60000, 10), {20240801, 7, 10});
  for (const char* name : {"bare16.bin", "bare32.bin", "gpt2.bin", "llama3.bin"}) {
    DataOptions options = token_options(dir / name);
    options.token_bytes = std::string(name) == "bare32.bin" ? 4 : 2;
    const auto source = open_source(options, Split::train, 0);
    EXPECT_EQ(source->size(), 2) << name << ": 9 tokens have one after them";
    EXPECT_EQ(source->spec().tokens, 4);
    EXPECT_EQ(read_tokens(*source, 1),
              (Pair{{60004, 60005, 60006, 60007}, {60005, 60006, 60007, 60008}}))
        << name;
  }
}

TEST(Tokens, AreCountedOverManyFiles) {
  test::TempDir dir;
  write_tokens(dir / "train_0.bin", counting_tokens<uint16_t>(0, 9));
  write_tokens(dir / "train_1.bin", counting_tokens<uint16_t>(100, 3));  // too short for a sample
  write_tokens(dir / "train_2.bin", counting_tokens<uint32_t>(200, 14), {20240801, 7, 14});
  DataOptions options = token_options(dir / "train_*.bin");
  const auto source = open_source(options, Split::train, 0);
  ASSERT_EQ(source->size(), 5);
  EXPECT_EQ(read_tokens(*source, 1).second, (std::vector<int64_t>{5, 6, 7, 8}));
  EXPECT_EQ(read_tokens(*source, 2).first, (std::vector<int64_t>{200, 201, 202, 203}));
  EXPECT_TRUE(contains(source->describe(4), "train_2.bin, tokens 8 to 12"));
  options.limit_train = 3;
  EXPECT_EQ(open_source(options, Split::train, 0)->size(), 3);
}

TEST(Tokens, SayWhatIsWrong) {
  test::TempDir dir;
  const auto text_of = [&](const std::string& name, int64_t sequence = 4) {
    return error_of([&] { open_source(token_options(dir / name, sequence), Split::train, 0); });
  };
  write_tokens(dir / "short.bin", counting_tokens<uint16_t>(0, 4));
  EXPECT_TRUE(contains(text_of("short.bin"), "set data.sequence to at most 3"));
  write_tokens(dir / "cut.bin", counting_tokens<uint16_t>(0, 9), {20240520, 1, 10});
  EXPECT_TRUE(contains(text_of("cut.bin"), "its header says 10 tokens"));
  write_tokens(dir / "old.bin", counting_tokens<uint16_t>(0, 9), {20240520, 3, 9});
  EXPECT_TRUE(contains(text_of("old.bin"), "has version 3"));
  write_tokens(dir / "odd.bin", counting_tokens<uint8_t>(0, 99));
  EXPECT_TRUE(contains(text_of("odd.bin"), "99 bytes"));
  EXPECT_TRUE(contains(text_of("none_*.bin"), "braid data make tokens"));
}

TEST(Tokens, MadeUpFollowAChain) {
  test::TempDir dir;
  for (const int64_t vocabulary : {64, 100000}) {
    for (const bool header : {true, false}) {
      int64_t last = 0;
      make_tokens(dir / "made.bin", {.tokens = 70000, .vocabulary = vocabulary, .header = header},
                  [&](int64_t done, int64_t total) { last = done * 100 / total; });
      EXPECT_EQ(last, 100);
      DataOptions options = token_options(dir / "made.bin", 1000);
      options.token_bytes = vocabulary > 65536 ? 4 : 2;
      const auto source = open_source(options, Split::train, 0);
      EXPECT_EQ(source->size(), 69);
      std::map<std::pair<int64_t, int64_t>, int> pairs;
      std::map<int64_t, int> firsts;
      for (int64_t i = 0; i < source->size(); ++i) {
        const auto [input, target] = read_tokens(*source, i);
        for (size_t k = 0; k < input.size(); ++k) {
          ASSERT_LT(input[k], vocabulary);
          ++pairs[{input[k], target[k]}], ++firsts[input[k]];
        }
      }
      const int64_t often =
          std::ranges::max_element(firsts, {}, [](auto& e) { return e.second; })->first;
      int most = 0;
      for (const auto& [pair, count] : pairs)
        if (pair.first == often) most = std::max(most, count);
      EXPECT_GT(most, firsts[often] / 2) << "six of ten times the same word follows";
    }
  }
}

TEST(Text, IsSplitInOneFileOrTakenFromThree) {
  test::TempDir dir;
  std::ofstream(dir / "all.txt") << std::string(900, 'a') + std::string(50, 'b') +
                                        std::string(50, 'c');
  DataOptions options = token_options(dir / "all.txt", 9);
  options.kind = Kind::text;
  const char letters[] = {'a', 'b', 'c'};
  for (const Split split : {Split::train, Split::valid, Split::test}) {
    ASSERT_TRUE(has_split(options, split));
    const auto source = open_source(options, split, 0);
    EXPECT_EQ(source->size(), split == Split::train ? 99 : 5);
    EXPECT_EQ(read_tokens(*source, source->size() - 1).second,
              std::vector<int64_t>(9, letters[static_cast<int>(split)]));
  }
  std::ofstream(dir / "valid.txt") << std::string(20, '\xff');
  options.valid = dir / "valid.txt";
  EXPECT_EQ(open_source(options, Split::train, 0)->size(), 111);
  EXPECT_EQ(read_tokens(*open_source(options, Split::valid, 0), 0).first,
            std::vector<int64_t>(9, 255));
  EXPECT_FALSE(has_split(options, Split::test));
}

}  // namespace
}  // namespace braid::data
