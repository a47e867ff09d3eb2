// SPDX-License-Identifier: BSD-3-Clause
#include "braid/checkpoint/store.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <exception>
#include <thread>
#include <utility>

#include "braid/comm/texts.h"
#include "braid/core/error.h"
#include "braid/core/mix.h"
#include "braid/core/thread.h"
#include "checkpoint/folder.h"
#include "checkpoint/newest.h"
#include "checkpoint/staging.h"
#include "checkpoint/writing.h"

namespace braid::checkpoint {
namespace {

namespace fs = std::filesystem;

// Two saves never share a folder, not even those of two runs that were started by mistake.
std::string fresh_token() {
  const auto now = std::chrono::system_clock::now().time_since_epoch().count();
  return hex_of(mix(static_cast<uint64_t>(now) ^ (static_cast<uint64_t>(::getpid()) << 40)))
      .substr(0, 8);
}

void read_whole(const Reader& reader, Parts parts, State& state) {
  for (const auto& [name, stored] : reader.tensors())
    if (parts == Parts::all || name.starts_with(model_prefix))
      state.tensors[name] = at::empty(stored.shape, at::TensorOptions(stored.dtype));
  reader.fill(state);
}

}  // namespace

void describe(Fields& fields, CheckpointOptions& o) {
  fields.field("every", o.every, "steps between checkpoints; 0: at the end of each epoch",
               {.at_least = 0});
  fields.field("keep", o.keep, "newest checkpoints that are kept", {.at_least = 1});
  fields.field("best", o.best, "best checkpoints that are kept beside them", {.at_least = 0});
  fields.field("metric", o.metric, "validation metric that says which is best");
  fields.field("highest", o.highest, "a higher metric is better");
  fields.field("at_end", o.at_end, "save after the last step");
  fields.field("background", o.background,
               "write while training goes on; takes the share of a rank once more in host memory");
  fields.field("timeout", o.timeout, "time that the slowest rank may take to write its share",
               {.above = 0});
}

// The save under way and what is kept from one to the next.
struct Store::Writing {
  std::thread thread;
  std::exception_ptr error;  // of the thread; read after it has ended
  std::atomic<bool> busy = false, leaving = false;
  Staging staging;
  std::string layout;            // of this rank, when `runs` were dealt
  std::vector<WrittenRun> runs;  // that this rank writes

  ~Writing() {
    leaving = true;
    settle();
  }

  void settle() {
    if (thread.joinable()) thread.join();
  }

  void rethrow() {
    settle();
    if (error) std::rethrow_exception(std::exchange(error, nullptr));
  }

  std::string complaint() {
    settle();
    if (!error) return "";
    try {
      std::rethrow_exception(error);
    } catch (const Error& wrong) {
      return fmt::format("{}: {}", wrong.complaint().what, wrong.complaint().why);
    } catch (const std::exception& wrong) {
      return wrong.what();
    }
  }

  void start(Job job) {
    busy = true;
    const auto write = [this](Job& mine) {
      try {
        write_checkpoint(mine, leaving);
      } catch (...) {
        error = std::current_exception();
      }
      busy = false;
    };
    try {
      thread = start_thread("write a checkpoint (checkpoint.background)",
                            [write, mine = std::move(job)]() mutable { write(mine); });
    } catch (...) {
      busy = false;
      throw;
    }
  }

  std::string agree(const comm::Group& world, const std::vector<Holding>& mine);
  void deal(const comm::Group& world, const std::string& text);
};

// One message before each save: a rank that failed says "-" and why; the others "=" or, if their
// layout is not that of the last save, "*", and a token.
std::string Store::Writing::agree(const comm::Group& world, const std::vector<Holding>& mine) {
  const std::string failure = complaint(), text = to_text(mine);
  const std::string word = (text == layout ? "=" : "*") + fresh_token();
  const std::vector<std::string> all =
      comm::exchange_texts(world, failure.empty() ? word : "-" + failure);
  rethrow();
  bool same = true;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].starts_with("-"))
      throw StorageError({.what = fmt::format("rank {} could not write its share", rank),
                          .why = all[rank].substr(1),
                          .fix = "see the message of that rank; older checkpoints are whole"});
    same = same && all[rank].starts_with("=");
  }
  if (!same) deal(world, text);
  return all[0].substr(1);  // that of rank 0
}

void Store::Writing::deal(const comm::Group& world, const std::string& text) {
  std::vector<std::vector<Holding>> all;
  for (const std::string& other : comm::exchange_texts(world, text))
    all.push_back(holdings_from(other));
  runs = runs_of(all, world.rank());
  layout = text;
}

Store::Store(fs::path dir, CheckpointOptions options, comm::Group world)
    : dir_(std::move(dir)),
      options_(std::move(options)),
      world_(std::move(world)),
      writing_(std::make_unique<Writing>()) {}
Store::~Store() = default;
Store::Store(Store&&) noexcept = default;
Store& Store::operator=(Store&&) noexcept = default;

fs::path Store::save(const Snapshot& snapshot) {
  const std::vector<Holding> mine = holdings_of(snapshot.state);
  const std::string token = writing_->agree(world_, mine);
  const fs::path target = dir_ / folder_name(snapshot.step);
  Job job{.temporary = target.string() + ".tmp-" + token,
          .target = target,
          .plans = plan_shards(mine, writing_->runs, world_.rank(), world_.size()),
          .manifest = {.step = snapshot.step,
                       .world = world_.size(),
                       .token = token,
                       .shards = {},
                       .files = {},
                       .metrics = snapshot.metrics,
                       .values = snapshot.state.values},
          .files = snapshot.files,
          .rank = world_.rank(),
          .options = options_};
  job.files[config_name] = snapshot.config;
  if (!options_.background) {
    take_late(job.plans, snapshot.state);
    write_checkpoint(job, writing_->leaving);
    return target;
  }
  writing_->staging.take(job.plans, snapshot.state);
  writing_->start(std::move(job));
  return target;
}

void Store::wait() { writing_->rethrow(); }
bool Store::busy() const { return writing_->busy; }

void Store::check() {
  if (!writing_->busy) writing_->rethrow();
}

std::vector<fs::path> Store::list() const {
  writing_->settle();
  return checkpoint_folders(dir_);
}

fs::path Store::best() const {
  writing_->settle();
  const std::vector<fs::path> ranking = best_first(dir_, options_);
  return ranking.empty() ? fs::path() : ranking.front();
}

std::optional<Found> Store::newest(const Take& take) const {
  writing_->settle();
  return find_newest(dir_, world_, take);
}

std::optional<Found> Store::newest() const {
  State whole;
  std::optional<Found> found = newest([&](const Reader& reader) {
    whole = {};
    read_whole(reader, Parts::all, whole);
  });
  if (found) found->snapshot.state.tensors = std::move(whole.tensors);
  return found;
}

Snapshot load(const fs::path& checkpoint, Parts parts) {
  const Reader reader(checkpoint);
  check_sizes(read_manifest(checkpoint), checkpoint);
  Snapshot snapshot = without_tensors(reader);
  read_whole(reader, parts, snapshot.state);
  if (parts == Parts::weights) snapshot.state.values.clear();
  return snapshot;
}

}  // namespace braid::checkpoint
