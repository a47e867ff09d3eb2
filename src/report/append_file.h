// SPDX-License-Identifier: BSD-3-Clause
// A file that only grows. Each write reaches the system before it returns, so that a crash loses no
// record, and a full disk is noticed at the record that did not fit.
#pragma once
#include <filesystem>
#include <string_view>

namespace braid::report {

class AppendFile {
 public:
  explicit AppendFile(std::filesystem::path path);  // created if missing; throws StorageError
  ~AppendFile();
  AppendFile(AppendFile&& other) noexcept;
  AppendFile& operator=(AppendFile&& other) noexcept;

  void write(std::string_view bytes);  // throws StorageError
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  int fd_ = -1;
};

}  // namespace braid::report
