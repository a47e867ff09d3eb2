// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoint/newest.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <exception>
#include <nlohmann/json.hpp>

#include "braid/comm/texts.h"
#include "braid/core/error.h"
#include "checkpoint/folder.h"
#include "checkpoint/manifest.h"

namespace braid::checkpoint {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

std::string reason_of(const StorageError& error) {
  // What the file system refused is said in `what`.
  const Complaint& c = error.complaint();
  return c.what.starts_with("checkpoint ") ? c.why : fmt::format("{}: {}", c.what, c.why);
}

// Rank 0 looks at sizes: one rank that asks the file system about every shard is enough. Newest
// first: [name, reason why it cannot be used].
json candidates_in(const fs::path& dir) {
  json candidates = json::array();
  const std::vector<fs::path> all = checkpoint_folders(dir);
  for (auto folder = all.rbegin(); folder != all.rend(); ++folder) {
    std::string reason;
    try {
      check_sizes(read_manifest(*folder), *folder);
    } catch (const StorageError& error) {
      reason = reason_of(error);
    }
    candidates.push_back({folder->filename().string(), reason});
  }
  return candidates;
}

// How one rank fared with a checkpoint.
struct Attempt {
  std::string broken;             // reason: all go on to the one before
  std::exception_ptr other = {};  // anything else ends the search on all ranks
  std::string text() const {
    if (other) return "!" + broken;
    return broken.empty() ? "" : "?" + broken;
  }
};

Attempt attempt(const fs::path& dir, const Store::Take& take, Snapshot& snapshot) {
  try {
    const Reader reader(dir);
    take(reader);
    snapshot = without_tensors(reader);
    return {};
  } catch (const StorageError& error) {
    return {reason_of(error)};
  } catch (const std::exception& error) {
    return {error.what(), std::current_exception()};
  }
}

// "" if all ranks have read it; else the first reason. Throws if a rank met something else.
std::string verdict(const comm::Group& world, const Attempt& mine, const fs::path& dir) {
  const std::vector<std::string> all = comm::exchange_texts(world, mine.text());
  if (mine.other) std::rethrow_exception(mine.other);
  for (size_t rank = 0; rank < all.size(); ++rank)
    if (all[rank].starts_with("!"))
      throw StorageError(
          {.what = fmt::format("rank {} could not take checkpoint {}", rank, dir.string()),
           .why = all[rank].substr(1),
           .fix = "see the message of that rank"});
  for (const std::string& text : all)
    if (!text.empty()) return text.substr(1);
  return "";
}

}  // namespace

Snapshot without_tensors(const Reader& reader) {
  Snapshot snapshot{
      .step = reader.step(), .state = {}, .metrics = reader.metrics(), .config = reader.config()};
  snapshot.state.values = reader.values();
  return snapshot;
}

std::optional<Found> find_newest(const fs::path& dir, const comm::Group& world,
                                 const Store::Take& take) {
  const std::string listed = world.rank() == 0 ? candidates_in(dir).dump() : "";
  const json candidates = json::parse(comm::exchange_texts(world, listed).front());
  Found found;
  for (const json& candidate : candidates) {
    const auto name = candidate.at(0).get<std::string>();
    auto reason = candidate.at(1).get<std::string>();
    if (reason.empty())
      reason = verdict(world, attempt(dir / name, take, found.snapshot), dir / name);
    if (reason.empty()) {
      found.dir = dir / name;
      return found;
    }
    found.skipped.push_back(fmt::format("{}: {}", name, reason));
  }
  if (candidates.empty()) return std::nullopt;
  throw StorageError({.what = fmt::format("none of the {} checkpoints in {} can be used",
                                          candidates.size(), dir.string()),
                      .why = fmt::format("{}", fmt::join(found.skipped, "; ")),
                      .fix = "restore one from a copy, or start again without --resume"});
}

}  // namespace braid::checkpoint
