// SPDX-License-Identifier: BSD-3-Clause
// The dry run of a step takes, to the byte, what the real step takes on the CPU.
#include <gtest/gtest.h>

#include <map>

#include "braid/core/units.h"
#include "braid/train/measure.h"
#include "support/cpu.h"
#include "support/small_runs.h"

namespace braid {
namespace {

struct Case {
  nn::ModelName model;
  std::string precision;
};

void PrintTo(const Case& c, std::ostream* out) {
  *out << test::name_of(c.model) << " " << c.precision;
}

// Kernels of the CPU that take scratch whose size only they know. Nothing else is excused.
const std::map<std::string, std::string>& cpu_scratch() {
  static const std::string casts = "an operand of another dtype is cast into a copy";
  static const std::string packs = "oneDNN and MKL pack and reorder operands";
  static const std::string threads = "each thread sums into a buffer of its own";
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
      {"aten::index_add_", "a source of other strides is copied"},
      {"aten::sum", threads},
      {"aten::addmm", packs},
      {"aten::mm", packs},
      {"aten::bmm", packs},
      {"aten::convolution", packs},
      {"aten::convolution_backward", packs},
      {"aten::_scaled_dot_product_flash_attention_for_cpu", packs},
      {"aten::_scaled_dot_product_flash_attention_for_cpu_backward", packs}};
  return reasons;
}

std::string difference(const memory::Peak& dry, const memory::Peak& real) {
  std::string text = "dry " + std::to_string(dry.bytes) + ", real " + std::to_string(real.bytes) +
                     "; dry peak in " + dry.op + " of " + dry.module + ", real in " + real.op +
                     " of " + real.module + "\n";
  for (int kind = 0; kind < memory_kinds; ++kind)
    text += std::string(to_text(static_cast<MemoryKind>(kind))) + " " +
            std::to_string(dry.by_kind[kind]) + " / " + std::to_string(real.by_kind[kind]) + "\n";
  return text;
}

void expect_same(const train::Phase& dry, const train::Phase& real, const char* phase) {
  SCOPED_TRACE(phase);
  EXPECT_EQ(dry.without_scratch.bytes, real.without_scratch.bytes)
      << difference(dry.without_scratch, real.without_scratch);
  EXPECT_EQ(dry.without_scratch.by_kind, real.without_scratch.by_kind);
  EXPECT_EQ(dry.left, real.left);
  for (const auto& [op, scratch] : real.scratch) {
    const auto modelled = dry.scratch.find(op);
    if (modelled != dry.scratch.end() && modelled->second.bytes == scratch.bytes) continue;
    EXPECT_TRUE(cpu_scratch().contains(op))
        << op << " takes " << scratch.bytes << " bytes of scratch, dry "
        << (modelled == dry.scratch.end() ? 0 : modelled->second.bytes);
  }
}

class DryEqualsReal : public testing::TestWithParam<Case> {};

TEST_P(DryEqualsReal, ToTheByte) {
  const train::RunOptions run = test::small_run(GetParam().model, GetParam().precision);
  const train::Measured real = train::measure(run, {.dry = false});
  const train::Measured dry = train::measure(run, {.dry = true});
  expect_same(dry.backward, real.backward, "forward and backward");
  expect_same(dry.first_step, real.first_step, "first step");
  expect_same(dry.second_step, real.second_step, "second step");
  expect_same(dry.evaluation, real.evaluation, "evaluation");
  EXPECT_EQ(dry.log.flops(), real.log.flops());
  EXPECT_EQ(dry.log.operators().size(), real.log.operators().size());
}

TEST_P(DryEqualsReal, OperatorByOperator) {
  const train::RunOptions run = test::small_run(GetParam().model, GetParam().precision);
  const auto real = train::log_step(run, {.dry = false}).operators();
  const auto dry = train::log_step(run, {.dry = true}).operators();
  for (size_t i = 0; i < std::min(real.size(), dry.size()); ++i) {
    ASSERT_EQ(dry[i].name, real[i].name) << "operator " << i << " in " << real[i].module;
    ASSERT_EQ(dry[i].outputs, real[i].outputs) << real[i].name;
    ASSERT_EQ(dry[i].module, real[i].module) << real[i].name;
  }
  EXPECT_EQ(dry.size(), real.size());
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const auto model : {nn::ModelName::mlp, nn::ModelName::vit, nn::ModelName::swinir,
                           nn::ModelName::gpt, nn::ModelName::llama})
    for (const char* precision : {"fp32", "bf16"}) all.push_back({model, precision});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Models, DryEqualsReal, testing::ValuesIn(cases()), [](const auto& info) {
  return std::string(test::name_of(info.param.model)) + "_" + info.param.precision;
});

}  // namespace
}  // namespace braid
