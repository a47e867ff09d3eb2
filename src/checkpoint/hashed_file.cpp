// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoint/hashed_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "braid/core/error.h"
#include "braid/core/fs.h"
#include "braid/core/regular_file.h"
#include "braid/core/units.h"

namespace braid::checkpoint {

struct HashState {
  XXH3_state_t xxh;
  int64_t bytes = 0;
  HashState() { XXH3_64bits_reset(&xxh); }
  void add(const void* data, size_t count) {
    XXH3_64bits_update(&xxh, data, count);
    bytes += static_cast<int64_t>(count);
  }
  FileRecord record() const { return {bytes, hex_of(XXH3_64bits_digest(&xxh))}; }
  uint64_t take() {
    const uint64_t hash = XXH3_64bits_digest(&xxh);
    XXH3_64bits_reset(&xxh);
    return hash;
  }
};

namespace {

namespace fs = std::filesystem;

// Small enough that the hash finds the bytes in cache, big enough that system calls do not count.
constexpr size_t piece_bytes = size_t{1} << 20;

std::string space_note(const fs::path& path, int64_t need) {
  struct statvfs disk;
  if (::statvfs(path.parent_path().empty() ? "." : path.parent_path().c_str(), &disk) != 0)
    return fmt::format("it needs {}", to_text(Bytes{need}));
  const auto free = static_cast<int64_t>(disk.f_bavail) * static_cast<int64_t>(disk.f_frsize);
  return fmt::format("it needs {}, and {} are left on that disk", to_text(Bytes{need}),
                     to_text(Bytes{free}));
}

}  // namespace

std::string hex_of(uint64_t hash) { return fmt::format("{:016x}", hash); }

std::string xxh3_of(std::string_view bytes) {
  return hex_of(XXH3_64bits(bytes.data(), bytes.size()));
}

struct RunningHash::State : HashState {};
RunningHash::RunningHash() : state_(std::make_unique<State>()) {}
RunningHash::~RunningHash() = default;
void RunningHash::add(const void* data, size_t bytes) { state_->add(data, bytes); }
uint64_t RunningHash::take() { return state_->take(); }

struct FileWriter::State {
  fs::path path;
  int64_t need = 0;
  int fd = -1;
  HashState hash;
};

FileWriter::FileWriter(fs::path path, int64_t need) : state_(std::make_unique<State>()) {
  state_->path = std::move(path);
  state_->need = need;
  state_->fd = ::open(state_->path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (state_->fd < 0) fail(errno);
}

FileWriter::~FileWriter() {
  if (state_->fd >= 0) ::close(state_->fd);
}

void FileWriter::fail(int error) const {
  const bool full = error == ENOSPC || error == EDQUOT;
  if (!full && error != EFBIG) throw_storage("write", state_->path, error);
  throw StorageError(
      {.what = fmt::format("cannot write {}: {}", state_->path.string(), std::strerror(error)),
       .why = full ? space_note(state_->path, state_->need)
                   : fmt::format("it needs {}, more than one file may have here (ulimit -f)",
                                 to_text(Bytes{state_->need})),
       .fix = fmt::format(
           "{}, or write elsewhere: --set run.dir=<folder on another disk>",
           full ? "free some space or keep fewer checkpoints (checkpoint.keep, checkpoint.best)"
                : "allow larger files (ulimit -f unlimited)")});
}

void FileWriter::write(const void* data, size_t bytes) {
  const char* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const size_t piece = std::min(bytes, piece_bytes);
    state_->hash.add(at, piece);
    for (size_t done = 0; done < piece;) {
      const ssize_t written = ::write(state_->fd, at + done, piece - done);
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) fail(errno);
      done += static_cast<size_t>(written);
    }
    at += piece;
    bytes -= piece;
  }
}

uint64_t FileWriter::take_hash() { return state_->hash.take(); }

FileRecord FileWriter::finish() {
  if (::fsync(state_->fd) != 0) fail(errno);
  const int fd = std::exchange(state_->fd, -1);
  if (::close(fd) != 0) fail(errno);  // some network disks report a full disk only here
  return state_->hash.record();
}

struct FileReader::State {
  fs::path path;
  int64_t size = 0;
  int fd = -1;
  HashState hash;
};

FileReader::FileReader(fs::path path) : state_(std::make_unique<State>()) {
  state_->path = std::move(path);
  state_->fd = ::open(state_->path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (state_->fd < 0) throw_storage("read", state_->path, errno);
  struct stat status;
  int error = ::fstat(state_->fd, &status) != 0 ? errno : 0;
  if (error == 0 && S_ISDIR(status.st_mode)) error = EISDIR;
  const bool regular = error == 0 && S_ISREG(status.st_mode);
  if (!regular) {
    ::close(state_->fd);
    if (error == 0) throw_irregular(state_->path, status.st_mode);
    throw_storage("read", state_->path, error);
  }
  state_->size = status.st_size;
}

FileReader::~FileReader() { ::close(state_->fd); }

const fs::path& FileReader::path() const { return state_->path; }
int64_t FileReader::size() const { return state_->size; }
FileRecord FileReader::record() const { return state_->hash.record(); }

void FileReader::too_short(int64_t at) const {
  throw StorageError({.what = fmt::format("{} ends after {} bytes", state_->path.string(), at),
                      .why = "it became shorter while it was read",
                      .fix = "copy it again, or use another checkpoint"});
}

void FileReader::read(void* data, size_t bytes) {
  char* at = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t got = ::read(state_->fd, at, std::min(bytes, piece_bytes));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw_storage("read", state_->path, errno);
    if (got == 0) too_short(state_->hash.bytes);
    state_->hash.add(at, static_cast<size_t>(got));
    at += got;
    bytes -= static_cast<size_t>(got);
  }
}

void FileReader::read_at(void* data, size_t bytes, int64_t offset) {
  char* at = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t got = ::pread(state_->fd, at, bytes, offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw_storage("read", state_->path, errno);
    if (got == 0) too_short(offset);
    at += got;
    offset += got;
    bytes -= static_cast<size_t>(got);
  }
}

}  // namespace braid::checkpoint
