// SPDX-License-Identifier: BSD-3-Clause
// A residual stream of another dtype than the parameters, spread over ranks, against one process.
#include "ranks/axes.h"

namespace braid::test {
namespace {

using nn::ModelName;

class AxesOfStreams : public testing::TestWithParam<AxesCase> {};

TEST_P(AxesOfStreams, AreOneProcess) { expect_layout(GetParam(), 1e-4); }

std::vector<AxesCase> cases_of_streams() {
  std::vector<AxesCase> cases;
  for (const ModelName model : {ModelName::gpt, ModelName::llama, ModelName::vit})
    for (const char* words :
         {"narrow_pipeline2_micro2", "narrow_tensor2", "narrow_context2", "narrow_shard2_z3"})
      cases.push_back({model, words});
  for (const char* words : {"narrow_pipeline2_micro2", "narrow_tensor2_context2"})
    cases.push_back({ModelName::swinir, words});
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Layouts, AxesOfStreams, testing::ValuesIn(cases_of_streams()),
                         [](const auto& info) { return case_text(info.param); });

}  // namespace
}  // namespace braid::test
