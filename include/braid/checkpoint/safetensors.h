// SPDX-License-Identifier: BSD-3-Clause
// The safetensors format: named tensors in one file that Python's `safetensors` reads and writes.
//
//   checkpoint::write_safetensors("w.safetensors", {{"weight", weight}}, {{"format", "pt"}});
//   at::Tensor again = checkpoint::read_safetensors("w.safetensors").tensors.at("weight");
#pragma once
#include <filesystem>
#include <map>
#include <string>

#include <ATen/core/Tensor.h>

namespace braid::checkpoint {

using Tensors = std::map<std::string, at::Tensor>;

struct SafetensorsFile {
  Tensors tensors;  // on the CPU
  std::map<std::string, std::string> metadata;
};

// Throws StorageError if the file is missing, truncated or not in the format.
SafetensorsFile read_safetensors(const std::filesystem::path& file);
// Written beside, synced and renamed; one tensor at a time is copied from a device. Throws
// StorageError.
void write_safetensors(const std::filesystem::path& file, const Tensors& tensors,
                       const std::map<std::string, std::string>& metadata = {});

}  // namespace braid::checkpoint
