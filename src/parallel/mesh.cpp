// SPDX-License-Identifier: BSD-3-Clause
#include "braid/parallel/mesh.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "braid/core/error.h"

namespace braid::parallel {
namespace {

using MeshAxis = std::pair<std::string_view, int64_t>;

std::array<MeshAxis, 6> axes_of(const MeshOptions& s) {
  return {{{"data", s.data},
           {"shard", s.shard},
           {"tensor", s.tensor},
           {"context", s.context},
           {"pipeline", s.pipeline},
           {"expert", s.expert}}};
}

// "mesh.data = 4 and mesh.tensor = 2"
std::string asked_axes(const MeshOptions& sizes) {
  std::vector<std::string> asked;
  for (const auto& [name, size] : axes_of(sizes))
    if (size > 1) asked.push_back(fmt::format("mesh.{} = {}", name, size));
  return fmt::format("{}", fmt::join(asked, " and "));
}

int64_t product_of(const MeshOptions& sizes) {
  int64_t product = 1;
  for (const auto& [name, size] : axes_of(sizes)) {
    if (size < 1 || __builtin_mul_overflow(product, size, &product))
      throw ConfigError(
          {.what = fmt::format("mesh.{} = {}", name, size),
           .why = "an axis has at least one rank, and all axes together those of a job",
           .fix = fmt::format("set mesh.{}=1", name)});
  }
  return product;
}

constexpr const char* one_process =
    "the product of the axes is the number of ranks, and this version trains in one process";

}  // namespace

void describe(Fields& fields, MeshOptions& o) {
  const Rule rule{.at_least = 1};
  fields.field("data", o.data, "ranks that share the batch, each with the whole model", rule);
  fields.field("shard", o.shard, "ranks that share the batch and the states of the model", rule);
  fields.field("tensor", o.tensor, "ranks that share each layer", rule);
  fields.field("context", o.context, "ranks that share the sequence or the rows of an image", rule);
  fields.field("pipeline", o.pipeline, "ranks that hold one run of layers each", rule);
  fields.field("expert", o.expert, "ranks that share the experts of a layer", rule);
}

std::string to_text(const MeshOptions& sizes) {
  std::vector<std::string> words;
  for (const auto& [name, size] : axes_of(sizes)) words.push_back(fmt::format("{} {}", name, size));
  return fmt::format("{}", fmt::join(words, ", "));
}

Mesh::Mesh(MeshOptions sizes, int64_t world, int64_t rank)
    : sizes_(sizes), world_(world), rank_(rank) {
  const int64_t product = product_of(sizes);
  if (world < 1 || rank < 0 || rank >= world)
    throw InternalError({.what = fmt::format("rank {} of {}", rank, world),
                         .why = "ranks count from 0 to the number of them less one",
                         .fix = "report this"});
  if (product != world && world == 1)
    throw ConfigError({.what = fmt::format("{} asks for {} ranks, but this process is the only one",
                                           asked_axes(sizes), product),
                       .why = one_process,
                       .fix = "leave the mesh out, or set every mesh axis to 1"});
  if (product != world)
    throw ConfigError(
        {.what = fmt::format("{} ranks were started, but the axes of the mesh multiply to {} ({})",
                             world, product, to_text(sizes)),
         .why = one_process,
         .fix = "start one process: without torchrun, or with srun -n 1"});
  if (world > 1)
    throw ConfigError({.what = fmt::format("{} asks for {} ranks, and this build of braid runs one",
                                           asked_axes(sizes), world),
                       .why = one_process,
                       .fix = "set every mesh axis to 1 and start one process"});
}

}  // namespace braid::parallel
