// SPDX-License-Identifier: BSD-3-Clause
// All of the matrix; the pairs of tests/plan are among them.
#include "support/plan_matrix.h"

namespace braid::test {
namespace {

class WholePlanMatrix : public testing::TestWithParam<std::string> {};

TEST_P(WholePlanMatrix, SaysTheBytesOfEachRank) {
  for (const MatrixCase& each : matrix())
    if (each.model == GetParam()) expect_matrix(each);
}

INSTANTIATE_TEST_SUITE_P(Models, WholePlanMatrix,
                         testing::Values("vit", "swinir", "gpt", "llama", "moe"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace braid::test
