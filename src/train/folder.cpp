// SPDX-License-Identifier: BSD-3-Clause
#include "braid/train/folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <optional>

#include "braid/core/error.h"
#include "braid/core/fs.h"
#include "braid/core/regular_file.h"
#include "train/folder_lock.h"

namespace braid::train {
namespace {

namespace fs = std::filesystem;

constexpr int64_t most_numbers = 10'000;

// Only a folder that is not there is called empty: with any other error a run that is there would
// be taken for none.
bool holds_checkpoints(const fs::path& dir) {
  const fs::path saved = dir / "checkpoints";
  std::error_code error;
  const fs::directory_iterator items(saved, error);
  if (!error) return items != fs::directory_iterator();
  if (error.value() == ENOENT) return false;
  throw_storage("list", saved, error.value());
}

// A profile ends its log by a record that says so; what it logged is no run.
bool holds_steps(const fs::path& dir) {
  const fs::path log = dir / "log.jsonl";
  refuse_irregular(log);
  std::ifstream in(log);
  std::string line;
  bool steps = false;
  while (!steps && std::getline(in, line)) steps = line.starts_with(R"({"type":"step")");
  if (!steps) return false;
  constexpr std::streamoff tail = 65536;
  in.clear();
  in.seekg(0, std::ios::end);
  in.seekg(std::max<std::streamoff>(0, in.tellg() - tail));
  std::string last;
  while (std::getline(in, line)) last = line;
  return !last.starts_with(R"({"type":"end")") ||
         last.find(R"("reason":"profile")") == std::string::npos;
}

std::string key_of_place(const RunOptions& options) {
  return options.run.dir.empty() ? "run.name" : "run.dir";
}

std::string set_place(const RunOptions& options) {
  return fmt::format("--set {}={}", key_of_place(options),
                     options.run.dir.empty() ? options.run.name : options.run.dir);
}

std::string other_place(const RunOptions& options) {
  return fmt::format("--set {}=<other>", key_of_place(options));
}

ConfigError folder_is_used(const RunOptions& options) {
  const std::string dir = run_dir(options);
  return ConfigError(
      {.what = fmt::format("{} already holds a run", dir),
       .why = "a new run would mix with it, and run.exists = refuse",
       .fix = fmt::format("continue it with --resume, take the next free folder with --set "
                          "run.exists=next, or choose {}",
                          other_place(options))});
}

}  // namespace

RunOptions numbered(RunOptions options, int64_t number) {
  if (number <= 1) return options;
  const std::string end = fmt::format("-{}", number);
  options.run.name += end;
  if (options.run.dir.empty()) return options;
  while (options.run.dir.size() > 1 && options.run.dir.ends_with('/')) options.run.dir.pop_back();
  options.run.dir += end;
  return options;
}

bool holds_run(const std::string& dir) { return holds_checkpoints(dir) || holds_steps(dir); }

struct RunFolder::State {
  int64_t number = 1;
  std::string note;
  fs::path dir;
  bool made = false;  // by this object
  std::optional<FolderLock> lock;

  ~State() {
    lock.reset();
    std::error_code ignored;
    if (made) fs::remove(dir, ignored);  // if nothing came into it
  }

  void take(const RunOptions& options, double wait) {
    dir = run_dir(options);
    std::error_code unknown;
    made = !fs::exists(dir, unknown) && !unknown;
    make_dirs(dir);
    lock.emplace(dir, LockOptions{.wait = wait, .elsewhere = other_place(options)});
  }

  // Why the folder cannot be taken for a new run; empty: it was taken.
  std::string refusal(const RunOptions& options) {
    const std::string name = run_dir(options);
    const auto used = [&] {
      return holds_run(name) ? fmt::format("{} already holds a run", name) : std::string();
    };
    if (std::string reason = used(); !reason.empty()) return reason;
    try {
      take(options, /*wait=*/0);
    } catch (const FolderInUse& error) {
      if (options.run.exists == IfExists::refuse) throw;
      return error.complaint().what;
    }
    std::string reason = used();  // a run may have come and gone before the lock was there
    if (!reason.empty()) lock.reset();
    return reason;
  }

  void take_next(const RunOptions& asked) {
    std::string first;
    for (number = 1; number <= most_numbers; ++number) {
      const RunOptions options = numbered(asked, number);
      const std::string reason = refusal(options);
      if (reason.empty()) {
        if (number > 1)
          note = fmt::format("{}: this run goes into {} (to continue it later: {} --resume)", first,
                             run_dir(options), set_place(options));
        return;
      }
      if (asked.run.exists == IfExists::refuse) throw folder_is_used(asked);
      if (number == 1) first = reason;
    }
    throw ConfigError(
        {.what = fmt::format("{} and {} more are all used", run_dir(asked), most_numbers - 1),
         .why = "a new run takes the first free folder",
         .fix = "choose " + other_place(asked)});
  }
};

RunFolder::RunFolder() = default;
RunFolder::~RunFolder() = default;
RunFolder::RunFolder(RunFolder&&) noexcept = default;
RunFolder& RunFolder::operator=(RunFolder&&) noexcept = default;

RunFolder::RunFolder(const RunOptions& options, Use use) : state_(std::make_unique<State>()) {
  check_place(options.run);
  if (use == Use::fresh) {
    state_->take_next(options);
    return;
  }
  holds_run(run_dir(options));  // may refuse what it cannot see, before anything is written
  state_->take(options, use == Use::resume ? options.run.wait.count : 0);
}

int64_t RunFolder::number() const { return state_ ? state_->number : 1; }

const std::string& RunFolder::note() const {
  static const std::string none;
  return state_ ? state_->note : none;
}

void RunFolder::check() const {
  if (state_ && state_->lock) state_->lock->check();
}

void RunFolder::hold_in_children() {
  if (state_ && state_->lock) state_->lock->hold_in_children();
}

}  // namespace braid::train
