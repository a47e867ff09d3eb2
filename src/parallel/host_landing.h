// SPDX-License-Identifier: BSD-3-Clause
// Gradients on their way from a device to the host. A device tensor is freed in an order that
// depends on no clock: after so many later ones, when the device's own stream has waited for it.
#pragma once
#include <array>
#include <cstdint>
#include <deque>
#include <memory>

#include <ATen/core/Tensor.h>

#include "braid/core/accelerator.h"

namespace braid::parallel {

class HostLanding {
 public:
  explicit HostLanding(int64_t window = 2) : window_(window) {}

  // `home`, on the host, becomes the gradient after wait(); or gets it added, in its dtype, as
  // autograd adds.
  void bring(const at::Tensor& home, at::Tensor grad);
  void add(const at::Tensor& home, at::Tensor grad);
  void wait();

 private:
  struct Flight {
    at::Tensor grad;
    std::unique_ptr<Moment> done;  // null: of a device that is not there
  };
  struct Stage {        // where a gradient waits to be added
    at::Tensor memory;  // bytes
    at::Tensor grad, view, home;
    std::unique_ptr<Moment> done;
  };
  void settle(Stage& stage);
  void land_first();

  int64_t window_;
  std::deque<Flight> flying_;
  std::array<Stage, 2> stages_;
  size_t turn_ = 0;
};

}  // namespace braid::parallel
