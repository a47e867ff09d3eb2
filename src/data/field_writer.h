// SPDX-License-Identifier: BSD-3-Clause
// Writes one HDF5 file with a contiguous f4 dataset [T, C, H, W], block of frames by block.
// Internal.
//
//   FieldWriter writer("1990.h5", "fields", {1460, 20, 360, 720});
//   writer.write(0, 8, frames);   // frames 0..7
//   writer.finish();              // only now the file has its name
#pragma once
#include <filesystem>
#include <memory>
#include <string>

#include "data/field_file.h"

namespace braid::data {

class FieldWriter {
 public:
  FieldWriter(std::filesystem::path file, const std::string& dataset,
              FieldShape shape);  // throws StorageError
  ~FieldWriter();                 // an unfinished file is removed
  FieldWriter(const FieldWriter&) = delete;
  FieldWriter& operator=(const FieldWriter&) = delete;

  void write(int64_t first, int64_t count, const float* frames);
  void finish();

 private:
  struct Ids;
  [[noreturn]] void complain();
  std::filesystem::path file_, part_;
  FieldShape shape_;
  std::unique_ptr<Ids> ids_;
};

}  // namespace braid::data
