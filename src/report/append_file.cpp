// SPDX-License-Identifier: BSD-3-Clause
#include "report/append_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "braid/core/fs.h"
#include "braid/core/regular_file.h"

namespace braid::report {

AppendFile::AppendFile(std::filesystem::path path) : path_(std::move(path)) {
  refuse_irregular(path_);  // a pipe that nobody reads would block forever
  fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0666);
  if (fd_ < 0) throw_storage("open", path_, errno);
}

AppendFile::~AppendFile() {
  if (fd_ >= 0) ::close(fd_);
}

AppendFile::AppendFile(AppendFile&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)) {}

AppendFile& AppendFile::operator=(AppendFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  return *this;
}

void AppendFile::write(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) throw_storage("write", path_, errno);
    bytes.remove_prefix(static_cast<size_t>(written));
  }
}

}  // namespace braid::report
