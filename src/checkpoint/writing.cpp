// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoint/writing.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <new>
#include <set>
#include <thread>
#include <utility>

#include "braid/core/error.h"
#include "braid/core/fs.h"
#include "checkpoint/folder.h"

namespace braid::checkpoint {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr double leaving_seconds = 20;  // a rank that ends by an error waits no longer for others

// Looks at the folder more and more seldom until `done` says so; false after the time is up.
template <class Done>
bool poll(const Job& job, const std::atomic<bool>& leaving, Done done) {
  auto pause = std::chrono::milliseconds(1);
  const auto start = Clock::now();
  auto left = Clock::time_point::max();
  while (!done()) {
    const auto now = Clock::now();
    if (leaving && left == Clock::time_point::max())
      left = now + std::chrono::duration_cast<Clock::duration>(
                       std::chrono::duration<double>(leaving_seconds));
    const double waited = std::chrono::duration<double>(now - start).count();
    if (waited > job.options.timeout.count || now > left) return false;
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::milliseconds(200));
  }
  return true;
}

StorageError other_rank_failed(const Job& job, int64_t rank, const std::string& text) {
  return StorageError(
      {.what = fmt::format("checkpoint {} was given up: rank {} could not write its "
                           "share",
                           job.target.string(), rank),
       .why = text,
       .fix = "see the message of that rank; older checkpoints are whole"});
}

std::string text_or_empty(const fs::path& file) {
  try {
    return read_text(file);
  } catch (const StorageError&) {
    return "it gave no reason";
  }
}

// Rank 0: the shards of the other ranks, in their order, as soon as each is complete.
class Records {
 public:
  explicit Records(const Job& job) : job_(job) {
    for (int64_t rank = 1; rank < job.manifest.world; ++rank) missing_.insert(rank);
  }

  bool complete() {
    const int64_t world = job_.manifest.world;
    for (auto rank = missing_.begin(); rank != missing_.end();) {
      if (fs::exists(job_.temporary / failure_name(*rank, world)))
        throw other_rank_failed(job_, *rank,
                                text_or_empty(job_.temporary / failure_name(*rank, world)));
      const fs::path record = job_.temporary / record_name(*rank, world);
      if (!fs::exists(record)) {
        ++rank;
        continue;
      }
      shards_[*rank] = read_shard_record(record);
      fs::remove(record);
      rank = missing_.erase(rank);
    }
    return missing_.empty();
  }

  StorageError too_late() const {
    return StorageError(
        {.what = fmt::format("checkpoint {} was given up: no shard of rank {} after {}",
                             job_.target.string(), fmt::join(missing_, ", "),
                             to_text(job_.options.timeout)),
         .why = "every rank writes its own shard into this folder, which all hosts must see",
         .fix = "put run.dir on a disk that all hosts share, or give slow ranks more time: --set "
                "checkpoint.timeout=1h"});
  }

  void move_to(std::vector<Shard>& shards) {
    for (auto& [rank, shard] : shards_) shards.push_back(std::move(shard));
  }

 private:
  const Job& job_;
  std::set<int64_t> missing_;
  std::map<int64_t, Shard> shards_;
};

void prune_folders(const Job& job) {
  const fs::path dir = job.target.parent_path();
  const std::vector<fs::path> whole = whole_by_size(checkpoint_folders(dir));
  std::set<fs::path> held = {job.target};
  const auto newest = std::min<size_t>(whole.size(), static_cast<size_t>(job.options.keep));
  held.insert(whole.end() - static_cast<std::ptrdiff_t>(newest), whole.end());
  const std::vector<fs::path> ranking = best_first(dir, job.options);
  for (size_t i = 0; i < ranking.size() && i < static_cast<size_t>(job.options.best); ++i)
    held.insert(ranking[i]);
  for (const fs::path& old : whole)
    if (!held.contains(old)) remove_quietly(old);
}

