// SPDX-License-Identifier: BSD-3-Clause
#include "braid/core/regular_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "braid/core/error.h"
#include "braid/core/fs.h"

namespace braid {
namespace {

namespace fs = std::filesystem;

const char* kind_of(unsigned mode) {
  if (S_ISFIFO(mode)) return "a named pipe";
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

class RegularFile {
 public:
  explicit RegularFile(const fs::path& path)
      : path_(path), fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    if (fd_ < 0) throw_storage("read", path, errno);
  }
  ~RegularFile() { ::close(fd_); }
  RegularFile(const RegularFile&) = delete;
  RegularFile& operator=(const RegularFile&) = delete;

  std::string all() const {
    struct stat status;
    if (::fstat(fd_, &status) != 0) throw_storage("read", path_, errno);
    if (!S_ISREG(status.st_mode)) throw_irregular(path_, status.st_mode);
    std::string bytes;
    for (size_t got = 0;;) {  // to its end: it may grow, and some file systems give no size
      bytes.resize(std::max<size_t>(static_cast<size_t>(status.st_size) + 1, got + 4096));
      const ssize_t more = ::read(fd_, bytes.data() + got, bytes.size() - got);
      if (more < 0 && errno == EINTR) continue;
      if (more < 0) throw_storage("read", path_, errno);
      got += static_cast<size_t>(more);
      if (more > 0) continue;
      bytes.resize(got);
      return bytes;
    }
  }

 private:
  fs::path path_;
  int fd_;
};

}  // namespace

void throw_irregular(const fs::path& file, unsigned mode) {
  throw StorageError({.what = fmt::format("cannot read {}: it is {}", file.string(), kind_of(mode)),
                      .why = "a regular file is needed: reading anything else could wait forever",
                      .fix = fmt::format("put a regular file there: ls -l {}", file.string())});
}

std::string read_regular(const fs::path& file) { return RegularFile(file).all(); }

void refuse_irregular(const fs::path& file) {
  struct stat status;
  if (::stat(file.c_str(), &status) != 0) return;
  if (!S_ISREG(status.st_mode)) throw_irregular(file, status.st_mode);
}

}  // namespace braid
