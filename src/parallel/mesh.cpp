// SPDX-License-Identifier: BSD-3-Clause
#include "braid/parallel/mesh.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "braid/core/error.h"
#include "parallel/mesh_order.h"

namespace braid::parallel {

struct Mesh::Cache {
  std::map<Axes, comm::Group> groups;  // of one world, by sorted axes of several ranks
  comm::Group world;
};

void describe(Fields& fields, MeshOptions& o) {
  constexpr double most_ranks = 1 << 20;
  const Rule rule{.at_least = 1, .at_most = most_ranks},
      rest{.at_least = 1, .at_most = most_ranks, .none = "auto"};
  fields.field("data", o.data, "ranks that share the batch, each with the whole model; auto: rest",
               rest);
  fields.field("shard", o.shard,
               "ranks that share the batch and the states of the model; auto: with train.zero all "
               "of data, else 1",
               rest);
  fields.field("tensor", o.tensor, "ranks that share each layer", rule);
  fields.field("context", o.context, "ranks that share the sequence or the rows of an image", rule);
  fields.field("pipeline", o.pipeline, "ranks that hold one run of layers each", rule);
  fields.field("expert", o.expert, "ranks that share the experts of a layer", rule);
  fields.field("order", o.order,
               "axes joined by -, neighbours first; also tp, cp, ep, fsdp, dp, pp");
}

std::string to_text(const MeshOptions& sizes) {
  const auto text = [](const std::optional<int64_t>& size) {
    return size ? std::to_string(*size) : std::string("auto");
  };
  return fmt::format("data {}, shard {}, tensor {}, context {}, pipeline {}, expert {}",
                     text(sizes.data), text(sizes.shard), sizes.tensor, sizes.context,
                     sizes.pipeline, sizes.expert);
}

Mesh::Mesh() : Mesh(MeshOptions{}, 1, 0) {}

Mesh::Mesh(const MeshOptions& options, int64_t world, int64_t rank, int zero_stage)
    : world_(world), rank_(rank), cache_(std::make_shared<Cache>()) {
  if (world < 1 || rank < 0 || rank >= world)
    throw InternalError({.what = fmt::format("rank {} of {}", rank, world),
                         .why = "ranks count from 0 to the number of them less one",
                         .fix = "report this"});
  sizes_ = resolve(options, world, zero_stage);
  int64_t stride = 1;
  for (const Axis axis : axes_in_order(sizes_)) {
    const auto at = static_cast<size_t>(axis);
    extent_[at] = size_of(sizes_, axis);
    stride_[at] = stride;
    stride *= extent_[at];
  }
}

int64_t Mesh::index_of(Axis axis, int64_t rank) const {
  const auto at = static_cast<size_t>(axis);
  return rank / stride_[at] % extent_[at];
}

std::vector<int> Mesh::ranks_with(const Axes& axes, int64_t rank) const {
  Axes unique = axes;
  std::sort(unique.begin(), unique.end());
  unique.erase(std::unique(unique.begin(), unique.end()), unique.end());
  for (const Axis axis : unique) rank -= index_of(axis, rank) * stride_[static_cast<size_t>(axis)];
  std::vector<int> ranks = {static_cast<int>(rank)};  // the first one; then along each axis
  for (const Axis axis : unique) {
    const size_t before = ranks.size();
    for (int64_t i = 1; i < size(axis); ++i)
      for (size_t k = 0; k < before; ++k)
        ranks.push_back(ranks[k] + static_cast<int>(i * stride_[static_cast<size_t>(axis)]));
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

std::vector<int> Mesh::ranks_of(const Axes& axes) const { return ranks_with(axes, rank_); }

std::vector<std::vector<int>> Mesh::all_groups(const Axes& axes) const {
  std::vector<std::vector<int>> groups;
  for (int64_t rank = 0; rank < world_; ++rank) {
    std::vector<int> ranks = ranks_with(axes, rank);
    if (ranks.front() == rank) groups.push_back(std::move(ranks));
  }
  return groups;
}

comm::Group Mesh::group(const comm::Group& world, const Axes& axes) const {
  if (world.size() != world_ || world.rank() != rank_)
    throw InternalError(
        {.what = fmt::format("rank {} of {} in group {}, rank {} of {} in the mesh", world.rank(),
                             world.size(), world.name(), rank_, world_),
         .why = "groups of a mesh are split off the world it was made for",
         .fix = "pass the group of all ranks of the job"});
  if (!(cache_->world == world)) *cache_ = {.groups = {}, .world = world};
  Axes wide;
  for (const Axis axis : axes)
    if (size(axis) > 1) wide.push_back(axis);
  std::sort(wide.begin(), wide.end());
  wide.erase(std::unique(wide.begin(), wide.end()), wide.end());
  const auto found = cache_->groups.find(wide);
  if (found != cache_->groups.end()) return found->second;
  std::vector<std::string_view> names;
  for (const Axis axis : wide) names.push_back(to_text(axis));
  const std::string name = wide.empty() ? "alone" : fmt::format("{}", fmt::join(names, "-"));
  return cache_->groups[wide] = world.split(ranks_with(wide, rank_), name);
}

std::string to_text(const Mesh& mesh) {
  std::vector<std::string> words;
  for (size_t i = 0; i < axis_count; ++i)
    if (const auto axis = static_cast<Axis>(i); mesh.size(axis) > 1)
      words.push_back(fmt::format("{} {}", to_text(axis), mesh.size(axis)));
  return fmt::format("{}", fmt::join(words, ", "));
}

int64_t Mesh::batch_rank() const {
  const std::vector<int> ranks = ranks_of({Axis::data, Axis::shard, Axis::expert});
  return std::lower_bound(ranks.begin(), ranks.end(), rank_) - ranks.begin();
}

}  // namespace braid::parallel
