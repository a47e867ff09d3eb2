// SPDX-License-Identifier: BSD-3-Clause
// Include once in a test program that computes in bf16: the programs of braid do the same at their
// start.
#pragma once
#include <gtest/gtest.h>

#include "braid/core/cpu.h"

namespace braid::test {

class UsableCpu : public testing::Environment {
 public:
  void SetUp() override { avoid_broken_amx(); }
};

inline testing::Environment* const usable_cpu = testing::AddGlobalTestEnvironment(new UsableCpu);

}  // namespace braid::test
