// SPDX-License-Identifier: BSD-3-Clause
// Every pair of axes on four ranks and triples on eight, with accumulation, uneven batches and
// dropout, against one process.
#include "ranks/axes.h"

namespace braid::test {
namespace {

using nn::ModelName;

class AxesTogether : public testing::TestWithParam<AxesCase> {};

TEST_P(AxesTogether, AreOneProcess) { expect_layout(GetParam()); }

constexpr const char* axis_words[] = {"pipeline2", "data2",    "shard2_z1", "shard2_z2",
                                      "shard2_z3", "context2", "tensor2",   "moe4_expert2"};

bool of_one_axis(const std::string& a, const std::string& b) {
  return a.substr(0, 4) == b.substr(0, 4);
}

// GPT has every stage of ZeRO in every pair; of the others the third one, which has most to do.
std::vector<AxesCase> pairs_of(ModelName model, bool experts) {
  const bool every_stage = model == ModelName::gpt;
  std::vector<AxesCase> cases;
  for (size_t i = 0; i < std::size(axis_words); ++i)
    for (size_t j = i + 1; j < std::size(axis_words); ++j) {
      const std::string a = axis_words[i], b = axis_words[j];
      if (of_one_axis(a, b) || (!experts && b.starts_with("moe"))) continue;
      const auto early = [](const std::string& words) {
        return words.ends_with("z1") || words.ends_with("z2");
      };
      if (!every_stage && (early(a) || early(b))) continue;
      cases.push_back({model, a + "_" + b + "_micro2"});
    }
  return cases;
}

const auto axes_name = [](const auto& info) { return case_text(info.param); };
INSTANTIATE_TEST_SUITE_P(GptPairs, AxesTogether, testing::ValuesIn(pairs_of(ModelName::gpt, true)),
                         axes_name);
INSTANTIATE_TEST_SUITE_P(LlamaPairs, AxesTogether,
                         testing::ValuesIn(pairs_of(ModelName::llama, true)), axes_name);
INSTANTIATE_TEST_SUITE_P(VitPairs, AxesTogether, testing::ValuesIn(pairs_of(ModelName::vit, false)),
                         axes_name);

std::vector<AxesCase> triples() {
  std::vector<AxesCase> cases;
  for (const char* words :
       {"pipeline2_tensor2_data2_micro2", "pipeline2_tensor2_context2_micro2",
        "pipeline2_context2_shard2_z3_micro2", "pipeline2_tensor2_shard2_z2_micro2",
        "pipeline2_tensor2_shard2_z3_micro2", "tensor2_context2_data2",
        "tensor2_context2_shard2_z3_micro2", "tensor2_context2_shard2_z1",
        "data2_shard2_z3_tensor2", "data2_shard2_z3_context2_ring"})
    for (const ModelName model : {ModelName::gpt, ModelName::llama, ModelName::vit})
      cases.push_back({model, words});
  for (const char* words :
       {"pipeline2_data2_shard2_z2_micro2", "pipeline2_data2_context2_micro2",
        "pipeline2_data2_moe4_expert2_micro2", "pipeline2_context2_moe4_expert2_micro2",
        "data2_shard2_z3_moe4_expert2", "data2_tensor2_moe4_expert2",
        "context2_shard2_z3_moe4_expert2", "pipeline2_tensor2_moe4_expert2_micro2",
        "tensor2_context2_moe4_expert2_micro2", "pipeline2_shard2_z3_moe4_expert2_micro2",
        "tensor2_shard2_z2_moe4_expert2", "data2_context2_moe4_expert2"})
    cases.push_back({ModelName::gpt, words});
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Triples, AxesTogether, testing::ValuesIn(triples()), axes_name);

std::vector<AxesCase> of_swinir() {
  std::vector<AxesCase> cases;
  for (const char* words :
       {"context2_data2_micro2", "context2_shard2_z1_micro2", "context2_shard2_z2_micro2",
        "context2_shard2_z3_micro2", "pipeline2_context2_micro2", "pipeline2_data2_micro2",
        "pipeline2_shard2_z3_micro2", "tensor2_context2_micro2", "tensor2_data2_micro2",
        "tensor2_shard2_z3_micro2", "tensor2_pipeline2_micro2"})
    cases.push_back({ModelName::swinir, words});
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Swinir, AxesTogether, testing::ValuesIn(of_swinir()), axes_name);

// Every schedule with what ZeRO shards, on ranks of one and of several stages.
std::vector<AxesCase> schedules() {
  std::vector<AxesCase> cases;
  for (const char* schedule : {"gpipe", "1f1b", "interleaved_chunks2", "zbh1", "zbh2", "zbv"})
    for (const char* zero : {"data2", "shard2_z1", "shard2_z2", "shard2_z3"})
      cases.push_back({ModelName::gpt, fmt::format("pipeline2_{}_{}_micro1", zero, schedule)});
  for (const char* schedule : {"interleaved_chunks2", "zbh1", "zbv"})
    cases.push_back({ModelName::llama, fmt::format("pipeline2_tensor2_{}_micro2", schedule)});
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Schedules, AxesTogether, testing::ValuesIn(schedules()), axes_name);

class AxesInBf16 : public testing::TestWithParam<AxesCase> {};

TEST_P(AxesInBf16, IsItsOwnReference) { expect_layout(GetParam(), 0.05, 7, "bf16"); }

INSTANTIATE_TEST_SUITE_P(Layouts, AxesInBf16,
                         testing::Values(AxesCase{ModelName::gpt, "tensor2_pipeline2_micro2"},
                                         AxesCase{ModelName::llama, "tensor2_context2"},
                                         AxesCase{ModelName::vit, "context2_shard2_z3_micro2"},
                                         AxesCase{ModelName::gpt, "data2_moe4_expert2"}),
                         axes_name);

}  // namespace
}  // namespace braid::test
