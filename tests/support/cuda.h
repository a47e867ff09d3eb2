// SPDX-License-Identifier: BSD-3-Clause
// A fixture for tests that need a GPU.
#pragma once
#include <gtest/gtest.h>

#include "braid/core/accelerator.h"

namespace braid {

class OnGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (accelerator() == nullptr) GTEST_SKIP() << accelerator_status().reason;
  }
  static c10::Device gpu() { return {c10::kCUDA, 0}; }
};

}  // namespace braid
