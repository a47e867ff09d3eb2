// SPDX-License-Identifier: BSD-3-Clause
#include "data/buffers.h"

#include "data/tensor.h"

namespace braid::data {
namespace {

// A caller may hold the tensor itself or, by a view, only its storage.
bool held_elsewhere(const at::Tensor& tensor) {
  return tensor.use_count() > 1 || tensor.storage().use_count() > 1;
}

constexpr size_t pool_limit =
    16;  // a caller that keeps every batch must not make the pool grow with them

}  // namespace

BufferPool::BufferPool(SampleSpec spec, int64_t batch, Accelerator* pin)
    : spec_(std::move(spec)), batch_(batch), pin_(pin) {}

at::Tensor BufferPool::make(const TensorSpec& spec) const {
  std::vector<int64_t> shape = {batch_};
  shape.insert(shape.end(), spec.shape.begin(), spec.shape.end());
  const at::Tensor host = empty_tensor(shape, spec.dtype);
  return pin_ != nullptr ? pin_->pinned_like(host) : host;
}

std::shared_ptr<HostBatch> BufferPool::take() {
  for (const auto& batch : batches_) {
    if (batch.use_count() > 1 || held_elsewhere(batch->input) || held_elsewhere(batch->target))
      continue;
    if (batch->copied != nullptr) batch->copied->host_wait();
    batch->copied.reset();
    return batch;
  }
  auto batch = std::make_shared<HostBatch>();
  batch->input = make(spec_.input);
  batch->target = make(spec_.target);
  ++allocated_;
  if (batches_.size() == pool_limit) batches_.erase(batches_.begin());
  batches_.push_back(batch);
  return batch;
}

}  // namespace braid::data
