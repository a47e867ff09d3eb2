// SPDX-License-Identifier: BSD-3-Clause
// Which files a path of the data section means, and files mapped into memory. Internal.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace braid::data {

// `where` is a folder (its files with one of `endings`), a file, or a pattern with * and ?; sorted
// by name. Throws DataError if nothing is there, with `fix`.
struct FileSearch {
  std::string where;
  std::vector<std::string> endings;  // empty: any
  std::string key;                   // of the config, e.g. data.train
  std::string fix;
};
std::vector<std::filesystem::path> find_files(const FileSearch& search);

const std::vector<std::string>& field_endings();  // of HDF5 and netCDF-4 files

class MappedFile {
 public:
  explicit MappedFile(const std::filesystem::path& file);  // throws DataError
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;
  const uint8_t* data() const { return data_; }
  int64_t size() const { return size_; }

 private:
  const uint8_t* data_ = nullptr;
  int64_t size_ = 0;
};

}  // namespace braid::data
