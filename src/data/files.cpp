// SPDX-License-Identifier: BSD-3-Clause
#include "data/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <glob.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "braid/core/error.h"
#include "data/foreign.h"

namespace braid::data {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> files_of_pattern(const std::string& pattern) {
  glob_t found = {};
  std::vector<fs::path> files;
  if (::glob(pattern.c_str(), 0, nullptr, &found) == 0)
    files.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  ::globfree(&found);
  return files;
}

std::vector<fs::path> files_of_folder(const FileSearch& search) {
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::directory_iterator it(search.where, error), end; !error && it != end;
       it.increment(error)) {
    const std::string ending = it->path().extension().string();
    const bool wanted = search.endings.empty() || std::ranges::count(search.endings, ending) > 0;
    if (wanted && it->is_regular_file(error)) files.push_back(it->path());
  }
  if (error)
    throw DataError({.what = fmt::format("cannot list {}: {}", search.where, error.message()),
                     .why = fmt::format("{} is a folder of data files", search.key),
                     .fix = "give the folder the right to be read (chmod a+rx)"});
  return files;
}

// A relative path means another file in another folder.
std::string where_from(const fs::path& path) {
  std::error_code ignored;
  if (path.is_absolute()) return "";
  return fmt::format("; a relative path starts at {}", fs::current_path(ignored).string());
}

[[noreturn]] void complain_of_no_files(const FileSearch& search, bool is_folder) {
  if (search.where.empty())
    throw ConfigError({.what = fmt::format("{} is not set", search.key),
                       .why = "this kind of data is read from files",
                       .fix = search.fix});
  throw DataError(
      {.what = is_folder ? fmt::format("no data files in {}", search.where)
                         : fmt::format("{} = {}: no such file or folder", search.key, search.where),
       .why = (search.endings.empty()
                   ? "a file or a pattern of files is needed"
                   : fmt::format("files end in {}", fmt::join(search.endings, ", "))) +
              where_from(search.where),
       .fix = search.fix});
}

}  // namespace

std::vector<fs::path> find_files(const FileSearch& search) {
  std::error_code error;
  const auto status = fs::status(search.where, error);
  if (error.value() == EACCES)
    throw DataError({.what = fmt::format("cannot reach {}: {}", search.where, error.message()),
                     .why = "a folder on the way may not be entered",
                     .fix = "give the folders the right to be entered (chmod a+rx)"});
  const bool is_folder = fs::is_directory(status);
  std::vector<fs::path> files;
  if (is_folder)
    files = files_of_folder(search);
  else if (fs::exists(status))
    files = {search.where};
  else if (!search.where.empty())
    files = files_of_pattern(search.where);
  if (files.empty() && is_folder) refuse_foreign(search.where);
  if (files.empty()) complain_of_no_files(search, is_folder);
  std::ranges::sort(files);
  return files;
}

const std::vector<std::string>& field_endings() {
  static const std::vector<std::string> endings = {".h5", ".hdf5", ".nc", ".nc4"};
  return endings;
}

MappedFile::MappedFile(const fs::path& file) {
  const int descriptor = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat status = {};
  int error = descriptor < 0 || ::fstat(descriptor, &status) != 0 ? errno : 0;
  size_ = status.st_size;
  if (error == 0 && size_ > 0) {
    void* at = ::mmap(nullptr, static_cast<size_t>(size_), PROT_READ, MAP_SHARED, descriptor, 0);
    if (at == MAP_FAILED)
      error = errno;
    else
      data_ = static_cast<const uint8_t*>(at);
  }
  if (descriptor >= 0) ::close(descriptor);
  if (error != 0)
    throw DataError({.what = fmt::format("cannot open {}: {}", file.string(), std::strerror(error)),
                     .why = "the file is read by mapping it into memory" + where_from(file),
                     .fix = error == EACCES ? fmt::format("chmod a+r {}", file.string())
                                            : "correct the path in the data section"});
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<uint8_t*>(data_), static_cast<size_t>(size_));
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

}  // namespace braid::data
