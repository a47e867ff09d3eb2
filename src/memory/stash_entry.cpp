// SPDX-License-Identifier: BSD-3-Clause
#include "memory/stash_entry.h"

#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <utility>

#include "braid/core/dry.h"

namespace braid::memory {
namespace {

bool is_parameter(const at::Tensor& value) {
  const at::TensorBase& root = value.is_view() ? value._base() : value;
  return root.is_leaf() && root.requires_grad();
}

bool is_dense(const at::Tensor& value) { return value.is_non_overlapping_and_dense(); }

// The same memory saved by several nodes is one entry; of dense tensors also under other shapes.
SameKey key_of(const at::Tensor& value) {
  const bool dense = is_dense(value);
  return {value.storage().unsafeGetStorageImpl(),
          value.storage_offset(),
          static_cast<int>(value.scalar_type()),
          static_cast<int64_t>(value._version()),
          value.numel(),
          dense ? std::vector<int64_t>() : value.sizes().vec(),
          dense ? std::vector<int64_t>() : value.strides().vec()};
}

// The elements of a dense tensor in the order of memory.
at::Tensor flat_of(const at::Tensor& dense) {
  return dense.as_strided({dense.numel()}, {1}, dense.storage_offset());
}

at::Tensor host_room(const at::Tensor& like) {
  if (!like.is_cuda()) return at::empty_like(like);
  if (!is_dry(like)) return accelerator()->pinned_like(like);
  return at::empty_like(like, like.options().device(c10::kCPU).pinned_memory(true));
}

int64_t bytes_of(const std::vector<Kept>& parts) {
  int64_t bytes = 0;
  for (const Kept& part : parts) bytes += static_cast<int64_t>(part.tensor().nbytes());
  return bytes;
}

}  // namespace

Entry::~Entry() { stash->forget(*this); }

void Entry::arrive() {
  for (const auto& copy : under_way) copy->stream_wait();
  under_way.clear();
}

bool StashState::takes(const at::Tensor& value, Code code) const {
  if (!options.offload && code == Code::as_is) return false;
  if (!value.defined() || value.layout() != c10::kStrided || !value.has_storage()) return false;
  if (value.device().type() != options.device.type()) return false;
  const auto bytes = static_cast<int64_t>(value.nbytes());
  if (bytes < options.smallest || bytes == 0) return false;
  // An expanded tensor has less memory than its sizes say.
  if (bytes > static_cast<int64_t>(value.storage().nbytes())) return false;
  return !is_parameter(value) && !(options.stays && options.stays(value));
}

std::shared_ptr<Entry> StashState::put(const at::Tensor& value, Code code) {
  const std::lock_guard lock(mutex);
  SameKey key = key_of(value);
  const auto found = known_.find(key);
  if (found != known_.end())
    if (std::shared_ptr<Entry> same = found->second.lock()) return same;
  return fresh(value.detach(), code, std::move(key));
}

std::shared_ptr<Entry> StashState::fresh(const at::Tensor& value, Code code, SameKey key) {
  if (options.offload && static_cast<int64_t>(leaving_.size()) >= options.window) {
    Entry& gone = *leaving_.front();
    leaving_.pop_front();
    gone.arrive();
    gone.device.clear();
  }
  auto entry = std::make_shared<Entry>(shared_from_this());
  entry->code = code;
  entry->dtype = value.scalar_type();
  entry->elements = value.numel();
  entry->storage = value.storage().getWeakStorageImpl();
  at::Tensor dense = value;
  if (!is_dense(value)) {
    dense = value.clone();  // dimensions keep their order in memory
    entry->strides = dense.strides().vec();
  }
  for (const at::Tensor& part : encode(flat_of(dense), code)) entry->device.emplace_back(part);
  if (options.offload) send(*entry);
  entry->key = std::move(key);
  known_.insert_or_assign(entry->key, entry);
  return entry;
}

void StashState::send(Entry& entry) {
  for (const Kept& part : entry.device) {
    entry.host.emplace_back(host_room(part.tensor()));
    copy(entry, entry.host.back().tensor(), part.tensor());
  }
  traffic.to_host += bytes_of(entry.host);
  entry.order = puts_++;
  waiting_.emplace(entry.order, &entry);
  leaving_.push_back(&entry);
}

void StashState::bring(Entry& entry) {
  if (entry.here()) return;
  const c10::Device device = options.device;
  for (const Kept& part : entry.host) {
    const at::Tensor& from = part.tensor();
    entry.device.emplace_back(
        at::empty_like(from, from.options().device(device).pinned_memory(false)));
    copy(entry, entry.device.back().tensor(), from);
  }
  traffic.to_device += bytes_of(entry.host);
}

void StashState::copy(Entry& entry, const at::Tensor& to, const at::Tensor& from) {
  const bool beside = !is_dry(to) && (to.is_cuda() || from.is_cuda());
  if (beside)
    entry.under_way.push_back(accelerator()->copy_beside(to, from));
  else
    to.copy_(from, /*non_blocking=*/true);
}

at::Tensor StashState::take(Entry& entry) {
  const std::lock_guard lock(mutex);
  if (options.offload) {
    bring(entry);
    entry.arrive();
    // The backward pass goes back through what the forward pass put.
    auto before = waiting_.find(entry.order);
    for (int64_t i = 0; i < options.window && before != waiting_.begin(); ++i)
      bring(*(--before)->second);
  }
  std::vector<at::Tensor> parts;
  for (const Kept& part : entry.device) parts.push_back(part.tensor());
  return decode(parts, entry.code, entry.dtype, entry.elements);
}

void StashState::forget(Entry& entry) {
  const std::lock_guard lock(mutex);
  entry.arrive();  // before its memory goes
  const auto found = known_.find(entry.key);
  if (found != known_.end() && found->second.expired()) known_.erase(found);
  const auto order = waiting_.find(entry.order);
  if (order != waiting_.end() && order->second == &entry) waiting_.erase(order);
  leaving_.erase(std::remove(leaving_.begin(), leaving_.end(), &entry), leaving_.end());
}

}  // namespace braid::memory
