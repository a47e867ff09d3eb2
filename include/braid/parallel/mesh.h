// SPDX-License-Identifier: BSD-3-Clause
// How the ranks of a job are laid out: named axes whose sizes multiply to the number of ranks.
//
//   parallel::Mesh mesh(options.mesh, here.world, here.rank, options.train.zero);
//   // ranks that agree in all other axes
//   comm::Group replicas = mesh.group(world, {parallel::Axis::data});
//   log.info(parallel::to_text(mesh.sizes()));                // "data 2, shard 4, tensor 1, ..."
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "braid/comm/group.h"
#include "braid/core/options.h"

namespace braid::parallel {

enum class Axis : uint8_t { data, shard, tensor, context, pipeline, expert };
inline constexpr size_t axis_count = 6;
std::string_view to_text(Axis axis);
using Axes = std::vector<Axis>;

struct MeshOptions {
  std::optional<int64_t> data = {};   // unset: the ranks that the other axes leave
  std::optional<int64_t> shard = {};  // unset: with ZeRO all ranks of data, else 1
  int64_t tensor = 1;
  int64_t context = 1;
  int64_t pipeline = 1;
  int64_t expert = 1;
  // The first axis varies fastest: its ranks are neighbours, where the links are fast. Tensor and
  // context talk within a layer, expert twice a layer, shard a block ahead, data and pipeline
  // least. Also tp, cp, ep, fsdp, dp, pp; what is left out must have one rank, but shard goes with
  // data.
  std::string order = "tensor-context-expert-shard-data-pipeline";
  bool operator==(const MeshOptions&) const = default;
};
void describe(Fields& fields, MeshOptions& options);
std::string to_text(const MeshOptions& sizes);  // an unset size is "auto"

// All sizes set and all axes in `order`, under their long names. Throws ConfigError if they do not
// make up `world`. `zero_stage` 1 .. 3: something is sharded.
MeshOptions resolve(const MeshOptions& options, int64_t world, int zero_stage = 0);

class Mesh {
 public:
  Mesh();  // one rank
  Mesh(const MeshOptions& options, int64_t world, int64_t rank, int zero_stage = 0);

  const MeshOptions& sizes() const { return sizes_; }  // resolved
  int64_t size(Axis axis) const { return extent_[static_cast<size_t>(axis)]; }
  int64_t index(Axis axis) const { return index_of(axis, rank_); }  // of this rank on the axis
  int64_t rank() const { return rank_; }
  int64_t world() const { return world_; }

  // Ranks that agree with this one in all axes but the given ones, ascending.
  std::vector<int> ranks_of(const Axes& axes) const;
  // All such lists, each rank in one of them, in the order of their first ranks.
  std::vector<std::vector<int>> all_groups(const Axes& axes) const;
  // This rank's group over the given axes. All ranks of `world` ask for the same groups in the same
  // order; one asked for before is given again. Axes of one rank neither name nor make a group.
  comm::Group group(const comm::Group& world, const Axes& axes) const;

  // The batch is shared by data x shard x expert; ranks that differ in the other axes only see the
  // same samples.
  int64_t batch_rank() const;
  int64_t batch_ranks() const { return size(Axis::data) * size(Axis::shard) * size(Axis::expert); }

  bool operator==(const Mesh& other) const {
    return sizes_ == other.sizes_ && world_ == other.world_ && rank_ == other.rank_;
  }

 private:
  int64_t index_of(Axis axis, int64_t rank) const;
  std::vector<int> ranks_with(const Axes& axes, int64_t rank) const;

  struct Cache;
  MeshOptions sizes_;
  int64_t world_ = 1;
  int64_t rank_ = 0;
  std::array<int64_t, axis_count> extent_ = {1, 1, 1, 1, 1, 1};
  std::array<int64_t, axis_count> stride_ = {1, 1, 1, 1, 1, 1};  // ranks between two neighbours
  std::shared_ptr<Cache> cache_;  // groups made so far; copies of a mesh share them
};

std::string to_text(const Mesh& mesh);  // "data 2, shard 4": the axes of more than one rank

}  // namespace braid::parallel
