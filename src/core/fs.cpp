// SPDX-License-Identifier: BSD-3-Clause
#include "braid/core/fs.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "braid/core/error.h"

namespace braid {
namespace {

namespace fs = std::filesystem;

std::string advice(int error, const fs::path& path) {
  switch (error) {
    case ENOSPC:
    case EDQUOT:
      return "free some space, or write elsewhere: --set run.dir=<folder on another disk>";
    case EACCES:
    case EPERM:
    case EROFS:
      return fmt::format("get write permission for {}, or write elsewhere: --set run.dir=<folder>",
                         path.parent_path().string());
    case ENOENT:
      return fmt::format("check the path: ls {}", path.parent_path().string());
    case EMFILE:
    case ENFILE:
      return "allow more open files: ulimit -n 1024";
    case EFBIG:
      return "allow larger files (ulimit -f unlimited), or write elsewhere: --set run.dir=<folder>";
    case ENOTDIR:
    case EEXIST:
      return fmt::format("a file stands where a folder is needed: ls -l {}", path.string());
    default:
      return "check the disk and the path";
  }
}

// A file descriptor that closes itself.
class OpenFile {
 public:
  OpenFile(const fs::path& path, int flags) : fd_(::open(path.c_str(), flags | O_CLOEXEC, 0644)) {}
  ~OpenFile() {
    if (fd_ >= 0) ::close(fd_);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

void write_fully(int fd, std::string_view bytes, const fs::path& path) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) throw_storage("write", path, errno);
    bytes.remove_prefix(static_cast<size_t>(written));
  }
}

}  // namespace

void throw_storage(std::string_view doing, const fs::path& path, int error) {
  throw StorageError(
      {.what = fmt::format("cannot {} {}: {}", doing, path.string(), std::strerror(error)),
       .why = "the file system refused it",
       .fix = advice(error, path)});
}

void make_dirs(const fs::path& dir) {
  std::error_code error;
  fs::create_directories(dir, error);
  if (error) throw_storage("create the folder", dir, error.value());
}

std::string read_text(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) throw_storage("read", file, errno);
  std::ostringstream text;
  text << in.rdbuf();
  if (in.bad() || text.bad()) throw_storage("read", file, EIO);
  return std::move(text).str();
}

void sync_dir(const fs::path& dir) {
  const OpenFile folder(dir.empty() ? fs::path(".") : dir, O_RDONLY | O_DIRECTORY);
  if (folder.get() < 0 || ::fsync(folder.get()) != 0) throw_storage("sync the folder", dir, errno);
}

void rename_durably(const fs::path& from, const fs::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) throw_storage("rename to", to, errno);
  sync_dir(to.parent_path());
}

void write_atomic(const fs::path& file, std::string_view bytes) {
  const fs::path temporary = file.string() + fmt::format(".tmp-{}", ::getpid());
  try {
    const OpenFile out(temporary, O_WRONLY | O_CREAT | O_TRUNC);
    if (out.get() < 0) throw_storage("create", temporary, errno);
    write_fully(out.get(), bytes, file);
    if (::fsync(out.get()) != 0) throw_storage("sync", file, errno);
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
  rename_durably(temporary, file);
}

}  // namespace braid