void commit(Job& job, const std::atomic<bool>& leaving) {
  Records others(job);
  if (!poll(job, leaving, [&] { return others.complete(); })) throw others.too_late();
  others.move_to(job.manifest.shards);
  for (const auto& [name, bytes] : job.files)
    job.manifest.files[name] = write_bytes(job.temporary / name, bytes);
  write_bytes(job.temporary / manifest_name, to_json(job.manifest));
  sync_dir(job.temporary);
  put_in_place(job.temporary, job.target);
  prune_folders(job);
}

bool is_committed(const Job& job) {
  try {
    return read_manifest(job.target).token == job.manifest.token;
  } catch (const StorageError&) {
    return false;
  }
}

// The other ranks: the folder goes when rank 0 has renamed it, or given up.
void await_commit(const Job& job, const std::atomic<bool>& leaving) {
  const bool gone = poll(job, leaving, [&] { return leaving || !fs::exists(job.temporary); });
  if (leaving || (gone && is_committed(job))) return;
  throw StorageError({.what = fmt::format("checkpoint {} was not finished", job.target.string()),
                      .why = gone ? "rank 0 has given it up"
                                  : fmt::format("rank 0 wrote no manifest within {}",
                                                to_text(job.options.timeout)),
                      .fix = "see the message of rank 0; older checkpoints are whole"});
}

void leave_record(const Job& job) {
  const fs::path file = job.temporary / record_name(job.rank, job.manifest.world);
  const fs::path half = file.string() + ".half";
  write_bytes(half, to_json(job.manifest.shards.front()));
  sync_dir(job.temporary);  // before the rename: rank 0 may take the folder away right after it
  fs::rename(half, file);
}

// Rank 0 removes everything; another rank says why to rank 0, which waits for it.
void give_up(const Job& job, const std::string& reason) {
  if (job.rank == 0) return remove_quietly(job.temporary);
  try {
    const std::string name = failure_name(job.rank, job.manifest.world);
    remove_quietly(job.temporary / shard_name(job.rank, job.manifest.world));  // room for the text
    write_bytes(job.temporary / (name + ".half"), reason);
    fs::rename(job.temporary / (name + ".half"), job.temporary / name);
  } catch (const std::exception&) {
    // Rank 0 will miss the shard then, and name this rank.
  }
}

}  // namespace

std::vector<fs::path> best_first(const fs::path& dir, const CheckpointOptions& options) {
  std::vector<std::pair<double, fs::path>> rated;
  for (const fs::path& folder : whole_by_size(checkpoint_folders(dir))) {
    const auto metrics = read_manifest(folder).metrics;
    const auto metric = metrics.find(options.metric);
    if (metric != metrics.end() && std::isfinite(metric->second))
      rated.emplace_back(metric->second, folder);
  }
  // Equal ones stay in the order of their steps.
  std::stable_sort(rated.begin(), rated.end(), [&](const auto& a, const auto& b) {
    return options.highest ? a.first > b.first : a.first < b.first;
  });
  std::vector<fs::path> folders;
  for (auto& [metric, folder] : rated) folders.push_back(std::move(folder));
  return folders;
}

void write_checkpoint(Job& job, const std::atomic<bool>& leaving) {
  try {
    make_dirs(job.temporary);
    if (job.rank == 0) remove_stale(job.target.parent_path(), job.temporary);
    for (const ShardPlan& plan : job.plans)
      job.manifest.shards.push_back(write_shard(job.temporary, plan));
    if (job.rank == 0) return commit(job, leaving);
    leave_record(job);
  } catch (const Error& error) {
    give_up(job, fmt::format("{}: {}", error.complaint().what, error.complaint().why));
    throw;
  } catch (const std::bad_alloc&) {
    give_up(job, "out of memory");
    throw MemoryError(
        {.what = fmt::format("checkpoint {} was given up: out of memory", job.target.string()),
         .why = "a rank writes its share from a copy in host memory",
         .fix = "set checkpoint.background=false, which needs no copy, or allow more memory "
                "(ulimit -v); older checkpoints are whole"});
  } catch (const std::exception& error) {
    give_up(job, error.what());
    throw StorageError({.what = fmt::format("checkpoint {} was given up", job.target.string()),
                        .why = error.what(),
                        .fix = "check the disk and the memory; older checkpoints are whole"});
  }
  await_commit(job, leaving);
}

}  // namespace braid::checkpoint
