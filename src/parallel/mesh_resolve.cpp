// SPDX-License-Identifier: BSD-3-Clause
// From what a config says about the mesh to a size for every axis and an order of all of them.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "braid/core/error.h"
#include "braid/parallel/mesh.h"
#include "parallel/mesh_order.h"

namespace braid::parallel {
namespace {

constexpr const char* mesh_product_rule = "the sizes of the axes multiply to the number of ranks";

struct MeshAsked {
  Axis axis;
  int64_t size;
};

// The axes that say how many ranks they take.
std::vector<MeshAsked> asked_of(const MeshOptions& o) {
  std::vector<MeshAsked> asked;
  if (o.data) asked.push_back({Axis::data, *o.data});
  if (o.shard) asked.push_back({Axis::shard, *o.shard});
  for (const auto& [axis, size] : {MeshAsked{Axis::tensor, o.tensor},
                                   {Axis::context, o.context},
                                   {Axis::pipeline, o.pipeline},
                                   {Axis::expert, o.expert}})
    asked.push_back({axis, size});
  return asked;
}

// "mesh.data = 4 and mesh.tensor = 2"
std::string asked_text(const MeshOptions& options) {
  std::vector<std::string> words;
  for (const auto& [axis, size] : asked_of(options))
    if (size > 1) words.push_back(fmt::format("mesh.{} = {}", to_text(axis), size));
  return fmt::format("{}", fmt::join(words, " and "));
}

int64_t asked_product(const MeshOptions& options) {
  int64_t product = 1;
  for (const auto& [axis, size] : asked_of(options)) {
    if (size >= 1 && !__builtin_mul_overflow(product, size, &product)) continue;
    throw ConfigError({.what = fmt::format("mesh.{} = {}", to_text(axis), size),
                       .why = "an axis has at least one rank, and all axes together those of a job",
                       .fix = fmt::format("set mesh.{}=1", to_text(axis))});
  }
  return product;
}

// "1, 2, 3, 6", of a large number only the small ones.
std::string divisors_text(int64_t number) {
  std::vector<int64_t> divisors;
  for (int64_t i = 1; i <= number && divisors.size() < 12; ++i)
    if (number % i == 0) divisors.push_back(i);
  return fmt::format("{}{}", fmt::join(divisors, ", "),
                     divisors.back() < number ? fmt::format(", ... {}", number) : "");
}

std::string count_of_ranks(int64_t n) { return fmt::format("{} rank{}", n, n == 1 ? "" : "s"); }

[[noreturn]] void refuse_alone(const MeshOptions& options, int64_t product) {
  throw ConfigError(
      {.what = fmt::format("{} asks for {} ranks, but this process is the only one",
                           asked_text(options), product),
       .why = mesh_product_rule,
       .fix = fmt::format("start {} ranks (--ranks {}), or leave the mesh out", product, product)});
}

// Data is unset, and the ranks are no multiple of what the others take.
[[noreturn]] void refuse_rest(const MeshOptions& options, int64_t product, int64_t world) {
  if (options.shard && world % (product / *options.shard) == 0) {
    const int64_t sharing = world / (product / *options.shard);
    throw ConfigError(
        {.what = fmt::format("mesh.shard = {} does not divide the {} that share the batch",
                             *options.shard, count_of_ranks(sharing)),
         .why = "every group of mesh.shard ranks holds the model once",
         .fix = fmt::format("set mesh.shard to one of {}, or start {} or {} ranks",
                            divisors_text(sharing), std::max(world / product, int64_t{1}) * product,
                            (world / product + 1) * product)});
  }
  throw ConfigError(
      {.what = fmt::format("{} were started, but {} take {} or a multiple of them",
                           count_of_ranks(world), asked_text(options), product),
       .why = mesh_product_rule,
       .fix = fmt::format("start {} or {} ranks, or set axes whose product divides {}",
                          std::max(world / product, int64_t{1}) * product,
                          (world / product + 1) * product, world)});
}

// What mesh.data would have to be; with ZeRO over all of data, also how to get a hybrid.
std::string fitting_data(const MeshOptions& options, int64_t world, int zero_stage) {
  const int64_t others = asked_product(options) / *options.data;
  if (world % others != 0) return fmt::format("set axes that multiply to {}", world);
  const int64_t rest = world / others;
  const bool hybrid = zero_stage > 0 && !options.shard && rest % *options.data == 0;
  return fmt::format("set mesh.data={} (or leave it out: it takes the rest){}", rest,
                     hybrid ? fmt::format(", or mesh.shard={}", rest / *options.data) : "");
}

[[noreturn]] void refuse_product(const MeshOptions& options, const MeshOptions& sizes,
                                 int64_t world, int zero_stage) {
  const int64_t product = asked_product(sizes);
  throw ConfigError(
      {.what = fmt::format("{} ranks were started, but the axes of the mesh multiply to {} ({})",
                           world, product, to_text(sizes)),
       .why = mesh_product_rule,
       .fix = fmt::format("{}, or start {}", fitting_data(options, world, zero_stage),
                          count_of_ranks(product))});
}

// A choice that would do nothing is not taken in silence.
void check_shard(const MeshOptions& sizes, int zero_stage) {
  const int64_t shard = *sizes.shard;
  if (zero_stage == 0 && shard > 1)
    throw ConfigError({.what = fmt::format("mesh.shard = {} with train.zero = 0", shard),
                       .why = "train.zero says what is sharded, and 0 is nothing",
                       .fix = "set train.zero to 1, 2 or 3, or leave mesh.shard out"});
  if (zero_stage > 0 && shard == 1 && *sizes.data > 1)
    throw ConfigError(
        {.what = fmt::format("train.zero = {} with mesh.shard = 1, and mesh.data = {}", zero_stage,
                             *sizes.data),
         .why = "mesh.shard says over how many ranks ZeRO shards, and over one it shards nothing",
         .fix = "leave mesh.shard out (all ranks of data), or set train.zero=0"});
}

}  // namespace

MeshOptions resolve(const MeshOptions& options, int64_t world, int zero_stage) {
  MeshOptions sizes = options;
  const int64_t product = asked_product(options);
  if (world == 1 && product > 1) refuse_alone(options, product);
  if (!sizes.data) {
    if (world % product != 0) refuse_rest(options, product, world);
    sizes.data = world / product;
  }
  if (!sizes.shard) {
    sizes.shard = zero_stage > 0 ? *sizes.data : 1;
    if (zero_stage > 0) sizes.data = 1;
  }
  if (asked_product(sizes) != world) refuse_product(options, sizes, world, zero_stage);
  check_shard(sizes, zero_stage);
  std::vector<std::string_view> names;
  for (const Axis axis : axes_in_order(sizes)) names.push_back(to_text(axis));
  sizes.order = fmt::format("{}", fmt::join(names, "-"));
  return sizes;
}

}  // namespace braid::parallel
