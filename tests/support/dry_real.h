// SPDX-License-Identifier: BSD-3-Clause
// A step without data against the same step with data, to the byte, in any layout and with any
// choice of the `memory` section.
//
//   run.memory = test::memory_words("blocks2_optimizer_activations");
//   test::expect_dry_is_real(run, {.world = 4, .rank = 3});
#pragma once
#include <gtest/gtest.h>

#include <map>
#include <sstream>
#include <string>
#include <tuple>
#include <utility>

#include "braid/train/measure.h"

namespace braid::test {

// Kernels of the CPU that take scratch whose size only they know. Nothing else is excused.
inline const std::map<std::string, std::string>& cpu_scratch() {
  static const std::string casts = "an operand of another dtype is cast into a copy";
  static const std::string packs = "oneDNN and MKL pack and reorder operands";
  static const std::string threads = "each thread sums into a buffer of its own";
  static const std::string strides = "an operand of other strides is copied";
  static const std::string rows = "a few rows at a time are computed in the cache";
  static const std::map<std::string, std::string> reasons = {
      {"aten::gather", casts},
      {"braid::row_logsumexp", rows},
      {"braid::cross_entropy_grad", rows},
      {"aten::add", casts},
      {"aten::add_", casts},
      {"aten::sub", casts},
      {"aten::sub_", casts},
      {"aten::mul", casts},
      {"aten::mul_", casts},
      {"aten::div", casts},
      {"aten::div_", casts},
      {"aten::eq", casts},
      {"aten::pow", casts},
      {"aten::mean", casts},
      {"aten::_foreach_add_", casts},
      {"aten::_foreach_norm", casts},
      {"aten::sort", "a radix sort moves keys between two buffers"},
      {"aten::scatter_", "values of 16 bits are put into a copy of 32 first"},
      {"aten::index_add_", strides},
      {"aten::embedding_dense_backward", strides},
      {"aten::sum", threads},
      {"braid::linear_gelu", packs},
      {"aten::addmm", packs},
      {"aten::addmm_", packs},
      {"aten::mm", packs},
      {"aten::bmm", packs},
      {"aten::convolution", packs},
      {"aten::convolution_backward", packs},
      {"aten::_scaled_dot_product_flash_attention_for_cpu", packs},
      {"aten::_scaled_dot_product_flash_attention_for_cpu_backward", packs}};
  return reasons;
}

inline std::string peak_difference(const memory::Peak& dry, const memory::Peak& real) {
  std::string text = "dry " + std::to_string(dry.bytes) + ", real " + std::to_string(real.bytes) +
                     "; dry peak in " + dry.op + " of " + dry.module + ", real in " + real.op +
                     " of " + real.module + "\n";
  for (int kind = 0; kind < memory_kinds; ++kind)
    text += std::string(to_text(static_cast<MemoryKind>(kind))) + " " +
            std::to_string(dry.by_kind[kind]) + " / " + std::to_string(real.by_kind[kind]) + "\n";
  std::map<std::string, int> blocks;  // real ones less dry ones
  const auto name = [](const memory::Held& held) {
    return std::to_string(held.bytes) + " " + std::string(to_text(held.kind)) + " of " + held.op +
           " " + held.module;
  };
  for (const memory::Held& held : real.alive) ++blocks[name(held)];
  for (const memory::Held& held : dry.alive) --blocks[name(held)];
  for (const auto& [block, count] : blocks)
    if (count != 0) text += "  " + std::to_string(count) + " more real: " + block + "\n";
  return text;
}

inline void expect_same_phase(const train::Phase& dry, const train::Phase& real,
                              const char* phase) {
  SCOPED_TRACE(phase);
  EXPECT_EQ(dry.without_scratch.bytes, real.without_scratch.bytes)
      << peak_difference(dry.without_scratch, real.without_scratch);
  EXPECT_EQ(dry.without_scratch.by_kind, real.without_scratch.by_kind)
      << peak_difference(dry.without_scratch, real.without_scratch);
  EXPECT_EQ(dry.before, real.before);
  EXPECT_EQ(dry.left, real.left);
  for (const auto& [op, scratch] : real.scratch) {
    const auto modelled = dry.scratch.find(op);
    if (modelled != dry.scratch.end() && modelled->second.bytes == scratch.bytes) continue;
    EXPECT_TRUE(cpu_scratch().contains(op))
        << op << " takes " << scratch.bytes << " bytes of scratch, dry "
        << (modelled == dry.scratch.end() ? 0 : modelled->second.bytes);
  }
}

// Peak, kinds and what is left, of every phase.
inline void expect_dry_is_real(const train::RunOptions& run, train::MeasureOptions how = {}) {
  const auto measured = [&](bool dry) {
    how.dry = dry;
    return train::measure(run, how);
  };
  const train::Measured dry = measured(true), real = measured(false);
  EXPECT_GT(dry.second_step.peak.bytes, 0);
  expect_same_phase(dry.backward, real.backward, "forward and backward");
  expect_same_phase(dry.first_step, real.first_step, "first step");
  expect_same_phase(dry.second_step, real.second_step, "second step");
  expect_same_phase(dry.evaluation, real.evaluation, "evaluation");
  EXPECT_EQ(dry.log.flops(), real.log.flops());
}

// "blocks2_optimizer_activations": memory.recompute = blocks, memory.segment = 2,
// memory.offload = [optimizer, activations]. "kept": neither.
inline memory::MemoryOptions memory_words(const std::string& words) {
  static const std::map<std::string, std::pair<memory::Again, int64_t>> recompute = {
      {"blocks", {memory::Again::blocks, 1}},
      {"blocks2", {memory::Again::blocks, 2}},
      {"root", {memory::Again::blocks, 0}},
      {"attention", {memory::Again::attention, 1}},
      {"matmuls", {memory::Again::matmuls, 1}}};
  memory::MemoryOptions options;
  std::istringstream all(words);
  for (std::string word; std::getline(all, word, '_');) {
    if (word == "kept") continue;
    const auto again = recompute.find(word);
    if (again == recompute.end())
      options.offload.push_back(word);
    else
      std::tie(options.recompute, options.segment) = again->second;
  }
  return options;
}

}  // namespace braid::test
