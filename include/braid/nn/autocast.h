// SPDX-License-Identifier: BSD-3-Clause
// Whose operators a model runs: braid's own, with explicit casts and as few buffers as they need,
// or those that PyTorch runs for the model's first implementation, with torch's own autocast. The
// second one reproduces published memory figures.
//
//   const nn::Autocast inside(nn::Kernels::reference, c10::kCUDA, c10::kHalf);
//   y = at::linear(x, weight);   // casts both; the cast of the weight is kept until `inside` ends
#pragma once
#include <cstdint>

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

namespace braid::nn {

enum class Kernels : uint8_t { braid, reference };

// A region of torch's autocast on this thread, as Python's context manager of that name: which
// operators cast is torch's list for the device, and casts of weights are kept until the outermost
// region ends. Kernels::braid, fp32 and fp64: nothing.
class Autocast {
 public:
  Autocast(Kernels kernels, c10::DeviceType device, c10::ScalarType compute);
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  void begin(c10::ScalarType compute);
  void end();
  bool on_;
  c10::DeviceType device_;
  bool before_ = false;
  c10::ScalarType dtype_before_ = c10::kFloat;
};

inline Autocast::Autocast(Kernels kernels, c10::DeviceType device, c10::ScalarType compute)
    : on_(kernels == Kernels::reference && c10::elementSize(compute) == 2), device_(device) {
  if (on_) begin(compute);
}
inline Autocast::~Autocast() {
  if (on_) end();
}

}  // namespace braid::nn
