// SPDX-License-Identifier: BSD-3-Clause
#include "braid/core/dry.h"

#include <algorithm>

#include "braid/comm/backend.h"
#include "comm/check.h"

namespace braid::comm {
namespace {

class Dry final : public Backend {
 public:
  Dry(int rank, int size, std::string group) : rank_(rank), size_(size), group_(std::move(group)) {}

  std::unique_ptr<Work> start(const Call& call) override {
    check(call, {.rank = rank_, .size = size_, .group = group_});
    if (has_data(call.output)) fill(call);
    return finished();
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string_view name() const override { return "dry"; }

  std::shared_ptr<Backend> split(const std::vector<int>& ranks, const std::string& name) override {
    const auto mine = std::find(ranks.begin(), ranks.end(), rank_);
    return std::make_shared<Dry>(static_cast<int>(mine - ranks.begin()),
                                 static_cast<int>(ranks.size()), name);
  }

 private:
  bool adds(const Call& call) const { return call.op == Op::sum || call.op == Op::mean; }

  // As if every rank had given what this one gives.
  void fill(const Call& call) const {
    switch (call.kind) {
      case Kind::all_reduce:
        if (adds(call)) call.output.mul_(size_);
        break;
      case Kind::reduce_scatter:
        call.output.copy_(own_share(call).view_as(call.output));
        if (adds(call)) call.output.mul_(size_);
        break;
      case Kind::all_gather:
        fill_all_gather(call);
        break;
      case Kind::all_to_all:
        fill_all_to_all(call);
        break;
      case Kind::recv:
        call.output.zero_();
        break;
      case Kind::broadcast:
      case Kind::send:
      case Kind::barrier:
        break;
    }
  }

  at::Tensor own_share(const Call& call) const {
    if (call.input_counts.empty()) return call.input.view({size_, -1})[rank_];
    int64_t first = 0;
    for (int i = 0; i < rank_; ++i) first += call.input_counts[static_cast<size_t>(i)];
    return call.input.narrow(0, first, call.input_counts[static_cast<size_t>(rank_)]);
  }

  void fill_all_gather(const Call& call) const {
    if (call.output_counts.empty()) {
      const at::Tensor rows = call.output.view({size_, -1}), own = call.input.view({-1});
      for (int i = 0; i < size_; ++i)  // the input may be this rank's place in the output
        if (rows[i].const_data_ptr() != own.const_data_ptr()) rows[i].copy_(own);
      return;
    }
    call.output.zero_();  // shares of other sizes cannot equal ours
    int64_t first = 0;
    for (const int64_t rows : call.output_counts) {
      if (rows == call.input.size(0)) call.output.narrow(0, first, rows).copy_(call.input);
      first += rows;
    }
  }

  void fill_all_to_all(const Call& call) const {
    if (!call.input_counts.empty() || !call.output_counts.empty()) {
      call.output.zero_();
    } else {
      call.output.view({size_, -1}).copy_(own_share(call).view({1, -1}));
    }
  }

  int rank_, size_;
  std::string group_;
};

}  // namespace

std::shared_ptr<Backend> dry(int rank, int size) {
  return std::make_shared<Dry>(rank, size, "world");
}

}  // namespace braid::comm
