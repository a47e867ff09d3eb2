// SPDX-License-Identifier: BSD-3-Clause
// CUDA tensors without data in a process without CUDA libraries: the few places where torch asks
// the device something are answered here.
#pragma once

namespace braid::memory {

// While one lives, torch believes in one CUDA device. Does nothing where there is a real one.
class PretendCuda {
 public:
  PretendCuda();
  ~PretendCuda();
  PretendCuda(const PretendCuda&) = delete;
  PretendCuda& operator=(const PretendCuda&) = delete;

 private:
  bool pretends_;
};

}  // namespace braid::memory
