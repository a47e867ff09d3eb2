// SPDX-License-Identifier: BSD-3-Clause
#include "train/folder_lock.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <mutex>
#include <random>
#include <sstream>
#include <thread>
#include <utility>

#include "braid/core/fs.h"
#include "braid/core/regular_file.h"
#include "braid/core/units.h"
#include "comm/descriptor.h"

namespace braid::train {

namespace fs = std::filesystem;

// FolderLock::State holds one.
namespace run_lock {

struct Owner {
  std::string host = {}, machine = {}, since = {}, token = {};
  int64_t pid = 0, beat = 0;
  bool operator==(const Owner&) const = default;
};

}  // namespace run_lock

namespace {

using comm::Descriptor;
using run_lock::Owner;

Descriptor open_lock(const fs::path& path, int flags) {
  return Descriptor(::open(path.c_str(), flags | O_CLOEXEC, 0644));
}

// Always as long: a heartbeat is written over the one before.
std::string record_of(const Owner& owner) {
  return fmt::format("host {}\npid {}\nsince {}\nmachine {}\ntoken {}\nbeat {:012}\n", owner.host,
                     owner.pid, owner.since, owner.machine, owner.token, owner.beat);
}

Owner read_owner(int fd) {
  std::array<char, 2048> bytes = {};
  const ssize_t got = ::pread(fd, bytes.data(), bytes.size(), 0);
  std::istringstream lines(
      std::string(bytes.data(), static_cast<size_t>(std::max<ssize_t>(got, 0))));
  Owner owner;
  for (std::string key, value; lines >> key && std::getline(lines >> std::ws, value);) {
    if (key == "host") owner.host = value;
    if (key == "since") owner.since = value;
    if (key == "machine") owner.machine = value;
    if (key == "token") owner.token = value;
    if (key == "pid") owner.pid = std::strtoll(value.c_str(), nullptr, 10);
    if (key == "beat") owner.beat = std::strtoll(value.c_str(), nullptr, 10);
  }
  return owner;
}

std::string boot_id() {
  std::ifstream in("/proc/sys/kernel/random/boot_id");
  std::string line;
  std::getline(in, line);
  return line.empty() ? "unknown" : line;
}

Owner this_process() {
  std::array<char, 256> host = {};
  const bool named = ::gethostname(host.data(), host.size() - 1) == 0;
  const std::time_t now = std::time(nullptr);
  std::tm local = {};
  localtime_r(&now, &local);
  std::random_device chance;
  return {.host = named ? host.data() : "localhost",
          .machine = boot_id(),
          .since = fmt::format("{:%Y-%m-%d %H:%M:%S}", local),
          .token = fmt::format("{:08x}{:08x}", chance(), chance()),
          .pid = ::getpid(),
          .beat = 1};
}

std::string name_of(const Owner& owner) {
  if (owner.token.empty()) return "a process that has not said who it is";
  return fmt::format("process {} on {} since {}", owner.pid, owner.host, owner.since);
}

// Another file may have come to this name since it was opened.
bool still_there(const fs::path& path, int fd) {
  struct stat named, opened;
  return ::stat(path.c_str(), &named) == 0 && ::fstat(fd, &opened) == 0 &&
         named.st_ino == opened.st_ino && named.st_dev == opened.st_dev;
}

enum class Found {
  ours,    // nobody has it, or its owner on this machine is gone
  held,    // its owner lives
  unsure,  // flock says nothing of owners on other machines: watch the heartbeat
  again,   // it was removed meanwhile
};

struct Attempt {
  Found found = Found::again;
  Descriptor file;
  Owner owner = {};
};

Attempt attempt_at(const fs::path& path, const Owner& mine) {
  refuse_irregular(path);
  Attempt attempt{.file = open_lock(path, O_RDWR | O_CREAT | O_EXCL)};
  const bool created = attempt.file.get() >= 0;
  if (!created && errno != EEXIST) throw_storage("create", path, errno);
  if (!created) attempt.file = open_lock(path, O_RDWR | O_NONBLOCK);
  if (attempt.file.get() < 0 && errno == ENOENT) return attempt;
  if (attempt.file.get() < 0) throw_storage("open", path, errno);
  const int fd = attempt.file.get();
  const bool locked = ::flock(fd, LOCK_EX | LOCK_NB) == 0;
  const bool held = !locked && errno == EWOULDBLOCK;
  if (!still_there(path, fd)) return attempt;
  attempt.owner = read_owner(fd);
  const bool stale = locked && attempt.owner.machine == mine.machine;
  attempt.found = held ? Found::held : created || stale ? Found::ours : Found::unsure;
  return attempt;
}

FolderInUse in_use(const fs::path& dir, const Attempt& attempt, const LockOptions& options) {
  const std::string waited =
      options.wait > 0 ? fmt::format(", and did not end within {}", to_text(Seconds{options.wait}))
                       : "";
  const std::string gone =
      attempt.found == Found::unsure
          ? fmt::format(", or, if that process is gone: rm {}", (dir / "run.lock").string())
          : "";
  return FolderInUse(
      {.what = fmt::format("{} is in use by {}{}", dir.string(), name_of(attempt.owner), waited),
       .why = "one process at a time writes into a run folder: two would overwrite each other's "
              "log and checkpoints",
       .fix = fmt::format("wait until that run ends, or stop it; {} uses another folder{}",
                          options.elsewhere, gone)});
}

}  // namespace

struct FolderLock::State {
  fs::path dir, path;
  LockOptions options;
  Owner mine;
  comm::Descriptor file;
  std::atomic<bool> lost = false;
  bool ended = false;
  std::mutex mutex;
  std::condition_variable wake;
  std::thread thread;

