// SPDX-License-Identifier: BSD-3-Clause
// Forward and backward pass of every operator on dry tensors against real ones: the same results,
// and the same peak of the ledger to the byte.
#include <gtest/gtest.h>

#include "braid/memory/instruments.h"
#include "support/op_cases_heavy.h"

namespace braid {
namespace {

struct MeasuredOp {
  std::vector<std::string> found;
  int64_t highest = 0, without_scratch = 0;
};

MeasuredOp measured_op(const test::OpCase& op, bool dry) {
  memory::Ledger ledger;
  MeasuredOp result;
  const memory::Instruments on({.ledger = &ledger, .dry = dry});
  test::Tensors inputs = test::inputs_of(op, c10::kCPU);
  ledger.begin();
  result.found = test::described(test::forward_backward(op, inputs));
  result.highest = ledger.highest(memory::cpu);
  result.without_scratch = ledger.peak_without_scratch(memory::cpu).bytes;
  return result;
}

// What oneDNN takes depends on the processor, so it is in no Meta kernel: reordered images and
// weights of convolutions (fp64 has kernels of torch's own), and blocks of the bf16 matrix products
// inside attention.
bool leans_on_onednn(const test::OpCase& op) {
  const c10::ScalarType dtype = op.inputs.front().dtype;
  if (op.name.starts_with("conv")) return dtype != c10::kDouble;
  return op.name.starts_with("flash_attention") && dtype == c10::kBFloat16;
}

class DryOperator : public testing::TestWithParam<test::OpCase> {};

TEST_P(DryOperator, TakesWhatTheRealOneTakes) {
  measured_op(GetParam(), false);  // what kernels build once and keep
  const MeasuredOp real = measured_op(GetParam(), false), dry = measured_op(GetParam(), true);
  EXPECT_EQ(dry.found, real.found);
  EXPECT_EQ(dry.without_scratch, real.without_scratch);
  if (leans_on_onednn(GetParam()))
    EXPECT_LE(dry.highest, real.highest);
  else
    EXPECT_EQ(dry.highest, real.highest);
}

INSTANTIATE_TEST_SUITE_P(Operators, DryOperator, testing::ValuesIn(test::all_op_cases()),
                         test::word_of<testing::TestParamInfo<test::OpCase>>);

}  // namespace
}  // namespace braid
