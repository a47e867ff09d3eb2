// SPDX-License-Identifier: BSD-3-Clause
// The files about a ledger say what the ledger says, of a real run and of its dry twin.
#include "braid/train/memory_files.h"

#include <gtest/gtest.h>

#include <ATen/core/Tensor.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "braid/memory/instruments.h"
#include "support/files.h"

namespace braid::test {
namespace {

using nlohmann::json;

json parsed_file(const std::filesystem::path& file) {
  std::ifstream stream(file);
  return json::parse(stream);
}

// Forward and backward of two layers, counted.
memory::Ledger two_layers(bool dry) {
  memory::Ledger ledger;
  const memory::Instruments on({.ledger = &ledger, .dry = dry});
  const at::Tensor w = at::ones({32, 32}).requires_grad_();
  mark(w, MemoryKind::parameter);
  const at::Tensor x = at::ones({64, 32});
  mark(x, MemoryKind::input);
  ledger.begin();
  at::Tensor y = x;
  for (const char* layer : {"layers.0", "layers.1"}) {
    const ModuleScope here(layer);
    y = y.mm(w).tanh();
  }
  y.sum().backward();
  mark(w.grad(), MemoryKind::gradient);
  return ledger;
}

int64_t row_sum(const json& row) {
  int64_t sum = 0;
  for (const json& bytes : row) sum += bytes.get<int64_t>();
  return sum;
}

TEST(MemoryFilesOfALedger, ThePeakAndItsCategoriesAreThoseOfTheLedger) {
  const memory::Ledger ledger = two_layers(false);
  TempDir dir;
  const auto files = train::write_memory_files(ledger, memory::cpu, dir / "profile", 0);
  ASSERT_EQ(files.size(), 4U);
  const json sizes = parsed_file(files[1])[1];
  const auto most = std::ranges::max_element(
      sizes, [](const json& a, const json& b) { return row_sum(a) < row_sum(b); });
  const memory::Peak peak = ledger.peak(memory::cpu);
  EXPECT_EQ(row_sum(*most), peak.bytes);
  const auto bytes = [&](memory::TimelineCategory category) {
    return (*most)[static_cast<size_t>(category) + 1].get<int64_t>();
  };
  EXPECT_EQ(bytes(memory::TimelineCategory::parameter), 32 * 32 * 4);
  EXPECT_EQ(bytes(memory::TimelineCategory::input), 64 * 32 * 4);
  EXPECT_EQ(bytes(memory::TimelineCategory::activation),
            peak.by_kind[static_cast<size_t>(MemoryKind::activation)]);
  EXPECT_EQ(row_sum(sizes.back()), ledger.live(memory::cpu));
}

TEST(MemoryFilesOfALedger, TheDryRunHasTheSameTimelineButForTheTimes) {
  TempDir dir;
  const auto real = train::write_memory_files(two_layers(false), memory::cpu, dir / "real", 0);
  const auto dry = train::write_memory_files(two_layers(true), memory::cpu, dir / "dry", 0);
  EXPECT_EQ(parsed_file(real[1])[1], parsed_file(dry[1])[1]);
}

TEST(MemoryFilesOfALedger, TheRawFormAddsUpToTheTimeline) {
  TempDir dir;
  const auto files = train::write_memory_files(two_layers(false), memory::cpu, dir / "a", 0);
  std::vector<int64_t> by_category(8);
  for (const json& change : parsed_file(files[2]))
    by_category[change[3].get<size_t>()] += change[2].get<int64_t>();
  json last = parsed_file(files[1])[1].back();
  last.erase(0);
  EXPECT_EQ(last, json(by_category));
}

}  // namespace
}  // namespace braid::test
