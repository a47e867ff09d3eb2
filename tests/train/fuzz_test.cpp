// SPDX-License-Identifier: BSD-3-Clause
// Damaged configs and --set of all kinds: read, or refused by a sentence, in bounded time. A few
// hundred at each run; 10,000 of each kind by
//
//   train_test --gtest_filter='Fuzz*' --gtest_repeat=50 --gtest_shuffle --gtest_random_seed=1
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include "braid/core/error.h"
#include "braid/train/options.h"
#include "support/expect.h"

namespace braid::train {
namespace {

constexpr int inputs = 200;
constexpr double longest = 1;  // second an input

class Damage {
 public:
  explicit Damage(uint64_t kind)
      : random_(kind +
                1000 * static_cast<uint64_t>(testing::UnitTest::GetInstance()->random_seed())) {}

  size_t below(size_t end) { return random_() % end; }

  // A token that means something to YAML or to a number's reader, or a piece of the text itself.
  std::string piece(const std::string& text) {
    static const std::vector<std::string> pieces = {
        "&a ",  "*a",    "<<: ", "[",     "]",      "{",    "}",
        ": ",   "\n",    "  ",   "- ",    "---",    "\t",   "'",
        "\"",   "|\n",   "? ",   "!!x ",  "%",      "#",    "\x1b[",
        "\x7f", "\xff",  "null", "1e400", "nan",    "-1",   "0",
        ".",    "a.b.c", ",",    "=",     "1e-310", "1e18", "999999999999999999999",
        "true", "_",     "é",    "\r",    "@"};
    if (below(4) != 0 || text.empty()) return pieces[below(pieces.size())];
    const size_t begin = below(text.size());
    return text.substr(begin, below(60));
  }

  std::string damaged(std::string text) {
    for (size_t times = 1 + below(4); times > 0; --times) {
      const size_t at = below(text.size() + 1);
      const size_t length = std::min(below(12), text.size() - at);
      switch (below(4)) {
        case 0:
          text.erase(at, length);
          break;
        case 1:
          text.replace(at, length, piece(text));
          break;
        case 2:
          if (at < text.size()) text[at] = static_cast<char>(random_());
          break;
        default:
          text.insert(at, piece(text));
      }
    }
    return text;
  }

 private:
  std::mt19937_64 random_;
};

struct Counts {
  int read = 0, refused = 0;
};

// Only sentences may come out, soon, and without control characters.
void try_one(const std::string& input, Counts& counts, const std::function<void()>& body) {
  const auto start = std::chrono::steady_clock::now();
  try {
    body();
    ++counts.read;
  } catch (const Error& error) {
    ++counts.refused;
    EXPECT_EQ(error.code(), Exit::config) << input << "\n" << error.what();
    for (const char c : std::string_view(error.what()))
      EXPECT_TRUE(c == '\n' || (static_cast<unsigned char>(c) >= 0x20 && c != 0x7f)) << input;
  } catch (const std::exception& error) {
    ADD_FAILURE() << input << "\n" << error.what();
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  EXPECT_LT(took.count(), longest) << input;
}

std::vector<std::string> config_texts() {
  std::vector<std::string> texts;
  const auto folder = std::filesystem::path(BRAID_SOURCE_DIR) / "configs";
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::ifstream file(entry.path());
    texts.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  std::sort(texts.begin(), texts.end());
  return texts;
}

// What reading, checking and writing it back does; the text written means the same.
void read_whole(const Config& config) {
  RunOptions options = read_options<RunOptions>(config);
  check(options);
  const std::string yaml = resolved_yaml(options);
  const auto again = read_options<RunOptions>(Config::parse(yaml));
  EXPECT_EQ(resolved_yaml(again), yaml);
}

void tell(const Counts& counts) {
  testing::Test::RecordProperty("read", counts.read);
  testing::Test::RecordProperty("refused", counts.refused);
  EXPECT_EQ(counts.read + counts.refused, inputs);
  EXPECT_GT(counts.refused, 0);
}

TEST(Fuzz, DamagedYamlIsReadOrRefusedByASentence) {
  const std::vector<std::string> texts = config_texts();
  Damage damage(1);
  Counts counts;
  for (int i = 0; i < inputs; ++i) {
    const std::string yaml = damage.damaged(texts[damage.below(texts.size())]);
    try_one(yaml, counts, [&] {
      const Config config = Config::parse(yaml, "fuzz.yaml");
      (void)Config::parse(config.to_yaml());
      for (const std::string& name : config.keys())
        if (const Config inner = config.at(name); inner.is_map()) read_whole(inner);
    });
  }
  tell(counts);
}

TEST(Fuzz, SettingsAreTakenOrRefusedByASentence) {
  const std::vector<OptionRow> rows = all_options();
  Damage damage(2);
  Counts counts;
  for (int i = 0; i < inputs; ++i) {
    const OptionRow& row = rows[damage.below(rows.size())];
    std::string path = row.path.substr(0, row.path.find(' ')), value = row.value;
    if (damage.below(4) == 0) path = damage.damaged(path);
    if (damage.below(4) != 0) value = damage.damaged(value);
    try_one(path + "=" + value, counts, [&] {
      Config config;
      config.set(path, value);
      config.set("train.steps", "1");
      read_whole(config);
    });
  }
  tell(counts);
}

}  // namespace
}  // namespace braid::train
