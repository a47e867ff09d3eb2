// SPDX-License-Identifier: BSD-3-Clause
#include "braid/parallel/halo.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/roll.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "braid/comm/differentiable.h"
#include "braid/core/error.h"
#include "braid/core/observe.h"
#include "parallel/halo_exchange.h"

namespace braid::parallel {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor halo_or_zeros(const at::Tensor& halo, const at::Tensor& band, int64_t rows,
                         int64_t dim) {
  if (halo.defined()) return halo;
  std::vector<int64_t> sizes = band.sizes().vec();
  sizes[static_cast<size_t>(dim)] = rows;
  return at::zeros(sizes, band.options());
}

struct WithHalo : torch::autograd::Function<WithHalo> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& band,
                            const comm::Group& group, int64_t halo, int64_t dim) {
    context->saved_data["group"] = c10::IValue::make_capsule(c10::make_intrusive<HeldGroup>(group));
    context->saved_data["halo"] = halo;
    context->saved_data["dim"] = dim;
    const RowEdges edges = EdgeExchange(group, edges_of(band, halo, dim)).wait();
    return at::cat({halo_or_zeros(edges.above, band, halo, dim), band,
                    halo_or_zeros(edges.below, band, halo, dim)},
                   dim);
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const auto held = context->saved_data["group"].toCapsule();
    const int64_t halo = context->saved_data["halo"].toInt(),
                  dim = context->saved_data["dim"].toInt();
    const at::Tensor& grad = grads[0];
    EdgeExchange exchange(static_cast<HeldGroup*>(held.get())->group, edges_of(grad, halo, dim));
    const at::Tensor own = grad.narrow(dim, halo, grad.size(dim) - 2 * halo).clone();
    add_to_edges(own, exchange.wait(), dim);
    return {own, at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

struct Roll {
  std::vector<int64_t> shifts, dims;
  comm::Group group;

  Roll reversed() const {
    Roll back = *this;
    for (int64_t& shift : back.shifts) shift = -shift;
    return back;
  }
};

struct HeldRoll : torch::CustomClassHolder {
  explicit HeldRoll(Roll given) : roll(std::move(given)) {}
  Roll roll;
};

// The band is rolled as if it were the whole image; then the rows that went round are replaced by
// those of the neighbour, which were under way in the meantime.
at::Tensor rolled_band(const at::Tensor& band, const Roll& roll) {
  const int64_t dim = roll.dims[0], rows = band.size(dim), count = std::abs(roll.shifts[0]);
  const bool up = roll.shifts[0] < 0;  // the first rows go to the rank above
  const int ranks = roll.group.size(), rank = roll.group.rank();
  const int above = (rank + ranks - 1) % ranks, below = (rank + 1) % ranks;
  std::vector<int64_t> across = roll.shifts;
  across[0] = 0;
  at::Tensor leaving, arriving;
  {
    const MemoryScope buffers(MemoryKind::communication);
    leaving = band.narrow(dim, up ? 0 : rows - count, count);
    leaving = at::roll(leaving, across, roll.dims).contiguous();
    arriving = at::empty(leaving.sizes(), leaving.options());
  }
  comm::Pending sent = roll.group.send(leaving, up ? above : below);
  comm::Pending got = roll.group.recv(arriving, up ? below : above);
  const at::Tensor out = at::roll(band, roll.shifts, roll.dims);
  got.wait();
  out.narrow(dim, up ? rows - count : 0, count).copy_(arriving);
  sent.wait();
  return out;
}

struct BandRoll : torch::autograd::Function<BandRoll> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& band, const Roll& roll) {
    context->saved_data["back"] =
        c10::IValue::make_capsule(c10::make_intrusive<HeldRoll>(roll.reversed()));
    return rolled_band(band, roll);
  }
  static variable_list backward(AutogradContext* context, variable_list grads) {
    const auto held = context->saved_data["back"].toCapsule();
    return {rolled_band(grads[0], static_cast<HeldRoll*>(held.get())->roll), at::Tensor()};
  }
};

int64_t wrapped_dim(const at::Tensor& x, int64_t dim) { return dim < 0 ? dim + x.dim() : dim; }

}  // namespace

int64_t RowBands::whole() const { return std::accumulate(rows.begin(), rows.end(), int64_t{0}); }

int64_t RowBands::first() const {
  return std::accumulate(rows.begin(), rows.begin() + rank, int64_t{0});
}

Range RowBands::with_halo(int64_t halo) const {
  return {std::max<int64_t>(0, first() - halo), std::min(whole(), first() + mine() + halo)};
}

RowBands RowBands::enlarged(int64_t scale) const {
  RowBands large = *this;
  for (int64_t& count : large.rows) count *= scale;
  return large;
}

RowBands RowBands::cut_to(int64_t image_rows) const {
  RowBands cut = *this;
  for (int64_t& count : cut.rows) {
    count = std::min(count, image_rows);
    image_rows -= count;
  }
  return cut;
}

RowBands share_rows(int64_t rows, const comm::Group& group, int64_t unit) {
  const int64_t units = (rows + unit - 1) / unit;
  if (units < group.size())
    throw ConfigError(
        {.what = fmt::format("mesh.context = {}, but an image of {} rows has {} bands of {} rows",
                             group.size(), rows, units, unit),
         .why = "each rank of the context axis holds at least one band of whole windows: these "
                "would be too thin",
         .fix = fmt::format("set mesh.context to {} or less, or take larger images", units)});
  RowBands bands = {comm::even_shares(units, group.size()), group.rank()};
  return bands.enlarged(unit).cut_to(rows);
}

at::Tensor take_rows(const at::Tensor& whole, const RowBands& bands, int64_t dim) {
  return whole.narrow(dim, bands.first(), bands.mine());
}

at::Tensor join_rows(const at::Tensor& band, const RowBands& bands, const comm::Group& group,
                     int64_t dim) {
  return comm::gather_from(band, group, dim, bands.rows);
}

at::Tensor with_halo(const at::Tensor& band, const comm::Group& group, int64_t halo, int64_t dim) {
  dim = wrapped_dim(band, dim);
  check_thick(band, halo, dim, group);
  return WithHalo::apply(band, group, halo, dim);
}

at::Tensor band_roll(const at::Tensor& band, const std::vector<int64_t>& shifts,
                     const std::vector<int64_t>& dims, const comm::Group& group) {
  if (group.size() == 1 || shifts.at(0) == 0) return at::roll(band, shifts, dims);
  Roll roll = {shifts, dims, group};
  for (int64_t& dim : roll.dims) dim = wrapped_dim(band, dim);
  check_thick(band, std::abs(shifts[0]), roll.dims[0], group);
  return BandRoll::apply(band, roll);
}

}  // namespace braid::parallel
