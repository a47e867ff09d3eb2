// SPDX-License-Identifier: BSD-3-Clause
#include "braid/parallel/expert.h"

#include <ATen/core/custom_class.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "braid/comm/counting.h"
#include "braid/core/dry.h"
#include "braid/core/observe.h"
#include "braid/kernels/grouped.h"

namespace braid::parallel {
namespace {

using torch::autograd::variable_list;

int64_t rows_in(const comm::Counts& counts) {
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

// counts[rank][expert], as far as they are known here.
using CountTable = std::vector<comm::Counts>;

// As even as they go, but for the experts of this rank where a plan asks for a fuller one.
comm::Counts dry_counts(const comm::Group& group, int64_t experts, int64_t most) {
  const double load = comm::expert_load_of(group.backend().get());
  const int64_t here = experts / group.size(), others = experts - here;
  if (load == 1 || others == 0) return comm::even_shares(most, static_cast<int>(experts));
  const double even = static_cast<double>(most) / group.size();
  const int64_t mine = std::min<int64_t>(most, std::llround(load * even));
  const comm::Counts full = comm::even_shares(mine, static_cast<int>(here));
  comm::Counts counts = comm::even_shares(most - mine, static_cast<int>(others));
  counts.insert(counts.begin() + here * group.rank(), full.begin(), full.end());
  return counts;
}

CountTable exchanged_counts(const comm::Group& group, const at::Tensor& counts, int64_t most) {
  const int64_t experts = counts.size(0);
  if (!has_data(counts)) {
    return CountTable(static_cast<size_t>(group.size()), dry_counts(group, experts, most));
  }
  const at::Tensor all = at::empty({group.size() * experts}, counts.options());
  group.all_gather(all, counts.contiguous()).wait();
  const at::Tensor host = all.cpu();  // the one read: how much goes where decides shapes
  const int64_t* at = host.const_data_ptr<int64_t>();
  CountTable table;
  for (int rank = 0; rank < group.size(); ++rank, at += experts)
    table.emplace_back(at, at + experts);
  return table;
}

at::Tensor on_device_of(const at::Tensor& like, const std::vector<int64_t>& values,
                        c10::ScalarType dtype) {
  const auto count = static_cast<int64_t>(values.size());
  if (!has_data(like)) return at::empty({count}, like.options().dtype(dtype));
  const at::Tensor host = at::empty({count}, c10::kLong);
  std::copy(values.begin(), values.end(), host.mutable_data_ptr<int64_t>());
  return host.to(like.device(), dtype);
}

// What arrives is sorted by rank, then by expert; experts want it by expert, then by rank.
void sort_arrivals(ExpertRows& rows, const CountTable& table, const at::Tensor& like) {
  const auto here = static_cast<size_t>(rows.experts_here());
  const size_t first = here * static_cast<size_t>(rows.group.rank());
  std::vector<int64_t> offsets, order, begin;  // begin: of the rows of each rank, moved along
  for (int64_t reached = 0; const int64_t count : rows.received) {
    begin.push_back(reached);
    reached += count;
  }
  for (size_t expert = first; expert < first + here; ++expert) {
    for (size_t rank = 0; rank < table.size(); ++rank)
      for (int64_t i = 0; i < table[rank][expert]; ++i) order.push_back(begin[rank]++);
    offsets.push_back(static_cast<int64_t>(order.size()));
  }
  std::vector<int64_t> inverse(order.size());
  for (size_t i = 0; i < order.size(); ++i)
    inverse[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
  rows.offsets = on_device_of(like, offsets, c10::kInt);
  rows.order = on_device_of(like, order, c10::kLong);
  rows.inverse = on_device_of(like, inverse, c10::kLong);
}

}  // namespace

// One way of rows over the axis: there in the forward pass, back in the backward pass.
struct ExpertLeg {
  comm::Group group;
  int64_t out_rows = 0, in_rows = 0;
  comm::Counts out_counts, in_counts;  // empty: equal shares
  comm::Pending there, back;
  at::Tensor coming_back;

  at::Tensor begin_there(const at::Tensor& x) {
    const MemoryScope buffers(MemoryKind::communication);
    const at::Tensor got = at::empty({in_rows, x.size(1)}, x.options());
    there = exchange(got, x.contiguous(), in_counts, out_counts);
    return got;
  }
  void begin_back(const at::Tensor& grad) {
    const MemoryScope buffers(MemoryKind::communication);
    coming_back = at::empty({out_rows, grad.size(1)}, grad.options());
    back = exchange(coming_back, grad.contiguous(), out_counts, in_counts);
  }
  at::Tensor end_back() {
    back.wait();
    return std::exchange(coming_back, at::Tensor());
  }

 private:
  comm::Pending exchange(const at::Tensor& got, const at::Tensor& given, const comm::Counts& from,
                         const comm::Counts& to) const {
    return to.empty() ? group.all_to_all(got, given) : group.all_to_all(got, given, from, to);
  }
};

namespace {

struct HeldLeg : torch::CustomClassHolder {
  explicit HeldLeg(std::shared_ptr<ExpertLeg> given) : leg(std::move(given)) {}
  std::shared_ptr<ExpertLeg> leg;
};

std::shared_ptr<ExpertLeg> leg_of(torch::autograd::AutogradContext* context) {
  const auto held = context->saved_data.at("leg").toCapsule();
  return static_cast<const HeldLeg&>(*held).leg;
}

void keep_leg(torch::autograd::AutogradContext* context, const std::shared_ptr<ExpertLeg>& leg) {
  context->saved_data["leg"] = c10::IValue::make_capsule(c10::make_intrusive<HeldLeg>(leg));
}

// Forward: rows set out. Backward: their gradients, which RowsArrive sent back, have come.
struct RowsDepart : torch::autograd::Function<RowsDepart> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const std::shared_ptr<ExpertLeg>& leg) {
    keep_leg(context, leg);
    return leg->begin_there(x);
  }
  static variable_list backward(torch::autograd::AutogradContext* context, variable_list) {
    return {leg_of(context)->end_back(), {}};
  }
};

// Forward: rows have come. Backward: gradients set out. What autograd hands on is not looked at:
// the rows that come back are as many as RowsDepart has, not as many as arrived.
struct RowsArrive : torch::autograd::Function<RowsArrive> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const std::shared_ptr<ExpertLeg>& leg) {
    keep_leg(context, leg);
    leg->there.wait();
    return x.view_as(x);
  }
  static variable_list backward(torch::autograd::AutogradContext* context, variable_list grads) {
    leg_of(context)->begin_back(grads[0]);
    return {grads[0], {}};
  }
};

