// SPDX-License-Identifier: BSD-3-Clause
// Collectives of several tensors as one: packed by dtype and device, unpacked when they are over.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>

#include "braid/core/error.h"
#include "braid/core/observe.h"
#include "comm/check.h"
#include "comm/flight.h"

namespace braid::comm {
namespace {

using Tensors = std::vector<at::Tensor>;

// The parts of a coalesced call that travel together.
struct Bundle {
  std::vector<size_t> parts;
};

std::vector<Bundle> bundles_of(const Tensors& tensors) {
  std::vector<Bundle> bundles;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto alike = [&](const Bundle& bundle) {
      const at::Tensor& first = tensors[bundle.parts.front()];
      return first.scalar_type() == tensors[i].scalar_type() &&
             first.device() == tensors[i].device();
    };
    const auto found = std::find_if(bundles.begin(), bundles.end(), alike);
    if (found != bundles.end()) {
      found->parts.push_back(i);
    } else {
      bundles.push_back({{i}});
    }
  }
  return bundles;
}

Tensors picked(const Tensors& tensors, const Bundle& bundle) {
  Tensors result;
  for (const size_t part : bundle.parts) result.push_back(tensors[part]);
  return result;
}

// Tensors as `rows` rows each, beside each other: [rows, all columns].
at::Tensor packed(const Tensors& tensors, int64_t rows) {
  Tensors parts;
  for (const at::Tensor& tensor : tensors) parts.push_back(tensor.reshape({rows, -1}));
  return at::cat(parts, 1);
}

// The way back.
void unpack_rows(const at::Tensor& buffer, const Tensors& tensors, int64_t rows) {
  const at::Tensor whole = buffer.view({rows, -1});
  int64_t first = 0;
  for (const at::Tensor& tensor : tensors) {
    const int64_t columns = tensor.numel() / rows;
    tensor.copy_(whole.narrow(1, first, columns).reshape(tensor.sizes()));
    first += columns;
  }
}

// One call for all parts of a bundle. Rows are ranks on the side that holds the shares of all.
Call packed_call(const Call& kind, const Tensors& in, int64_t ranks) {
  Call call = kind;
  if (call.kind == Kind::reduce_scatter) {
    call.input = packed(in, ranks);
    call.output = at::empty({call.input.size(1)}, call.input.options());
  } else if (call.kind == Kind::all_gather) {
    call.input = packed(in, 1).view({-1});
    call.output = at::empty({ranks * call.input.numel()}, call.input.options());
  } else {
    call.input = call.output = packed(in, 1).view({-1});
  }
  return call;
}

void check_lengths(const Call& kind, const GroupState& group, const Tensors& in,
                   const Tensors& out) {
  if (in.size() == out.size()) return;
  throw InternalError({.what = fmt::format("{} of {} tensors into {}, in group {}",
                                           to_text(kind.kind), in.size(), out.size(), group.name),
                       .why = "each tensor has its own result",
                       .fix = "give lists of one length"});
}

}  // namespace

std::vector<Call> coalesced_parts(const Call& kind, const GroupState& group, const Tensors& out,
                                  const Tensors& in) {
  check_lengths(kind, group, in, out);
  std::vector<Call> calls;
  for (size_t i = 0; i < in.size(); ++i) {
    Call call = kind;
    call.input = in[i];
    call.output = out[i];
    check(call, {.rank = group.rank, .size = group.size, .group = group.name});
    if (call.input.numel() > 0 || call.output.numel() > 0) calls.push_back(std::move(call));
  }
  return calls;
}

Pending Pending::Flight::start_all(const std::shared_ptr<GroupState>& group, const Call& kind,
                                   const std::vector<Call>& parts) {
  Tensors in, out;
  for (const Call& part : parts) {
    in.push_back(part.input);
    out.push_back(part.output);
  }
  const MemoryScope buffers(MemoryKind::communication);
  Pending all;  // gives up what was begun, should a later start throw
  std::unique_ptr<Flight>* last = &all.flight_;
  for (const Bundle& bundle : bundles_of(in)) {
    if (bundle.parts.size() == 1) {
      *last = start(group, parts[bundle.parts.front()]);
    } else {
      const Tensors from = picked(in, bundle), to = picked(out, bundle);
      const int64_t rows = kind.kind == Kind::all_gather ? group->size : 1;
      *last = start(group, packed_call(kind, from, group->size),
                    [to, rows](const at::Tensor& buffer) { unpack_rows(buffer, to, rows); });
    }
    last = &(*last)->next;
  }
  return all;
}

}  // namespace braid::comm
