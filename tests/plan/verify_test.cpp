// SPDX-License-Identifier: BSD-3-Clause
// A plan beside the real step, on the CPU.
#include "braid/plan/verify.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "support/expect.h"
#include "train/run.h"

namespace braid::plan {
namespace {

using braid::test::contains;

TEST(Verify, DryBytesAreTheRealOnesOnTheCpu) {
  for (const std::string& yaml : {train::vit_run, train::gpt_run}) {
    const Verified seen = verify(train::run_of(yaml, {"train.threads=1"}));
    EXPECT_TRUE(seen.holds(0.001)) << to_text(seen);
    ASSERT_GE(seen.rows.size(), 6u);
    for (size_t i = 0; i + 1 < seen.rows.size(); ++i) {
      // Where a kernel took scratch, the next row leaves it out.
      if (seen.rows[i + 1].name == "  without scratch of kernels") continue;
      EXPECT_EQ(seen.rows[i].predicted, seen.rows[i].measured) << to_text(seen);
    }
    EXPECT_GT(seen.rows.back().measured, 0);  // the time of a step
    EXPECT_FALSE(seen.rows.back().judged);
  }
}

TEST(Verify, WhatIsOffByMoreThan5PercentDoesNotHold) {
  Verified seen;
  seen.device = "cpu";
  seen.layout = "one process";
  seen.rows = {{"later steps", 1000, 1049, true, true}, {"  activation", 10, 900, true, false}};
  EXPECT_TRUE(seen.holds());
  EXPECT_FALSE(seen.holds(0.04));
  seen.rows[0].measured = 940;
  EXPECT_FALSE(seen.holds());
  EXPECT_TRUE(contains(to_text(seen), "-6.00 %"));
  const auto json = nlohmann::json::parse(to_json(seen));
  EXPECT_EQ(json["holds"], false);
  EXPECT_EQ(json["rows"][1]["name"], "activation");
}

}  // namespace
}  // namespace braid::plan
