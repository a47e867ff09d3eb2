// SPDX-License-Identifier: BSD-3-Clause
// The main function of all test programs: tests that want equal bits begin where runs of braid do.
#include <gtest/gtest.h>

#include "braid/core/cpu.h"

int main(int count, char** arguments) {
  ::testing::InitGoogleTest(&count, arguments);
  braid::avoid_broken_amx();
  braid::settle_math();
  return RUN_ALL_TESTS();
}
