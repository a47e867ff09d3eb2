// SPDX-License-Identifier: BSD-3-Clause
// The dry run of a step takes, to the byte, what the real step takes on the CPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "braid/train/measure.h"
#include "support/dry_real.h"
#include "support/small_runs.h"

namespace braid {
namespace {

struct Case {
  nn::ModelName model;
  std::string precision;
  std::optional<std::string> stream = {};
};

train::RunOptions run_of(const Case& c) {
  train::RunOptions run = test::small_run(c.model, c.precision);
  run.train.stream = c.stream;
  return run;
}

void PrintTo(const Case& c, std::ostream* out) {
  *out << test::name_of(c.model) << " " << c.precision << " " << c.stream.value_or("");
}

class DryEqualsReal : public testing::TestWithParam<Case> {};

TEST_P(DryEqualsReal, ToTheByte) {
  const train::RunOptions run = run_of(GetParam());
  test::expect_dry_is_real(run);
}

TEST_P(DryEqualsReal, OperatorByOperator) {
  const train::RunOptions run = run_of(GetParam());
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
  for (const auto model :
       {nn::ModelName::vit, nn::ModelName::swinir, nn::ModelName::gpt, nn::ModelName::llama})
    all.push_back({model, "bf16", "bf16"});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Models, DryEqualsReal, testing::ValuesIn(cases()), [](const auto& info) {
  return std::string(test::name_of(info.param.model)) + "_" + info.param.precision +
         (info.param.stream ? "_stream" : "");
});

}  // namespace
}  // namespace braid
