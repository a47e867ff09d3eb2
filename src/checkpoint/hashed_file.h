// SPDX-License-Identifier: BSD-3-Clause
// Files that are hashed (XXH3, 64 bits) while they are written or read from front to back, and read
// anywhere.
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
std::string hex_of(uint64_t hash);  // 16 digits

class RunningHash {
 public:
  RunningHash();
  ~RunningHash();
  void add(const void* data, size_t bytes);
  uint64_t take();  // of what was added since the last take

 private:
  struct State;
  std::unique_ptr<State> state_;
};

class FileWriter {
 public:
  FileWriter(std::filesystem::path path,
             int64_t need);  // `need`: what the whole file takes, for the error
  ~FileWriter();             // unfinished: closes, the caller removes
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;
  void write(const void* data, size_t bytes);
  uint64_t take_hash();  // of what was written since the last take
  FileRecord finish();   // syncs and closes; the hash is that since the last take

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
  void read_at(void* data, size_t bytes, int64_t offset);  // anywhere; not hashed
  FileRecord record() const;  // of what was read so far, from the front

 private:
  [[noreturn]] void too_short(int64_t at) const;
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace braid::checkpoint
