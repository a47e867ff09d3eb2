// SPDX-License-Identifier: BSD-3-Clause
// Two interleaved noisy spirals, a class each: the classification task that trains in seconds.
#include <fmt/format.h>

#include <cmath>
#include <numbers>

#include "braid/core/error.h"
#include "braid/core/rng.h"
#include "braid/data/loader.h"
#include "data/fields.h"

namespace braid::data {
namespace {

class SpiralSource final : public Source {
 public:
  SpiralSource(const DataOptions& options, Split split)
      : points_(options.points / 2 * 2),
        noise_(options.noise),
        split_(split),
        key_(random_key(static_cast<uint64_t>(options.data_seed), "spiral")) {
    const int64_t train = points_ * 70 / 100, valid = points_ * 15 / 100;
    const int64_t first = split == Split::train ? 0 : split == Split::valid ? train : train + valid;
    const int64_t count = split == Split::train   ? train
                          : split == Split::valid ? valid
                                                  : points_ - train - valid;
    if (count == 0)
      throw ConfigError({.what = fmt::format("data.points = {} leaves no point for {}", points_,
                                             split_name(split)),
                         .why = "points are split 70 / 15 / 15 into train, valid and test",
                         .fix = "set data.points to at least 20"});
    const auto order = epoch_order(points_, static_cast<uint64_t>(options.data_seed), 0, true);
    members_.assign(order.begin() + first, order.begin() + first + count);
    if (auto limit = split_limit(options, split); limit && *limit < count)
      members_.resize(static_cast<size_t>(*limit));
    spec_.input = {{2}, c10::kFloat};
    spec_.target = {{}, c10::kLong};
  }

  int64_t size() const override { return static_cast<int64_t>(members_.size()); }
  const SampleSpec& spec() const override { return spec_; }

  void read(Access access, const Sample& out) const override {
    const int64_t point = members_[static_cast<size_t>(access.index)], half = points_ / 2;
    const int64_t label = point / half;
    const double along =
        half > 1 ? static_cast<double>(point % half) / static_cast<double>(half - 1) : 0.0;
    const double angle =
        4 * std::numbers::pi * along + static_cast<double>(label) * std::numbers::pi;
    const double radius = 0.1 + 0.9 * along;
    const auto draw = static_cast<uint64_t>(point) * 2;
    auto* xy = out.input.mutable_data_ptr<float>();
    xy[0] = static_cast<float>(radius * std::cos(angle) + noise_ * random_normal(key_, draw));
    xy[1] = static_cast<float>(radius * std::sin(angle) + noise_ * random_normal(key_, draw + 1));
    *out.target.mutable_data_ptr<int64_t>() = label;
  }

  std::string describe(int64_t index) const override {
    return fmt::format("spiral, {} point {}", split_name(split_), index);
  }

 private:
  int64_t points_;
  double noise_;
  Split split_;
  RandomKey key_;
  std::vector<int64_t> members_;  // points of this split, shuffled
  SampleSpec spec_;
};

}  // namespace

std::shared_ptr<const Source> open_spiral(const DataOptions& options, Split split) {
  return std::make_shared<SpiralSource>(options, split);
}

}  // namespace braid::data
