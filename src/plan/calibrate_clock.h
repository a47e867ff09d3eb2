// SPDX-License-Identifier: BSD-3-Clause
// How long something takes on a device, however short it is.
#pragma once
#include <functional>

#include <ATen/core/Tensor.h>

namespace braid::plan {

class DeviceClock {
 public:
  explicit DeviceClock(c10::Device device);
  // Of one call, after warm-up: the median of three rounds of many.
  double seconds(const std::function<void()>& run);
  // After almost a second of nothing else, as in the steps of a run: power is short then.
  double steady_seconds(const std::function<void()>& run);
  void finish();  // waits for the device

 private:
  double round(const std::function<void()>& run, int64_t times);
  double behind(const std::function<void()>& run, int64_t times);
  void block(int64_t times);

  c10::Device device_;
  at::Tensor factor_;         // of products that keep the device busy
  double block_seconds_ = 0;  // of one of them
};

}  // namespace braid::plan
