// SPDX-License-Identifier: BSD-3-Clause
// The published worked example: a GPT of 147 M parameters, to the digit.
#include "braid/plan/terms.h"

#include <gtest/gtest.h>

#include "support/expect.h"

namespace braid::plan {
namespace {

using braid::test::contains;

nn::GptOptions first_gpt() {
  return {
      .vocabulary = 40512, .sequence = 512, .layers = 12, .heads = 12, .width = 768, .tied = false};
}

TEST(Terms, ParametersOfThePublishedGpt) {
  const GptTerms t = gpt_terms(first_gpt(), 64);
  EXPECT_EQ(t.block, 7'087'872);
  EXPECT_EQ(t.blocks, 85'054'464);
  EXPECT_EQ(t.tokens, 31'113'216);
  EXPECT_EQ(t.positions, 393'216);
  EXPECT_EQ(t.parameters, 147'674'112);
  nn::GptOptions tied = first_gpt();
  tied.tied = true;
  EXPECT_EQ(gpt_terms(tied, 64).parameters, 116'560'896);
}

TEST(Terms, PublishedAccounting) {
  const GptTerms t = gpt_terms(first_gpt(), 64);
  EXPECT_EQ(t.published.weights, 294'000'000);
  EXPECT_EQ(t.published.optimizer, 2'352'000'000);
  EXPECT_EQ(t.published.gradients, 294'000'000);
  EXPECT_EQ(t.published.states, 2'940'000'000);
  EXPECT_EQ(t.scores_factor, 40);
  EXPECT_EQ(t.factor, 74);
  EXPECT_EQ(t.sample, 349'175'808);
  EXPECT_EQ(t.activations, 22'347'251'712);
  EXPECT_EQ(t.published.total, 25'287'251'712);
  EXPECT_EQ(t.published.with_reserve, 30'344'702'054);
}

TEST(Terms, OwnAccounting) {
  const GptTerms t = gpt_terms(first_gpt(), 64);
  EXPECT_EQ(t.exact.states, 2'362'785'792);
  EXPECT_EQ(t.exact.total, 24'710'037'504);
  EXPECT_EQ(t.logits, 5'309'988'864);
  EXPECT_EQ(t.exact.with_logits, 30'020'026'368);
  EXPECT_EQ(t.sample_selective, 160'432'128);
  EXPECT_EQ(t.sample_full, 9'437'184);
}

TEST(Terms, TableStandsBesideADryRunOfTheStep) {
  train::RunOptions options;
  options.model.name = nn::ModelName::gpt;
  options.model.gpt = first_gpt();
  options.data.sequence = 512;
  options.train.steps = 1;
  options.train.global_batch = 64;
  options.train.loss = nn::Loss::cross_entropy;
  options.train.precision = "bf16";
  options.optimizer.rule.name = optim::Algorithm::adamw;
  const std::string text = terms_text(options);
  for (const char* part : {"7,087,872", "147,674,112", "147,675,648", "294,000,000",
                           "2,352,000,000", "10 + 24 + 5 a s / h = 34 + 40", "349,175,808",
                           "22,347,251,712", "25,287,251,712", "24,710,037,504", "30,020,026,368",
                           "30,344,702,054", "5,309,988,864", "dry run", "bf16, micro-batch 64"})
    EXPECT_TRUE(contains(text, part));
  options.model.name = nn::ModelName::vit;
  EXPECT_TRUE(contains(braid::test::error_of([&] { terms_text(options); }), "no gpt"));
}

}  // namespace
}  // namespace braid::plan
