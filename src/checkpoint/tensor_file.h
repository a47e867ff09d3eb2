// SPDX-License-Identifier: BSD-3-Clause
// safetensors files piece by piece: heads are read alone, tensors are written one after the other.
//
//   TensorFileWriter out(path, {{"w", c10::kFloat, {2, 3}}}, {{"format", "pt"}});
//   for (const TensorInfo& next : out.tensors()) out.add(host_tensor(next.name));
//   FileRecord record = out.finish();   // its size, and the hash of its head
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include "checkpoint/hashed_file.h"

namespace braid::checkpoint {

using Metadata = std::map<std::string, std::string>;

struct TensorInfo {
  std::string name;
  c10::ScalarType dtype = c10::kFloat;
  std::vector<int64_t> shape = {};
  int64_t begin = 0, end = 0;  // bytes of the file
};

struct TensorFileHead {
  std::vector<TensorInfo> tensors;  // in file order
  Metadata metadata;
  int64_t bytes = 0;  // of the head itself
};

// Throws StorageError if the file is not a whole safetensors file.
TensorFileHead read_head(FileReader& in);

std::string_view dtype_word(c10::ScalarType type);  // F32; "" if the format has none
bool dtype_called(std::string_view word, c10::ScalarType& type);
int64_t elements_of(const std::vector<int64_t>& shape);

// Tensors are hashed in runs of so many bytes, so that a part can be read and checked alone.
// A multiple of every element size.
inline constexpr int64_t hashed_run = int64_t{16} << 20;

class TensorFileWriter {
 public:
  TensorFileWriter(const std::filesystem::path& path, std::vector<TensorInfo> tensors,
                   const Metadata& metadata);
  const std::vector<TensorInfo>& tensors() const { return tensors_; }  // in the order to add them
  std::vector<uint64_t> add(const at::Tensor& host);  // the next one; the hashes of its runs
  FileRecord finish();                                // the hash is that of the head

 private:
  std::vector<TensorInfo> tensors_;
  std::string head_;
  FileWriter out_;
  uint64_t head_hash_ = 0;
};

}  // namespace braid::checkpoint
