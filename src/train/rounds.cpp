// SPDX-License-Identifier: BSD-3-Clause
#include "braid/train/rounds.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <utility>

#include "braid/core/dry.h"

namespace braid::train {
namespace {

constexpr int64_t report_numbers = 6;
static_assert(sizeof(RankReport) == report_numbers * sizeof(double), "each number travels");

}  // namespace

Rounds::Rounds(comm::Group control, int64_t copies)
    : control_(std::move(control)),
      copies_(copies),
      mine_(at::empty({report_numbers}, c10::kDouble)),
      all_(at::empty({control_.size() * report_numbers}, c10::kDouble)) {}

void Rounds::begin(const RankReport& mine) {
  reports_.clear();
  if (!has_data(mine_)) {  // a dry run: all ranks are as this one
    reports_.assign(static_cast<size_t>(control_.size()), mine);
    return;
  }
  const std::array<double, report_numbers> numbers = {mine.weight,    mine.stop,      mine.seconds,
                                                      mine.data_wait, mine.comm_wait, mine.profile};
  std::copy(numbers.begin(), numbers.end(), mine_.mutable_data_ptr<double>());
  under_way_ = control_.all_gather(all_, mine_);
}

const std::vector<RankReport>& Rounds::reports() {
  if (!reports_.empty()) return reports_;
  under_way_.wait();
  const double* at = all_.const_data_ptr<double>();
  for (int rank = 0; rank < control_.size(); ++rank, at += report_numbers)
    reports_.push_back({at[0], at[1], at[2], at[3], at[4], at[5]});
  return reports_;
}

double Rounds::weight() {
  double sum = 0;
  for (const RankReport& report : reports()) sum += report.weight;
  return sum / static_cast<double>(copies_);  // whole numbers: exact
}

double Rounds::stop() {
  double most = 0;
  for (const RankReport& report : reports()) most = std::max(most, report.stop);
  return most;
}

double Rounds::profile() {
  double most = 0;
  for (const RankReport& report : reports()) most = std::max(most, report.profile);
  return most;
}

}  // namespace braid::train
