// SPDX-License-Identifier: BSD-3-Clause
#include "braid/train/ranks.h"

namespace braid::train {

using parallel::Axis;

comm::Group Ranks::batch() const {
  return mesh.group(world, {Axis::data, Axis::shard, Axis::expert});
}

comm::Group Ranks::shard() const { return mesh.group(world, {Axis::shard}); }

comm::Group Ranks::replicas() const { return mesh.group(world, {Axis::data, Axis::expert}); }

}  // namespace braid::train
