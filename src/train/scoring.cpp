// SPDX-License-Identifier: BSD-3-Clause
#include "braid/train/scoring.h"

#include <fmt/format.h>

#include <algorithm>

#include "braid/core/error.h"
#include "braid/nn/metrics.h"
#include "braid/train/options.h"

namespace braid::train {
namespace {

void check_distinct(const std::vector<std::string>& names) {
  for (auto name = names.begin(); name != names.end(); ++name) {
    const auto other = std::find(names.begin(), name, *name);
    if (other == name) continue;
    throw ConfigError({.what = fmt::format("channels {} and {} are both called {}",
                                           other - names.begin(), name - names.begin(), *name),
                       .why = "metrics and pictures are distinguished by the names of the channels",
                       .fix = "set data.names to one name per channel"});
  }
}

void check_rows(const std::vector<double>& latitudes, int64_t rows) {
  if (static_cast<int64_t>(latitudes.size()) == rows) return;
  throw DataError(
      {.what = fmt::format("the data give {} latitudes for {} rows", latitudes.size(), rows),
       .why = "metrics weight each row by its latitude",
       .fix = "correct the coordinate, or --set train.area=reference"});
}

void weight_rows(Scoring& scoring, nn::Area area, const std::vector<double>& latitudes,
                 int64_t rows) {
  if (!latitudes.empty() && area != nn::Area::reference) {
    check_rows(latitudes, rows);
    scoring.row_weights = nn::row_weights(area, latitudes);
    return;
  }
  if (area == nn::Area::cells || area == nn::Area::cos)
    throw ConfigError(
        {.what = fmt::format("train.area = {}, but the data give no latitudes",
                             area == nn::Area::cells ? "cells" : "cos"),
         .why = "the weight of a row follows from its latitude",
         .fix = "give files with a latitude coordinate, or --set train.area=reference, which "
                "assumes rows from 90 to -90"});
  scoring.row_weights = nn::latitude_weights(rows);
  if (area == nn::Area::automatic)
    scoring.assumed = fmt::format(
        "The data give no latitudes: metrics assume a global grid of {} rows from 90 to -90 "
        "degrees "
        "(train.area=reference states the same without this line)",
        rows);
}

}  // namespace

bool is_forecast(at::IntArrayRef input, at::IntArrayRef target) {
  return input.size() >= 3 && input.size() == target.size() &&
         input.slice(input.size() - 2).equals(target.slice(target.size() - 2));
}

std::vector<std::string> channel_names(const data::DataOptions& options,
                                       const std::vector<std::string>& found, int64_t channels) {
  const auto count = static_cast<size_t>(channels);
  if (!options.names.empty() && options.names.size() < count)
    throw ConfigError(
        {.what =
             fmt::format("data.names has {} names for {} channels", options.names.size(), channels),
         .why = "each channel needs a name; names beyond the last channel are ignored",
         .fix = "add the missing names, or leave data.names out"});
  std::vector<std::string> names = options.names.empty() ? found : options.names;
  if (names.size() < count) names.clear();
  for (size_t channel = names.size(); channel < count; ++channel)
    names.push_back(fmt::format("c{}", channel));
  names.resize(count);
  check_distinct(names);
  return names;
}

Scoring scoring_of(const RunOptions& options, const data::Source& source) {
  Scoring scoring{.loss = options.train.loss, .psnr_range = options.valid.psnr_range};
  const std::vector<int64_t>& input = source.spec().input.shape;
  const std::vector<int64_t>& target = source.spec().target.shape;
  if (target.size() != 3 || options.train.loss == nn::Loss::cross_entropy) return scoring;
  const data::FieldInfo fields = source.fields();
  scoring.names = channel_names(options.data, fields.names, target[0]);
  scoring.anomalies = !source.scaling().mean.empty();
  if (is_forecast(input, target) || options.train.loss == nn::Loss::relative_l2)
    weight_rows(scoring, options.train.area, fields.latitudes, target[1]);
  return scoring;
}

}  // namespace braid::train
