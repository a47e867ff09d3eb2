// SPDX-License-Identifier: BSD-3-Clause
#include "data/device_ring.h"

#include <algorithm>

#include "data/tensor.h"

namespace braid::data {
namespace {

bool held_by_others(const at::Tensor& tensor) {
  return tensor.use_count() > 1 || tensor.storage().use_count() > 1;
}

at::Tensor channel_values(const std::vector<float>& values, const TensorSpec& spec, int device) {
  std::vector<int64_t> shape(spec.shape.size(), 1);
  shape[0] = static_cast<int64_t>(values.size());
  const at::Tensor host = empty_tensor(shape, c10::kFloat);
  std::copy(values.begin(), values.end(), host.mutable_data_ptr<float>());
  return host.to(c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(device)));
}

}  // namespace

DeviceRing::DeviceRing(const Source& source, int64_t largest, int device)
    : spec_(source.spec()), largest_(largest), device_(device) {
  const Scaling scaling = source.scaling();
  if (!scaling.mean.empty()) {
    mean_ = channel_values(scaling.mean, spec_.input, device);
    std_ = channel_values(scaling.std, spec_.input, device);
  }
  for (Slot& slot : slots_) {
    slot.input = make(spec_.input);
    slot.target = make(spec_.target);
  }
  release();  // the copy stream waits for what was given so far: the memory may be used memory
  next_ = 1;
  release();
  next_ = 0;
}

// What the copy stream writes must be there when it is given back.
DeviceRing::~DeviceRing() {
  for (Slot& slot : slots_)
    if (slot.filled != nullptr) slot.filled->host_wait();
}

at::Tensor DeviceRing::make(const TensorSpec& spec) const {
  std::vector<int64_t> shape = {largest_};
  shape.insert(shape.end(), spec.shape.begin(), spec.shape.end());
  return empty_tensor(shape, spec.dtype,
                      c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(device_)));
}

void DeviceRing::own(Slot& slot) const {
  if (held_by_others(slot.input)) slot.input = make(spec_.input);
  if (held_by_others(slot.target)) slot.target = make(spec_.target);
}

void DeviceRing::wait_for_room() {
  if (slots_[next_].released != nullptr) slots_[next_].released->host_wait();
}

void DeviceRing::release() {
  own(slots_[next_]);
  slots_[next_].released = accelerator()->moment(device_);
}

void DeviceRing::finish(const at::Tensor& values) const {
  if (mean_.defined()) values.sub_(mean_).div_(std_);
}

void DeviceRing::send(BatchJob& job) {
  Slot& slot = slots_[next_];
  next_ = (next_ + 1) % batches;
  const int64_t count = job.count();
  const bool full = count == largest_;
  job.device_input = full ? slot.input : slot.input.narrow(0, 0, count);
  job.device_target = full ? slot.target : slot.target.narrow(0, 0, count);
  const HostBatch& host = *job.host;
  const auto work = [&] {
    job.device_input.copy_(host.input.narrow(0, 0, count), /*non_blocking=*/true);
    job.device_target.copy_(host.target.narrow(0, 0, count), /*non_blocking=*/true);
    finish(job.device_input);
    finish(job.device_target);
  };
  job.host->copied = accelerator()->bring(device_, slot.released.get(), work);
  slot.filled = accelerator()->bring(device_, nullptr, [] {});
}

}  // namespace braid::data
