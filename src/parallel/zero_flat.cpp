// SPDX-License-Identifier: BSD-3-Clause
#include "parallel/zero_flat.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "braid/core/dry.h"
#include "braid/core/error.h"
#include "braid/core/observe.h"
#include "braid/core/param.h"
#include "braid/memory/instruments.h"
#include "parallel/bare_view.h"
#include "parallel/host_copy.h"

namespace braid::parallel {
namespace {

using FlatKey = std::tuple<bool, size_t, c10::ScalarType, c10::DeviceType, int>;

FlatKey flat_key(const at::Tensor& x, size_t group) {
  return {x.requires_grad(), group, x.scalar_type(), x.device().type(),
          static_cast<int>(x.device().index())};
}

int64_t whole_bytes(const ZeroFlat& flat) {
  return flat.whole.numel() * static_cast<int64_t>(flat.whole.element_size());
}

void point_at(const ZeroFlat& flat, const c10::Storage& storage) {
  for (const ZeroMember& member : flat.members)
    member.param.tensor.unsafeGetTensorImpl()->set_storage_keep_dtype(storage);
}

void take_whole_memory(ZeroFlat& flat, MemoryKind kind) {
  if (flat.there) return;
  const MemoryScope said(kind);
  memory::acquire(flat.whole, whole_bytes(flat));
  if (flat.closed) point_at(flat, flat.whole.storage());
  flat.there = true;
}

// What weights are while they are not gathered: whoever reads them gets this error instead of
// address 0. It has the size of the whole, so that views of a weight can be made.
void close(ZeroFlat& flat) {
  if (!has_data(flat.whole)) return;
  flat.closed =
      c10::Storage(c10::Storage::use_byte_size_t(), static_cast<size_t>(whole_bytes(flat)),
                   c10::DataPtr(nullptr, flat.whole.device()), nullptr, false);
  flat.closed.unsafeGetStorageImpl()->release_data_and_set_meta_custom_data_ptr_error_msg_(
      flat.not_gathered);
  for (const ZeroMember& member : flat.members)
    member.param.tensor.unsafeGetTensorImpl()->set_allow_tensor_metadata_change(true);
  point_at(flat, flat.closed);
}

std::string not_gathered(const ZeroFlat& flat, const std::string& block) {
  const std::string& first = flat.members.front().param.name;
  const std::string which = flat.members.size() == 1
                                ? fmt::format("weight {} is not gathered", first)
                                : fmt::format("one of the weights {} to {} is not gathered", first,
                                              flat.members.back().param.name);
  return fmt::format(
      "{}: ZeRO-3 keeps a piece of it on each rank and gathers it while Zero::run(\"{}\", ...) "
      "runs. Run the forward pass of this part through run(); read values from Zero::params(), or "
      "save them with a checkpoint::Store.",
      which, block);
}

void fill_slice(const ZeroFlat& flat, const ZeroMember& member, const ZeroOptions& options) {
  const ZeroSlice slice = slice_of(flat, member);
  if (slice.count == 0) return;
  const at::Tensor values = flat.shard.narrow(0, slice.begin, slice.count);
  const at::Tensor& given = member.param.tensor;
  if (has_data(given)) {
    values.copy_(given.detach().reshape({-1}).narrow(0, slice.first, slice.count));
  } else if (has_data(values)) {
    if (!options.initial)
      throw InternalError(
          {.what = fmt::format("parameter {} is dry, and no initial values are given",
                               member.param.name),
           .why = "a dry parameter gets its memory piece by piece, filled by ZeroOptions::initial",
           .fix = "set ZeroOptions::initial, for example to Model::initial"});
    options.initial(member.param.name, values, slice.first);
  }
}

}  // namespace

ZeroSlice slice_of(const ZeroFlat& flat, const ZeroMember& member) {
  const int64_t from = std::max(member.first, flat.begin);
  const int64_t to = std::min(member.first + member.param.tensor.numel(), flat.begin + flat.share);
  if (from >= to) return {};
  return {.first = from - member.first, .begin = from - flat.begin, .count = to - from};
}

std::vector<ZeroFlat> flats_of(const ZeroUnit& unit, const comm::Group& shard,
                               ReplicaGroups& replicas) {
  std::vector<ZeroFlat> flats;
  std::map<FlatKey, size_t> places;
  for (const Param& param : unit.params) {
    const size_t group = replicas.number_of(param);
    const auto [place, fresh] = places.try_emplace(flat_key(param.tensor, group), flats.size());
    if (fresh) flats.emplace_back().trained = param.tensor.requires_grad();
    ZeroFlat& flat = flats[place->second];
    flat.replicas = replicas.at(group);
    flat.members.push_back({.param = param, .first = flat.elements});
    flat.elements += param.tensor.numel();
  }
  for (ZeroFlat& flat : flats) {
    flat.share = (flat.elements + shard.size() - 1) / shard.size();
    flat.begin = flat.share * shard.rank();
    flat.not_gathered = not_gathered(flat, unit.name);
    const auto options = flat.members.front().param.tensor.options().requires_grad(false);
    flat.whole = bare_view(at::empty({0}, options), {flat.share * shard.size()}, 0);
    memory::release(flat.whole);
  }
  return flats;
}

void settle(ZeroFlat& flat, bool resident, const ZeroOptions& options) {
  if (resident) {
    take_whole_memory(flat, MemoryKind::parameter);
    mark(flat.whole, MemoryKind::parameter);
    flat.shard = flat.whole.narrow(0, flat.begin, flat.share);
  } else {
    flat.on_host = options.host;
    flat.shard = options.host ? host_memory(flat.share, flat.whole.scalar_type(), flat.whole)
                              : at::empty({flat.share}, flat.whole.options());
    mark(flat.shard, MemoryKind::parameter);
  }
  const int64_t own = std::clamp<int64_t>(flat.elements - flat.begin, 0, flat.share);
  if (own < flat.share) flat.shard.narrow(0, own, flat.share - own).zero_();
  for (const ZeroMember& member : flat.members) {
    fill_slice(flat, member, options);
    // The same tensor object, so the module and its graph nodes see it.
    member.param.tensor.set_data(bare_view(flat.whole, member.param.tensor.sizes(), member.first));
  }
  if (!resident) close(flat);
}

void start_gather(ZeroFlat& flat, const comm::Group& shard) {
  finish_gather(flat);
  take_whole_memory(flat, MemoryKind::communication);
  if (!flat.on_host) {
    flat.gather = shard.all_gather(flat.whole, flat.shard);
    return;
  }
  const at::Tensor own = flat.whole.narrow(0, flat.begin, flat.share);
  flat.arrival = copy_with_host(own, flat.shard);
  flat.traffic.to_device += static_cast<int64_t>(own.nbytes());
  if (shard.size() == 1) return;  // nothing to do before it is used
  if (flat.arrival != nullptr) flat.arrival->stream_wait();
  flat.gather = shard.all_gather(flat.whole, own);
}

void finish_gather(ZeroFlat& flat) {
  if (flat.arrival != nullptr) flat.arrival->stream_wait();
  flat.gather.wait();
}

void release_whole(ZeroFlat& flat) {
  if (!flat.there) return;
  finish_gather(flat);
  memory::release(flat.whole);
  if (flat.closed) point_at(flat, flat.closed);
  flat.there = false;
}

void take_grads_memory(ZeroFlat& flat) {
  if (flat.grads.defined()) return;
  const int64_t padded = flat.whole.numel();
  const c10::ScalarType dtype = gradient_dtype(flat.members.front().param.tensor);
  flat.grads = at::empty({padded}, flat.whole.options().dtype(dtype));
  mark(flat.grads, MemoryKind::gradient);
  if (flat.elements < padded) flat.grads.narrow(0, flat.elements, padded - flat.elements).zero_();
  for (ZeroMember& member : flat.members) {
    const at::Tensor& param = member.param.tensor;
    member.grad = bare_view(flat.grads, param.sizes(), member.first);
  }
}

}  // namespace braid::parallel
