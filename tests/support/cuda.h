// SPDX-License-Identifier: BSD-3-Clause
// A fixture for tests that need a GPU, or one that is emulated (tests/emulated).
#pragma once
#include <gtest/gtest.h>

#include "braid/core/accelerator.h"

namespace braid {

#ifdef BRAID_EMULATED
constexpr bool emulated_gpu = true;
#else
constexpr bool emulated_gpu = false;
#endif

// How large a case may be: an emulated GPU is a thousand times slower.
constexpr int64_t on_gpu_or(int64_t size, int64_t emulated) {
  return emulated_gpu ? emulated : size;
}

class OnGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (!emulated_gpu && accelerator() == nullptr) GTEST_SKIP() << accelerator_status().reason;
  }
  static c10::Device gpu() { return {c10::kCUDA, 0}; }
};

}  // namespace braid
