// SPDX-License-Identifier: BSD-3-Clause
#include "support/plan_matrix.h"

namespace braid::test {
namespace {

class PlanMatrix : public testing::TestWithParam<MatrixCase> {};

TEST_P(PlanMatrix, SaysTheBytesOfEachRank) { expect_matrix(GetParam()); }

INSTANTIATE_TEST_SUITE_P(Pairs, PlanMatrix, testing::ValuesIn(matrix_cover()),
                         [](const auto& info) { return matrix_text(info.param); });

}  // namespace
}  // namespace braid::test
