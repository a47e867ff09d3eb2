// SPDX-License-Identifier: BSD-3-Clause
#include "braid/train/maps.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "braid/core/error.h"
#include "braid/core/units.h"

namespace braid::train {
namespace {

bool is_upside_down(const std::vector<double>& latitudes) {
  return latitudes.size() > 1 && latitudes.front() < latitudes.back();
}

std::vector<float> map_values(const at::Tensor& field, bool upside_down) {
  at::Tensor host = field.to(at::kCPU, at::kFloat);
  if (upside_down) host = host.flip({0});
  host = host.contiguous();
  return {host.const_data_ptr<float>(), host.const_data_ptr<float>() + host.numel()};
}

at::Tensor channel_column(const std::vector<float>& values) {  // [channels, 1, 1]
  const at::Tensor column =
      at::empty({static_cast<int64_t>(values.size()), 1, 1}, at::TensorOptions(c10::kFloat));
  std::copy(values.begin(), values.end(), column.mutable_data_ptr<float>());
  return column;
}

}  // namespace

int64_t channel_called(const std::string& key, const std::string& word,
                       const std::vector<std::string>& names) {
  if (word.empty()) return 0;
  const auto found = std::ranges::find(names, word);
  if (found != names.end()) return found - names.begin();
  const std::optional<double> number = parse_number(word);
  for (size_t channel = 0; channel < names.size(); ++channel)
    if (number == static_cast<double>(channel)) return static_cast<int64_t>(channel);
  const std::string guess = nearest(word, names);
  throw ConfigError(
      {.what = fmt::format("{} {} is not a channel of the fields", key, word),
       .why = fmt::format("the channels are 0 to {}: {}", names.size() - 1, fmt::join(names, ", ")),
       .fix = fmt::format("choose one of them, e.g. {}", guess.empty() ? names.front() : guess)});
}

std::string channel_label(const data::FieldInfo& info, int64_t channel) {
  const auto at = static_cast<size_t>(channel);
  const std::string name = at < info.names.size() ? info.names[at] : fmt::format("c{}", channel);
  const std::string unit = at < info.units.size() ? info.units[at] : "";
  return unit.empty() ? name : fmt::format("{} ({})", name, unit);
}

PictureRecord maps_of(const data::FieldInfo& info, int64_t channel,
                      const std::vector<std::pair<std::string, at::Tensor>>& fields) {
  PictureRecord picture;
  picture.rows = fields.front().second.size(1);
  picture.columns = fields.front().second.size(2);
  const std::string label = channel_label(info, channel);
  for (const auto& [what, field] : fields)
    picture.panels.emplace_back(fmt::format("{}: {}", label, what),
                                map_values(field[channel], is_upside_down(info.latitudes)));
  return picture;
}

at::Tensor physical(const at::Tensor& fields, const data::Scaling& scaling) {
  at::Tensor host = fields.to(at::kCPU, at::kFloat);
  if (scaling.mean.empty()) return host;
  return host.mul(channel_column(scaling.std)).add(channel_column(scaling.mean));
}

}  // namespace braid::train
