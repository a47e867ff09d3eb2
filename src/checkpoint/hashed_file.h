// SPDX-License-Identifier: BSD-3-Clause
// Files that are hashed (XXH3, 64 bits) while they are written or read from front to back.
//
//   FileWriter out(path, /*need=*/bytes.size());
//   out.write(bytes.data(), bytes.size());
//   FileRecord record = out.finish();
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

namespace braid::checkpoint {

struct FileRecord {
  int64_t bytes = 0;
  std::string xxh3;  // 16 hexadecimal digits
  bool operator==(const FileRecord&) const = default;
};

std::string xxh3_of(std::string_view bytes);

class FileWriter {
 public:
  FileWriter(std::filesystem::path path,
             int64_t need);  // `need`: what the whole file takes, for the error
  ~FileWriter();             // unfinished: closes, the caller removes
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;
  void write(const void* data, size_t bytes);
  FileRecord finish();  // syncs and closes

 private:
  [[noreturn]] void fail(int error) const;
  struct State;
  std::unique_ptr<State> state_;
};

class FileReader {
 public:
  explicit FileReader(std::filesystem::path path);
  ~FileReader();
  FileReader(const FileReader&) = delete;
  FileReader& operator=(const FileReader&) = delete;
  const std::filesystem::path& path() const;
  int64_t size() const;
  void read(void* data, size_t bytes);  // throws StorageError at the end of the file
  FileRecord record() const;            // of what was read so far

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace braid::checkpoint
