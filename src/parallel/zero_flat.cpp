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
#include "parallel/host_copy.h"

namespace braid::parallel {
namespace {

using FlatKey = std::tuple<bool, size_t, c10::ScalarType, c10::DeviceType, int>;

FlatKey flat_key(const at::Tensor& x, size_t group) {
  return {x.requires_grad(), group, x.scalar_type(), x.device().type(),
          static_cast<int>(x.device().index())};
}

std::vector<int64_t> row_major(at::IntArrayRef sizes) {
  std::vector<int64_t> strides(sizes.size(), 1);
  for (size_t i = sizes.size(); i > 1; --i)
    strides[i - 2] = strides[i - 1] * std::max<int64_t>(sizes[i - 1], 1);
  return strides;
}

// A view that may reach over the end of a storage: memory comes later.
at::Tensor bare_view(const at::Tensor& of, at::IntArrayRef sizes, int64_t first) {
  at::Tensor view = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(of.storage()),
                                                             of.key_set(), of.dtype());
  view.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, row_major(sizes), first);
  return view;
}

int64_t whole_bytes(const ZeroFlat& flat) {
  return flat.whole.numel() * static_cast<int64_t>(flat.whole.element_size());
}

void take_whole_memory(ZeroFlat& flat, MemoryKind kind) {
  if (flat.there) return;
  const MemoryScope said(kind);
  memory::acquire(flat.whole, whole_bytes(flat));
  flat.there = true;
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

std::vector<ZeroFlat> flats_of(const std::vector<Param>& params, const comm::Group& shard,
                               ReplicaGroups& replicas) {
  std::vector<ZeroFlat> flats;
  std::map<FlatKey, size_t> places;
  for (const Param& param : params) {
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
    member.grad = flat.grads.narrow(0, member.first, param.numel()).view(param.sizes());
  }
}

}  // namespace braid::parallel
