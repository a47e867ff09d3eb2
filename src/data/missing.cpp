// SPDX-License-Identifier: BSD-3-Clause
#include "data/missing.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "braid/core/error.h"
#include "braid/core/units.h"

namespace braid::data {
namespace {

bool is_missing(float value) { return std::isnan(value); }

[[noreturn]] void complain_of_missing(const FieldFile& file, const Slab& slab,
                                      const float* values) {
  const int64_t plane = slab.rows * slab.cols, count = slab.channels * plane;
  const int64_t at = std::find_if(values, values + count, is_missing) - values;
  const float* channel = values + at / plane * plane;
  const auto here = std::count_if(channel, channel + plane, is_missing);
  throw DataError(
      {.what =
           fmt::format("{} missing value{} of {} in {}, frame {}: the first at row {}, column {}",
                       with_commas(here), here == 1 ? "" : "s",
                       file.channel_name(slab.channel + at / plane), file.path().string(),
                       slab.frame, slab.row + at % plane / slab.cols, slab.col + at % slab.cols),
       .why = "one missing value would turn the loss and all weights into NaN",
       .fix = "set data.missing to fill (the channel's mean takes their place), or take the "
              "variable out; braid data check counts them"});
}

}  // namespace

MissingRule::MissingRule(const DataOptions& options, const Scaling& scaling)
    : rule_(options.missing), scaling_(scaling) {
  if (rule_ == Missing::error || !scaling.mean.empty()) return;
  throw ConfigError({.what = "data.missing = fill without data.means",
                     .why = "the mean of its channel takes the place of a missing value",
                     .fix = "make the statistics (braid data stats DIR --out STATS) and set "
                            "data.means and data.stds"});
}

void MissingRule::settle(const FieldFile& file, const Slab& slab, float* values,
                         const Scaling& scaling) const {
  if (rule_ == Missing::error) complain_of_missing(file, slab, values);
  const int64_t plane = slab.rows * slab.cols;
  for (int64_t c = 0; c < slab.channels; ++c) {
    const auto channel = static_cast<size_t>(slab.channel + c);
    const float mean = scaling.mean.empty() ? scaling_.mean[channel] : 0;
    std::replace_if(values + c * plane, values + (c + 1) * plane, is_missing, mean);
  }
}

}  // namespace braid::data
