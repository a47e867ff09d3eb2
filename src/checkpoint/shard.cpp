// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoint/shard.h"

#include <fmt/format.h>

#include <map>

namespace braid::checkpoint {
namespace {

namespace fs = std::filesystem;

StoredPiece piece_of(const Holding& held, const WrittenRun& run) {
  return {.name = held.name,
          .dtype = held.dtype,
          .whole = held.whole,
          .first = held.first + run.first,
          .count = run.count,
          .begin = 0,
          .xxh3 = {},
          .cuts = held.cuts};
}

// Of a box that is whole its own, else a row of elements.
std::vector<int64_t> stored_shape(const StoredPiece& piece) {
  const std::vector<int64_t> box = box_of({piece.whole, piece.cuts, 0});
  return piece.first == 0 && piece.count == elements_of(box) ? box
                                                             : std::vector<int64_t>{piece.count};
}

// A second run of a tensor needs another name in the file.
std::string name_in_file(const ShardPlan& plan, const WrittenRun& run) {
  for (const Part& part : plan.parts)
    if (part.stored_name == run.name) return fmt::format("{}@{}", run.name, run.first);
  return run.name;
}

ShardPlan empty_plan(int64_t rank, int64_t world) {
  return {.file = shard_name(rank, world),
          .parts = {},
          .metadata = {{"format", "braid-shard"},
                       {"rank", std::to_string(rank)},
                       {"world", std::to_string(world)}}};
}

}  // namespace

std::string shard_name(int64_t rank, int64_t world) {
  return fmt::format("{}-{:05}-of-{:05}.safetensors", world == 1 ? "state" : "shard", rank, world);
}

std::string record_name(int64_t rank, int64_t world) {
  return fmt::format("record-{:05}-of-{:05}.json", rank, world);
}

std::string failure_name(int64_t rank, int64_t world) {
  return fmt::format("failed-{:05}-of-{:05}.txt", rank, world);
}

std::vector<ShardPlan> plan_shards(const std::vector<Holding>& holdings,
                                   const std::vector<WrittenRun>& runs, int64_t rank,
                                   int64_t world) {
  std::map<std::string, const Holding*> held;
  for (const Holding& holding : holdings) held[holding.name] = &holding;
  ShardPlan model{.file = "model.safetensors", .parts = {}, .metadata = {{"format", "pt"}}};
  ShardPlan rest = empty_plan(rank, world);
  for (const WrittenRun& run : runs) {
    Part part{.piece = piece_of(*held.at(run.name), run),
              .stored_name = run.first == 0 ? run.name : name_in_file(rest, run),
              .host = {}};
    if (world == 1 && run.name.starts_with(model_prefix)) {
      part.stored_name = run.name.substr(model_prefix.size());
      model.parts.push_back(std::move(part));
    } else {
      rest.parts.push_back(std::move(part));
    }
  }
  std::vector<ShardPlan> plans;
  if (world == 1) plans.push_back(std::move(model));
  plans.push_back(std::move(rest));
  return plans;
}

Shard write_shard(const fs::path& dir, const ShardPlan& plan) {
  std::vector<TensorInfo> infos;
  std::map<std::string, const Part*> parts;
  for (const Part& part : plan.parts) {
    infos.push_back({part.stored_name, part.piece.dtype, stored_shape(part.piece)});
    parts[part.stored_name] = &part;
  }
  TensorFileWriter out(dir / plan.file, std::move(infos), plan.metadata);
  Shard shard{.file = plan.file, .record = {}, .pieces = {}};
  for (const TensorInfo& info : out.tensors()) {
    const Part& part = *parts.at(info.name);
    shard.pieces.push_back(part.piece);
    shard.pieces.back().begin = info.begin;
    shard.pieces.back().xxh3 = out.add(part.host());
  }
  shard.record = out.finish();
  return shard;
}

}  // namespace braid::checkpoint
