// SPDX-License-Identifier: BSD-3-Clause
// Damaged manifests and safetensors files: each is read or refused by a StorageError, nothing else.
// BRAID_FUZZ=10000 checkpoint_test --gtest_filter='Fuzz*' tries more.
#include <gtest/gtest.h>

#include <ATen/ops/full.h>

#include <cstring>

#include "braid/checkpoint/safetensors.h"
#include "braid/checkpoint/store.h"
#include "checkpoint/saved.h"
#include "checkpoint/sealed.h"
#include "support/files.h"
#include "support/mutate.h"

namespace braid::checkpoint {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::Mutator;

struct Tally {
  int read = 0, refused = 0;

  // Anything but a StorageError would be exit code 1, or worse.
  template <class Body>
  void count(const Body& body, const std::string& input) {
    try {
      body();
      ++read;
    } catch (const StorageError&) {
      ++refused;
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what() << "\nby the input\n" << input.substr(0, 2000);
    }
  }
};

struct Fuzz : testing::Test {
  test::TempDir dir;
  test::HangGuard guard{600};
  Tally tally;
};

TEST_F(Fuzz, Manifest) {
  Store store(dir / "ck");
  Snapshot s{.step = 7, .state = {}, .metrics = {{"loss", 1.0}}, .config = "seed: 1"};
  s.state.tensors["model/w"] = at::full({4, 2}, 1.0);
  s.state.tensors["optimizer/w/exp_avg"] = at::full({4, 2}, 2.0);
  s.state.values["trainer/step"] = "7";
  const fs::path folder = saved(store, s);
  json good = manifest_in(folder);
  good["shards"][0]["pieces"][0].push_back(json::array({{0, {{0, 4}}}}));  // a box
  const std::string text = sealed_text(good);
  const int count = test::fuzz_count(60);
  for (int i = 0; i < count; ++i) {
    Mutator mutator(static_cast<uint64_t>(i));
    const std::string input =
        i % 4 == 0 ? mutator.damaged_text(text) : sealed_text(mutator.damaged_json(good));
    std::ofstream(folder / manifest_name) << input;
    tally.count([&] { load(folder); }, input);
  }
  EXPECT_EQ(tally.read + tally.refused, count);
  EXPECT_GT(tally.refused, count / 2);
}

std::string file_with(const std::string& header, const std::string& data) {
  const uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), 8) + header + data;
}

TEST_F(Fuzz, SafetensorsHeader) {
  const fs::path file = dir / "x.safetensors";
  write_safetensors(file, {{"w", at::full({3, 2}, 1.0)}, {"none", at::full({0, 3}, 1.0)}},
                    {{"format", "pt"}});
  const std::string good = test::text_of(file);
  uint64_t length = 0;
  std::memcpy(&length, good.data(), 8);
  const json header = json::parse(good.substr(8, length));
  const std::string data = good.substr(8 + length);
  const int count = test::fuzz_count(60);
  for (int i = 0; i < count; ++i) {
    Mutator mutator(static_cast<uint64_t>(i));
    const std::string changed =
        mutator.damaged_json(header).dump(-1, ' ', false, json::error_handler_t::replace);
    const std::string input = i % 3 == 0 ? mutator.damaged_text(good)
                              : i % 3 == 1
                                  ? file_with(mutator.damaged_text(good.substr(8, length)), data)
                                  : file_with(changed, data);
    std::ofstream(file, std::ios::binary) << input;
    tally.count([&] { read_safetensors(file); }, input);
    tally.count([&] { Reader::open(file); }, input);
  }
  EXPECT_EQ(tally.read + tally.refused, 2 * count);
}

}  // namespace
}  // namespace braid::checkpoint
