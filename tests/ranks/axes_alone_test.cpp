// SPDX-License-Identifier: BSD-3-Clause
// Each axis alone, at 2, 3 and 4 ranks, for every model it applies to, against one process.
#include "ranks/axes.h"

namespace braid::test {
namespace {

using nn::ModelName;

class AxesAlone : public testing::TestWithParam<AxesCase> {};

TEST_P(AxesAlone, IsOneProcess) { expect_layout(GetParam()); }

std::vector<AxesCase> cases_alone() {
  std::vector<AxesCase> cases;
  const auto add = [&](ModelName model, std::initializer_list<const char*> all) {
    for (const char* words : all) cases.push_back({model, words});
  };
  for (const ModelName model : {ModelName::gpt, ModelName::llama, ModelName::vit})
    add(model,
        {"tensor2", "tensor2_whole", "tensor2_regather", "tensor2_overlap2", "tensor3_heads3",
         "tensor4", "tensor4_whole_micro3", "context2", "context3", "context4_micro3",
         "context2_ring", "context4_ring", "context2_swap", "context4_swap"});
  for (const ModelName model : {ModelName::gpt, ModelName::llama, ModelName::vit})
    add(model, {"pipeline2", "pipeline2_micro2", "pipeline3_micro3_gpipe", "pipeline4_micro2",
                "pipeline2_micro1_naive"});
  add(ModelName::gpt, {"pipeline2_micro2_untied", "tensor2_untied"});
  add(ModelName::llama, {"pipeline2_micro2_tied", "tensor2_tied"});
  add(ModelName::swinir, {"tensor2", "context2", "context3_rows24", "context4_rows16_micro3"});
  for (const ModelName model : {ModelName::mlp, ModelName::swinir})
    add(model, {"pipeline2", "pipeline2_micro2"});
  add(ModelName::mlp, {"pipeline3_micro3_zbh1"});
  for (const ModelName model : {ModelName::gpt, ModelName::llama})
    add(model, {"moe4_expert2", "moe6_expert3_micro2", "moe4_expert4", "moe4_expert2_full",
                "moe4_expert4_full_micro2"});
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Layouts, AxesAlone, testing::ValuesIn(cases_alone()),
                         [](const auto& info) { return case_text(info.param); });

}  // namespace
}  // namespace braid::test
