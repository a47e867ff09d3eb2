// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <memory>

#include <ATen/ops/arange.h>

#include "braid/core/error.h"
#include "plan/calibrate_tasks.h"

namespace braid::plan {

Pool::Pool(c10::Device device, int64_t bytes) : device_(device), bytes_(bytes / 4096 * 4096) {}

at::Tensor& Pool::flat(c10::ScalarType dtype) {
  at::Tensor& row = flat_[dtype];
  if (row.defined()) return row;
  const at::TensorOptions there = at::TensorOptions().device(device_).dtype(c10::kFloat);
  // As good as random: smooth values would draw less power than those of a model, and let the
  // clock run faster.
  const int64_t period = std::min<int64_t>(1 << 20, bytes_ / 8);
  const at::Tensor values =
      at::arange(period, there).mul_(12.9898).sin_().mul_(43758.547).frac_().to(dtype);
  row = values.repeat({(room(dtype) + period - 1) / period});
  return row;
}

int64_t Pool::room(c10::ScalarType dtype) const {
  return bytes_ / static_cast<int64_t>(c10::elementSize(dtype));
}

at::Tensor Pool::take(at::IntArrayRef sizes, c10::ScalarType dtype) {
  int64_t count = 1;
  for (const int64_t size : sizes) count *= size;
  const auto element = static_cast<int64_t>(c10::elementSize(dtype));
  if (count * element > bytes_)
    throw InternalError({.what = "a tensor of the calibration is larger than its pool",
                         .why = "sizes are cut to the pool before",
                         .fix = "see tasks_for in src/plan/calibrate.cpp"});
  if (next_ + count * element > bytes_) next_ = 0;
  const at::Tensor piece = flat(dtype).narrow(0, next_ / element, count).view(sizes);
  next_ = (next_ + count * element + 511) / 512 * 512;
  return piece;
}

std::function<void()> in_turn(Pool& pool, double bytes,
                              const std::function<std::function<void()>()>& make) {
  constexpr double beyond_cache = 256e6;
  const double room = static_cast<double>(pool.room(c10::kByte));
  const double copies = std::min(beyond_cache, room) / std::max(bytes, 1.0);
  const auto count = static_cast<size_t>(std::clamp(copies, 1.0, 64.0));
  auto runs = std::make_shared<std::vector<std::function<void()>>>();
  for (size_t i = 0; i < count; ++i) runs->push_back(make());
  auto turn = std::make_shared<size_t>(0);
  return [runs, turn] { (*runs)[(*turn)++ % runs->size()](); };
}

c10::ScalarType task_dtype(const std::string& name) {
  if (name == "bf16") return c10::kBFloat16;
  if (name == "fp16") return c10::kHalf;
  if (name == "fp64") return c10::kDouble;
  return c10::kFloat;
}

}  // namespace braid::plan
