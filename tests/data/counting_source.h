// SPDX-License-Identifier: BSD-3-Clause
// A source whose samples say their own index, for tests of the loader.
#pragma once
#include <atomic>
#include <chrono>
#include <limits>
#include <thread>

#include "braid/core/error.h"
#include "braid/data/source.h"

namespace braid::data {

class CountingSource final : public Source {
 public:
  explicit CountingSource(int64_t size) : size_(size) {
    spec_.input = {{2, 1, 3}, c10::kFloat};
    spec_.target = {{2}, c10::kLong};
  }

  int64_t size() const override { return size_; }
  const SampleSpec& spec() const override { return spec_; }
  std::string describe(int64_t index) const override {
    return "made-up.h5, frame " + std::to_string(index);
  }

  void read(Access access, const Sample& out) const override {
    ++reads;
    // Early samples take longer, so that threads finish out of order.
    if (slow) std::this_thread::sleep_for(std::chrono::microseconds(access.index % 3 * 300));
    if (access.index == bad)
      throw DataError({.what = "cannot read made-up.h5", .why = "a test", .fix = "none"});
    auto* input = out.input.mutable_data_ptr<float>();
    for (int64_t i = 0; i < 6; ++i)
      input[i] = static_cast<float>(access.index * 10 + i + access.epoch * 1000);
    if (access.index == nan) input[4] = std::numeric_limits<float>::quiet_NaN();
    auto* target = out.target.mutable_data_ptr<int64_t>();
    target[0] = access.index;
    target[1] = access.index % 2 == 0 ? -100 : 1;
  }

  int64_t bad = -1, nan = -1;
  bool slow = false;
  mutable std::atomic<int64_t> reads = 0;

 private:
  int64_t size_;
  SampleSpec spec_;
};

// The indices that a batch holds.
template <class Batch>
std::vector<int64_t> indices_of(const Batch& batch) {
  std::vector<int64_t> indices;
  for (int64_t k = 0; k < batch.target.size(0); ++k)
    indices.push_back(batch.target.template const_data_ptr<int64_t>()[k * 2]);
  return indices;
}

}  // namespace braid::data
