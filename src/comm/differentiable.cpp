// SPDX-License-Identifier: BSD-3-Clause
#include "braid/comm/differentiable.h"

#include <ATen/core/custom_class.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/custom_function.h>

#include <functional>
#include <numeric>

#include "braid/core/error.h"
#include "braid/core/observe.h"

namespace braid::comm {
namespace {

using Map = std::function<at::Tensor(const at::Tensor&)>;

struct HeldMap : torch::CustomClassHolder {
  explicit HeldMap(Map given) : map(std::move(given)) {}
  Map map;
};

// A map and its mirror image: all that a differentiable collective is.
struct Mirrored : torch::autograd::Function<Mirrored> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const Map& there, const Map& back) {
    context->saved_data["back"] = c10::IValue::make_capsule(c10::make_intrusive<HeldMap>(back));
    return there(x);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list grads) {
    const auto held = context->saved_data["back"].toCapsule();
    return {static_cast<HeldMap*>(held.get())->map(grads[0]), at::Tensor(), at::Tensor()};
  }
};

at::Tensor same(const at::Tensor& x) { return x.view_as(x); }

at::Tensor summed(const at::Tensor& x, const Group& group) {
  const MemoryScope buffers(MemoryKind::communication);
  const at::Tensor sum = x.clone(at::MemoryFormat::Contiguous);
  group.all_reduce(sum).wait();
  return sum;
}

// How a dimension is shared out between the ranks of a group.
struct Shares {
  Group group;
  int64_t dim;
  Counts counts;
};
using ShareMap = at::Tensor (*)(const at::Tensor&, const Shares&);

int64_t total_of(const Counts& counts) {
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

// The dimension in front and in one piece, as the collectives take it.
at::Tensor in_front(const at::Tensor& x, int64_t dim) { return x.movedim(dim, 0).contiguous(); }

at::Tensor rows_like(const at::Tensor& front, int64_t rows) {
  std::vector<int64_t> sizes = front.sizes().vec();
  sizes[0] = rows;
  return at::empty(sizes, front.options());
}

at::Tensor gathered(const at::Tensor& share, const Shares& shares) {
  const auto& [group, dim, counts] = shares;
  const MemoryScope buffers(MemoryKind::communication);
  const at::Tensor front = in_front(share, dim), whole = rows_like(front, total_of(counts));
  group.all_gather(whole, front, counts).wait();
  return whole.movedim(0, dim);
}

at::Tensor own_share(const at::Tensor& whole, const Shares& shares) {
  const auto& [group, dim, counts] = shares;
  const int64_t first = std::accumulate(counts.begin(), counts.begin() + group.rank(), int64_t{0});
  return whole.narrow(dim, first, counts[static_cast<size_t>(group.rank())]);
}

at::Tensor summed_share(const at::Tensor& whole, const Shares& shares) {
  const auto& [group, dim, counts] = shares;
  const MemoryScope buffers(MemoryKind::communication);
  const at::Tensor front = in_front(whole, dim);
  const at::Tensor share = rows_like(front, counts[static_cast<size_t>(group.rank())]);
  group.reduce_scatter(share, front, Op::sum, counts).wait();
  return share.movedim(0, dim);
}

// Share i of `split_dim` goes to rank i; what comes is joined along `join_dim`. Shares differ in
// shape, so they travel flat.
at::Tensor exchanged(const at::Tensor& x, const Group& group, int64_t split_dim, int64_t join_dim,
                     const Counts& split, const Counts& join) {
  const MemoryScope buffers(MemoryKind::communication);
  std::vector<at::Tensor> parts;
  Counts to, from;
  for (const at::Tensor& part : x.split_with_sizes(split, split_dim)) {
    parts.push_back(part.reshape({-1}));
    to.push_back(part.numel());
  }
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes[split_dim] = split[static_cast<size_t>(group.rank())];
  int64_t others = 1;  // elements of a row of the joined dimension
  for (size_t i = 0; i < sizes.size(); ++i)
    if (static_cast<int64_t>(i) != join_dim) others *= sizes[i];
  for (const int64_t rows : join) from.push_back(rows * others);
  const at::Tensor sent = at::cat(parts), got = at::empty({total_of(from)}, x.options());
  group.all_to_all(got, sent, from, to).wait();
  std::vector<at::Tensor> pieces;
  int64_t first = 0;
  for (size_t i = 0; i < join.size(); ++i) {
    sizes[join_dim] = join[i];
    pieces.push_back(got.narrow(0, first, from[i]).view(sizes));
    first += from[i];
  }
  return at::cat(pieces, join_dim);
}

Counts counts_for(const Group& group, int64_t whole, const Counts& given) {
  Counts counts = given.empty() ? even_shares(whole, group.size()) : given;
  if (static_cast<int>(counts.size()) != group.size() || total_of(counts) != whole)
    throw InternalError({.what = fmt::format("shares [{}] of {} rows for {} ranks",
                                             fmt::join(counts, ", "), whole, group.size()),
                         .why = "there is one share for each rank, and together they are the whole",
                         .fix = "pass the rows of each rank, or none for even shares"});
  return counts;
}

// A share alone does not tell the whole: without counts all shares are as large as this one.
Counts counts_of_shares(const Group& group, int64_t share, const Counts& given) {
  if (given.empty()) return Counts(static_cast<size_t>(group.size()), share);
  return counts_for(group, total_of(given), given);
}

int64_t wrapped(const at::Tensor& x, int64_t dim) { return dim < 0 ? dim + x.dim() : dim; }

at::Tensor mirrored(const at::Tensor& x, const Shares& shares, ShareMap there, ShareMap back) {
  return Mirrored::apply(x, Map([=](const at::Tensor& y) { return there(y, shares); }),
                         Map([=](const at::Tensor& grad) { return back(grad, shares); }));
}

// From what a rank holds a share of.
at::Tensor of_shares(const at::Tensor& share, Shares given, ShareMap there, ShareMap back) {
  if (given.group.size() == 1) return share;
  given.dim = wrapped(share, given.dim);
  given.counts = counts_of_shares(given.group, share.size(given.dim), given.counts);
  return mirrored(share, given, there, back);
}

// From what every rank holds the whole of.
at::Tensor of_whole(const at::Tensor& whole, Shares given, ShareMap there, ShareMap back) {
  if (given.group.size() == 1) return whole;
  given.dim = wrapped(whole, given.dim);
  given.counts = counts_for(given.group, whole.size(given.dim), given.counts);
  return mirrored(whole, given, there, back);
}

}  // namespace