  void acquire();
  Attempt wait_for_it();
  bool settle(Attempt attempt);
  void write_record() const;
  bool taken_over() const;
  void beat();
  void start_beating();
};

void FolderLock::State::write_record() const {
  const std::string text = record_of(mine);
  const auto size = static_cast<ssize_t>(text.size());
  if (::pwrite(file.get(), text.data(), text.size(), 0) != size ||
      ::ftruncate(file.get(), size) != 0 || ::fsync(file.get()) != 0)
    throw_storage("write", path, errno);
}

// Polls, not clocks, measure silence: where the disk itself stands still, nobody is called gone.
Attempt FolderLock::State::wait_for_it() {
  const double pause = std::clamp(options.wait / 10, 0.01, 0.25);
  double waited = 0, silent = 0;
  int vanished = 0;
  Owner seen;
  for (bool said = false;;) {
    Attempt attempt = attempt_at(path, mine);
    if (attempt.found == Found::ours) return attempt;
    if (attempt.found == Found::again) {
      if (++vanished > 1000) throw_storage("open", path, ENOENT);  // a link to nowhere
      continue;
    }
    if (attempt.owner != seen) silent = 0;
    seen = attempt.owner;
    if (attempt.found == Found::unsure && silent >= options.silence) return attempt;
    if (waited >= options.wait) throw in_use(dir, attempt, options);
    if (!std::exchange(said, true)) {
      const std::string line =
          fmt::format("braid: {} is in use by {}: waiting up to {} for it to end", dir.string(),
                      name_of(attempt.owner), to_text(Seconds{options.wait}));
      options.say ? options.say(line) : void(std::fputs((line + "\n").c_str(), stderr));
    }
    attempt.file = Descriptor();  // others may look meanwhile
    std::this_thread::sleep_for(std::chrono::duration<double>(pause));
    waited += pause;
    silent += pause;
  }
}

// Two hosts may have waited for the same silent owner: the one whose record stays has the lock.
bool FolderLock::State::settle(Attempt attempt) {
  const bool unsure = attempt.found == Found::unsure;
  file = std::move(attempt.file);
  try {
    write_record();
  } catch (...) {
    ::unlink(path.c_str());  // an empty file would name no owner
    throw;
  }
  if (!unsure) return true;
  std::this_thread::sleep_for(std::chrono::duration<double>(options.beat / 10));
  return still_there(path, file.get()) && !taken_over();
}

void FolderLock::State::acquire() {
  while (!settle(wait_for_it())) {
  }
  start_beating();
}

bool FolderLock::State::taken_over() const {
  const Descriptor named = open_lock(path, O_RDONLY | O_NONBLOCK);
  if (named.get() < 0)
    return false;  // removed by hand, or the disk does not answer: nobody else is there
  const Owner owner = read_owner(named.get());
  return !owner.token.empty() && owner.token != mine.token;
}

void FolderLock::State::beat() {
  std::unique_lock guard(mutex);
  while (
      !wake.wait_for(guard, std::chrono::duration<double>(options.beat), [&] { return ended; })) {
    if (taken_over()) {
      lost = true;
      return;
    }
    ++mine.beat;
    const std::string text = record_of(mine);
    if (::pwrite(file.get(), text.data(), text.size(), 0) > 0) ::fdatasync(file.get());
  }
}

// Signals are for the other threads, which know what to do with them.
void FolderLock::State::start_beating() {
  sigset_t all, before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  thread = std::thread([this] { beat(); });
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

FolderLock::FolderLock(const fs::path& dir, LockOptions options)
    : state_(std::make_unique<State>()) {
  state_->dir = dir;
  state_->path = dir / "run.lock";
  state_->mine = this_process();
  state_->options = std::move(options);
  state_->acquire();
}

FolderLock::~FolderLock() {
  {
    const std::lock_guard guard(state_->mutex);
    state_->ended = true;
  }
  state_->wake.notify_all();
  if (state_->thread.joinable()) state_->thread.join();
  const bool ours = still_there(state_->path, state_->file.get()) && !state_->taken_over();
  if (ours) ::unlink(state_->path.c_str());  // before it is closed: whoever waits opens a new one
}

void FolderLock::check() const {
  if (!state_->lost) return;
  const Descriptor named = open_lock(state_->path, O_RDONLY | O_NONBLOCK);
  const Owner owner = named.get() >= 0 ? read_owner(named.get()) : Owner{};
  throw FolderInUse(
      {.what = fmt::format("{} was taken over by {}", state_->dir.string(), name_of(owner)),
       .why = fmt::format("this process gave no sign of life for {}, and one process "
                          "at a time writes into a run folder",
                          to_text(Seconds{state_->options.silence})),
       .fix = "let the other process go on"});
}

void FolderLock::hold_in_children() { ::fcntl(state_->file.get(), F_SETFD, 0); }

}  // namespace braid::train
