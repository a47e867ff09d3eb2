// SPDX-License-Identifier: BSD-3-Clause
#include "braid/train/ranks.h"

#include <array>

namespace braid::train {

using parallel::Axis;

comm::Group Ranks::batch() const {
  return mesh.group(world, {Axis::data, Axis::shard, Axis::expert});
}

comm::Group Ranks::shard() const { return mesh.group(world, {Axis::shard}); }

comm::Group Ranks::owners() const {
  return mesh.group(world, {Axis::shard, Axis::tensor, Axis::expert, Axis::pipeline});
}

comm::Group Ranks::pipeline() const { return mesh.group(world, {Axis::pipeline}); }

comm::Group Ranks::losses() const {
  return mesh.group(world, {Axis::data, Axis::shard, Axis::expert, Axis::pipeline});
}

comm::Group Ranks::tokens() const {
  return mesh.group(world, {Axis::data, Axis::shard, Axis::expert, Axis::context});
}

parallel::ReplicasOf Ranks::replicas_of() const {
  std::array<comm::Group, 4> groups;
  for (const bool expert : {false, true})
    for (const bool partial : {false, true}) {
      parallel::Axes axes = {Axis::data, Axis::context};
      if (!expert) axes.push_back(Axis::expert);
      if (partial) axes.push_back(Axis::tensor);
      groups[2 * expert + partial] = mesh.group(world, axes);
    }
  return [groups](const Param& param) { return groups[2 * param.expert + param.tensor_partial]; };
}

bool Ranks::sums() const {
  return mesh.batch_ranks() > 1 || mesh.size(Axis::context) > 1 || mesh.size(Axis::tensor) > 1;
}

int64_t Ranks::copies() const { return mesh.world() / mesh.batch_ranks(); }

Ranks dry_ranks(const parallel::Mesh& mesh) {
  Ranks ranks;
  ranks.mesh = mesh;
  if (mesh.world() == 1) return ranks;
  ranks.world =
      comm::Group(comm::dry(static_cast<int>(mesh.rank()), static_cast<int>(mesh.world())));
  ranks.control = ranks.world;
  return ranks;
}

}  // namespace braid::train