std::shared_ptr<ExpertLeg> leg_for(const ExpertRows& rows, bool home) {
  auto leg = std::make_shared<ExpertLeg>();
  leg->group = rows.group;
  leg->out_rows = rows.rows_sent();
  leg->in_rows = rows.rows_received();
  leg->out_counts = rows.sent;
  leg->in_counts = rows.received;
  if (!home) return leg;
  std::swap(leg->out_rows, leg->in_rows);
  std::swap(leg->out_counts, leg->in_counts);
  return leg;
}

// [ranks * experts here * each, width] sorted by rank -> [experts here, ranks * each, width].
at::Tensor rows_by_expert(const at::Tensor& x, const ExpertRows& rows) {
  const int64_t here = rows.experts_here(), width = x.size(1);
  const at::Tensor parts = x.view({rows.group.size(), here, rows.each, width});
  return parts.transpose(0, 1).reshape({here, rows.group.size() * rows.each, width});
}

at::Tensor rows_by_rank(const at::Tensor& y, const ExpertRows& rows) {
  const int64_t here = rows.experts_here(), width = y.size(2);
  const at::Tensor parts = y.view({here, rows.group.size(), rows.each, width});
  return parts.transpose(0, 1).reshape({-1, width});
}

}  // namespace

int64_t ExpertRows::rows_sent() const { return even() ? experts * each : rows_in(sent); }
int64_t ExpertRows::rows_received() const { return even() ? experts * each : rows_in(received); }

ExpertRows even_rows(const comm::Group& group, int64_t experts, int64_t each) {
  return {.group = group, .experts = experts, .each = each};
}

ExpertRows counted_rows(const comm::Group& group, const at::Tensor& counts, int64_t most) {
  ExpertRows rows = {.group = group, .experts = counts.size(0)};
  if (group.size() == 1) {
    rows.sent = rows.received = {most};
    rows.offsets = counts.cumsum(0).to(c10::kInt);
    return rows;
  }
  const CountTable table = exchanged_counts(group, counts, most);
  const int64_t here = rows.experts_here(), mine = here * group.rank();
  const auto rows_of = [&](const comm::Counts& all, int64_t first) {
    return std::accumulate(all.begin() + first, all.begin() + first + here, int64_t{0});
  };
  for (int rank = 0; rank < group.size(); ++rank) {
    rows.sent.push_back(rows_of(table[static_cast<size_t>(group.rank())], here * rank));
    rows.received.push_back(rows_of(table[static_cast<size_t>(rank)], mine));
  }
  sort_arrivals(rows, table, counts);
  return rows;
}

Travel to_experts(const at::Tensor& x, const ExpertRows& rows) {
  Travel travel;
  travel.rows_ = rows;
  travel.tensor_ = x;
  if (rows.group.size() == 1) return travel;
  travel.leg_ = leg_for(rows, /*home=*/false);
  travel.tensor_ = RowsDepart::apply(x, travel.leg_);
  return travel;
}

Travel from_experts(const at::Tensor& y, const ExpertRows& rows) {
  Travel travel;
  travel.rows_ = rows;
  travel.home_ = true;
  if (rows.even())
    travel.tensor_ = rows_by_rank(y, rows);
  else
    travel.tensor_ = rows.order.defined() ? kernels::reordered(y, rows.inverse, rows.order) : y;
  if (rows.group.size() == 1) return travel;
  travel.leg_ = leg_for(rows, /*home=*/true);
  travel.tensor_ = RowsDepart::apply(travel.tensor_, travel.leg_);
  return travel;
}

at::Tensor Travel::arrive() {
  if (leg_ != nullptr) tensor_ = RowsArrive::apply(tensor_, leg_);
  leg_ = nullptr;
  at::Tensor arrived = std::exchange(tensor_, {});
  if (home_) return arrived;
  if (rows_.even()) return rows_by_expert(arrived, rows_);
  return rows_.order.defined() ? kernels::reordered(arrived, rows_.order, rows_.inverse) : arrived;
}

}  // namespace braid::parallel
