// SPDX-License-Identifier: BSD-3-Clause
#include "braid/train/rounds.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

namespace braid::train {
namespace {

constexpr int64_t report_numbers = 5;
static_assert(sizeof(RankReport) == report_numbers * sizeof(double));

}  // namespace

Rounds::Rounds(comm::Group control)
    : control_(std::move(control)),
      mine_(at::empty({report_numbers}, c10::kDouble)),
      all_(at::empty({control_.size() * report_numbers}, c10::kDouble)) {}

void Rounds::begin(const RankReport& mine) {
  reports_.clear();
  std::memcpy(mine_.mutable_data_ptr<double>(), &mine, sizeof mine);
  under_way_ = control_.all_gather(all_, mine_);
}

const std::vector<RankReport>& Rounds::reports() {
  if (!reports_.empty()) return reports_;
  under_way_.wait();
  reports_.resize(static_cast<size_t>(control_.size()));
  std::memcpy(reports_.data(), all_.const_data_ptr<double>(), reports_.size() * sizeof(RankReport));
  return reports_;
}

double Rounds::weight() {
  double sum = 0;
  for (const RankReport& report : reports()) sum += report.weight;
  return sum;
}

double Rounds::stop() {
  double most = 0;
  for (const RankReport& report : reports()) most = std::max(most, report.stop);
  return most;
}

}  // namespace braid::train
