// SPDX-License-Identifier: BSD-3-Clause
#include "parallel/mesh_order.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "braid/core/error.h"

namespace braid::parallel {
namespace {

struct AxisName {
  std::string_view name, alias;
};
constexpr std::array<AxisName, axis_count> axis_names = {{{"data", "dp"},
                                                          {"shard", "fsdp"},
                                                          {"tensor", "tp"},
                                                          {"context", "cp"},
                                                          {"pipeline", "pp"},
                                                          {"expert", "ep"}}};
constexpr const char* order_rule =
    "an order names each axis once, joined by -, the one whose ranks are neighbours first";

Axis axis_named(std::string_view word, const std::string& order) {
  std::vector<std::string> known;
  for (size_t i = 0; i < axis_count; ++i) {
    if (word == axis_names[i].name || word == axis_names[i].alias) return static_cast<Axis>(i);
    known.emplace_back(axis_names[i].name);
  }
  for (const AxisName& axis : axis_names) known.emplace_back(axis.alias);
  const std::string near = nearest(word, known);
  throw ConfigError({.what = fmt::format("mesh.order = {} names \"{}\"", order, word),
                     .why = order_rule,
                     .fix = near.empty()
                                ? "use data, shard, tensor, context, pipeline, expert, or dp, "
                                  "fsdp, tp, cp, pp, ep"
                                : fmt::format("did you mean {}?", near)});
}

bool named_in(const Axes& axes, Axis axis) {
  return std::find(axes.begin(), axes.end(), axis) != axes.end();
}

Axes axes_named(const std::string& order) {
  Axes axes;
  std::string_view rest = order;
  while (!order.empty()) {
    const size_t end = rest.find('-');
    const Axis axis = axis_named(rest.substr(0, end), order);
    if (named_in(axes, axis))
      throw ConfigError(
          {.what = fmt::format("mesh.order = {} names {} twice", order, to_text(axis)),
           .why = order_rule,
           .fix = fmt::format("take one {} out", to_text(axis))});
    axes.push_back(axis);
    if (end == std::string_view::npos) break;
    rest.remove_prefix(end + 1);
  }
  return axes;
}

// Who writes tp-cp-dp means by dp all ranks that share the batch: sharded ones are neighbours.
void pair_data_and_shard(Axes& axes) {
  const auto data = std::find(axes.begin(), axes.end(), Axis::data);
  const auto shard = std::find(axes.begin(), axes.end(), Axis::shard);
  if (data != axes.end() && shard == axes.end()) {
    axes.insert(data, Axis::shard);
  } else if (shard != axes.end() && data == axes.end()) {
    axes.insert(shard + 1, Axis::data);
  }
}

}  // namespace

std::string_view to_text(Axis axis) { return axis_names[static_cast<size_t>(axis)].name; }

int64_t size_of(const MeshOptions& sizes, Axis axis) {
  switch (axis) {
    case Axis::data:
      return sizes.data.value_or(1);
    case Axis::shard:
      return sizes.shard.value_or(1);
    case Axis::tensor:
      return sizes.tensor;
    case Axis::context:
      return sizes.context;
    case Axis::pipeline:
      return sizes.pipeline;
    case Axis::expert:
      return sizes.expert;
  }
  return 1;
}

Axes axes_in_order(const MeshOptions& sizes) {
  Axes axes = axes_named(sizes.order);
  pair_data_and_shard(axes);
  for (const Axis axis :
       {Axis::tensor, Axis::context, Axis::expert, Axis::shard, Axis::data, Axis::pipeline}) {
    if (named_in(axes, axis)) continue;
    if (size_of(sizes, axis) > 1)
      throw ConfigError({.what = fmt::format("mesh.order = {} leaves out {}, which has {} ranks",
                                             sizes.order, to_text(axis), size_of(sizes, axis)),
                         .why = "where an axis of several ranks stands decides who talks to whom",
                         .fix = fmt::format("set mesh.order={}{}{}", sizes.order,
                                            sizes.order.empty() ? "" : "-", to_text(axis))});
    axes.push_back(axis);
  }
  return axes;
}

}  // namespace braid::parallel
