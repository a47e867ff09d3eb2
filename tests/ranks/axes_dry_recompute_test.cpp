// SPDX-License-Identifier: BSD-3-Clause
// What is computed again and what lies on the host, alone and together, in every layout: the step
// of a rank without data takes the bytes of one with data.
#include "ranks/axes.h"
#include "support/dry_real.h"
#include "support/memory_choices.h"

namespace braid::test {
namespace {

using nn::ModelName;

void expect_layout_bytes(const AxesCase& given, const std::string& words, bool first) {
  SCOPED_TRACE(words);
  train::RunOptions run = run_for(given, "fp32");
  run.train.global_batch = 8;
  run.memory = memory_words(words);
  if (!run.mesh.data) run.mesh.data = 1;
  if (!run.mesh.shard) run.mesh.shard = 1;
  const int world = ranks_in(run);
  expect_dry_is_real(run, {.world = world, .rank = first ? 0 : world - 1});
}

// Rank 0 and the last one in turns.
void expect_words(const AxesCase& given, const std::vector<std::string>& all) {
  bool first = false;
  for (const std::string& words : all) expect_layout_bytes(given, words, first = !first);
}

std::vector<std::string> words_for(const std::string& layout) {
  std::vector<std::string> words = {"blocks",
                                    "blocks2",
                                    "attention",
                                    "matmuls",
                                    "optimizer",
                                    "activations",
                                    "optimizer_activations",
                                    "blocks_optimizer_activations",
                                    "matmuls_optimizer",
                                    "attention_activations"};
  if (layout.find("z3") != std::string::npos)
    for (const char* more : {"parameters", "parameters_optimizer", "blocks2_parameters",
                             "blocks_parameters_optimizer_activations"})
      words.emplace_back(more);
  return words;
}

class LayoutChoices : public testing::TestWithParam<AxesCase> {};

TEST_P(LayoutChoices, DryTakesWhatRealTakes) {
  expect_words(GetParam(), words_for(GetParam().words));
}

const auto layout_name = [](const auto& info) { return case_text(info.param); };

std::vector<AxesCase> one_axis() {
  std::vector<AxesCase> cases;
  for (const char* words : {"data2", "shard2_z1", "shard2_z2", "shard2_z3", "tensor2",
                            "tensor2_whole", "context2", "pipeline2_1f1b_micro2"})
    for (const auto model : {ModelName::gpt, ModelName::llama, ModelName::vit, ModelName::swinir}) {
      const bool banded = model == ModelName::swinir && std::string(words) == "tensor2_whole";
      if (!banded) cases.push_back({model, words});  // swinir's tokens are never split by tensor
    }
  // Without a capacity what a rank of experts gets is up to the tokens; a dry run spreads them
  // evenly.
  cases.push_back({ModelName::gpt, "moe4_expert2_full"});
  cases.push_back({ModelName::llama, "moe4_expert2_full"});
  cases.push_back({ModelName::mlp, "shard2_z3"});
  return cases;
}
INSTANTIATE_TEST_SUITE_P(OneAxis, LayoutChoices, testing::ValuesIn(one_axis()), layout_name);

INSTANTIATE_TEST_SUITE_P(Pairs, LayoutChoices,
                         testing::Values(AxesCase{ModelName::gpt, "tensor2_shard2_z3_micro2"},
                                         AxesCase{ModelName::gpt, "pipeline2_shard2_z3_micro2"},
                                         AxesCase{ModelName::gpt, "context2_shard2_z2_ring"},
                                         AxesCase{ModelName::gpt, "shard2_z3_moe4_expert2_full"},
                                         AxesCase{ModelName::vit, "tensor2_context2"},
                                         AxesCase{ModelName::swinir, "context2_shard2_z2"},
                                         AxesCase{ModelName::swinir, "context2_pipeline2_micro2"}),
                         layout_name);

// The same beside other ranks, over a network.
class LayoutChoicesTogether : public testing::TestWithParam<AxesCase> {};

TEST_P(LayoutChoicesTogether, DryTakesWhatARankOfManyTakes) {
  for (const char* words : {"kept", "blocks_optimizer_activations"}) {
    train::RunOptions run = run_for(GetParam(), "fp32");
    run.train.global_batch = 8;
    run.memory = memory_words(words);
    if (!run.mesh.data) run.mesh.data = 1;
    if (!run.mesh.shard) run.mesh.shard = 1;
    const int world = ranks_in(run);
    on_ranks(world, [&](comm::Group group) {
      SCOPED_TRACE(fmt::format("rank {} of {}, {}", group.rank(), world, words));
      const train::Ranks ranks = ranks_of(group, run);
      const train::Measured real = train::measure(run, {.dry = false, .ranks = &ranks});
      const train::Measured dry = train::measure(run, {.world = world, .rank = group.rank()});
      expect_same_phase(dry.backward, real.backward, "forward and backward");
      expect_same_phase(dry.first_step, real.first_step, "first step");
      expect_same_phase(dry.second_step, real.second_step, "second step");
    });
  }
}
INSTANTIATE_TEST_SUITE_P(Layouts, LayoutChoicesTogether,
                         testing::Values(AxesCase{ModelName::gpt, "data2"},
                                         AxesCase{ModelName::gpt, "shard2_z3"},
                                         AxesCase{ModelName::llama, "tensor2"},
                                         AxesCase{ModelName::vit, "context2"},
                                         AxesCase{ModelName::swinir, "context2_shard2_z2"},
                                         AxesCase{ModelName::gpt, "pipeline2_1f1b_micro2"},
                                         AxesCase{ModelName::llama, "moe4_expert2_full"}),
                         layout_name);

// One process, what the test of tests/dry leaves out.
class AllChoices : public testing::TestWithParam<ChoiceCase> {};

TEST_P(AllChoices, DryTakesWhatRealTakes) { expect_choice(GetParam()); }

std::vector<ChoiceCase> left_out() {
  std::vector<ChoiceCase> left;
  const std::vector<ChoiceCase> cover = choice_cover();
  for (const ChoiceCase& each : all_choices())
    if (std::none_of(cover.begin(), cover.end(), [&](const ChoiceCase& other) {
          return choice_text(other) == choice_text(each);
        }))
      left.push_back(each);
  return left;
}
INSTANTIATE_TEST_SUITE_P(OneProcess, AllChoices, testing::ValuesIn(left_out()),
                         [](const auto& info) { return choice_text(info.param); });

}  // namespace
}  // namespace braid::test