Counts even_shares(int64_t size, int ranks) {
  Counts counts(static_cast<size_t>(ranks), size / ranks);
  for (int64_t i = 0; i < size % ranks; ++i) ++counts[static_cast<size_t>(i)];
  return counts;
}

at::Tensor copy_to(const at::Tensor& x, const Group& group) {
  if (group.size() == 1) return x;
  return Mirrored::apply(x, Map(same),
                         Map([group](const at::Tensor& grad) { return summed(grad, group); }));
}

at::Tensor reduce_from(const at::Tensor& x, const Group& group) {
  if (group.size() == 1) return x;
  return Mirrored::apply(x, Map([group](const at::Tensor& part) { return summed(part, group); }),
                         Map(same));
}

at::Tensor gather_from(const at::Tensor& share, const Group& group, int64_t dim,
                       const Counts& counts) {
  return of_shares(share, {group, dim, counts}, gathered, own_share);
}

at::Tensor scatter_to(const at::Tensor& whole, const Group& group, int64_t dim,
                      const Counts& counts) {
  return of_whole(whole, {group, dim, counts}, own_share, gathered);
}

at::Tensor all_gather(const at::Tensor& share, const Group& group, int64_t dim,
                      const Counts& counts) {
  return of_shares(share, {group, dim, counts}, gathered, summed_share);
}

at::Tensor reduce_scatter(const at::Tensor& whole, const Group& group, int64_t dim,
                          const Counts& counts) {
  return of_whole(whole, {group, dim, counts}, summed_share, gathered);
}

at::Tensor all_to_all(const at::Tensor& x, const Group& group, int64_t split_dim, int64_t join_dim,
                      const Counts& given) {
  if (group.size() == 1) return x;
  split_dim = wrapped(x, split_dim);
  join_dim = wrapped(x, join_dim);
  const Counts split = even_shares(x.size(split_dim), group.size());
  const Counts join = counts_of_shares(group, x.size(join_dim), given);
  return Mirrored::apply(x, Map([=](const at::Tensor& y) {
                           return exchanged(y, group, split_dim, join_dim, split, join);
                         }),
                         Map([=](const at::Tensor& grad) {
                           return exchanged(grad, group, join_dim, split_dim, join, split);
                         }));
}

}  // namespace braid::comm
