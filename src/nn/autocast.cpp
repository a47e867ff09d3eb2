// SPDX-License-Identifier: BSD-3-Clause
#include "braid/nn/autocast.h"

#include <ATen/autocast_mode.h>

namespace braid::nn {

void Autocast::begin(c10::ScalarType compute) {
  before_ = at::autocast::is_autocast_enabled(device_);
  dtype_before_ = at::autocast::get_autocast_dtype(device_);
  at::autocast::set_autocast_dtype(device_, compute);
  at::autocast::set_autocast_enabled(device_, true);
  at::autocast::increment_nesting();
}

void Autocast::end() {
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(device_, before_);
  at::autocast::set_autocast_dtype(device_, dtype_before_);
}

}  // namespace braid::nn
