// SPDX-License-Identifier: BSD-3-Clause
// Every Meta kernel against the CPU kernel of the same operator: sizes, strides and dtypes of the
// results and, through autograd, of the gradients.
#include <gtest/gtest.h>

#include "support/op_cases_heavy.h"

namespace braid::kernels {
namespace {

class MetaKernel : public testing::TestWithParam<test::OpCase> {};

TEST_P(MetaKernel, GivesWhatTheCpuGives) {
  const test::OpCase& op = GetParam();
  test::Tensors real = test::inputs_of(op, c10::kCPU), meta = test::inputs_of(op, c10::kMeta);
  const auto wanted = test::described(test::forward_backward(op, real));
  EXPECT_EQ(test::described(test::forward_backward(op, meta)), wanted);
}

INSTANTIATE_TEST_SUITE_P(Operators, MetaKernel, testing::ValuesIn(test::all_op_cases()),
                         test::word_of<testing::TestParamInfo<test::OpCase>>);

}  // namespace
}  // namespace braid::kernels
