// SPDX-License-Identifier: BSD-3-Clause
// How the ranks of a job are laid out: the sizes of the axes; their product is the number of ranks.
// This version trains in one process, so every axis is 1.
//
//   parallel::Mesh mesh(options.mesh, here.world, here.rank);
//   log.info(parallel::to_text(mesh.sizes()));   // "data 1, shard 1, ..."
#pragma once
#include <cstdint>
#include <string>

#include "braid/core/options.h"

namespace braid::parallel {

struct MeshOptions {
  int64_t data = 1;
  int64_t shard = 1;
  int64_t tensor = 1;
  int64_t context = 1;
  int64_t pipeline = 1;
  int64_t expert = 1;
  bool operator==(const MeshOptions&) const = default;
};
void describe(Fields& fields, MeshOptions& options);
std::string to_text(const MeshOptions& sizes);

class Mesh {
 public:
  Mesh() = default;  // one rank
  // Throws ConfigError if the product is not the world, or if there is more than one rank.
  Mesh(MeshOptions sizes, int64_t world, int64_t rank);
  const MeshOptions& sizes() const { return sizes_; }
  int64_t rank() const { return rank_; }
  int64_t world() const { return world_; }
  bool operator==(const Mesh&) const = default;

 private:
  MeshOptions sizes_;
  int64_t world_ = 1;
  int64_t rank_ = 0;
};

}  // namespace braid::parallel
