// SPDX-License-Identifier: BSD-3-Clause
// safetensors to and from hashed files; write_safetensors and the checkpoint store stand on it.
//
//   FileRecord record = write_tensors(path, tensors, {{"format", "pt"}});
//   FileReader in(path);
//   SafetensorsFile file = read_tensors(in);   // in.record() is then that of the whole file
#pragma once
#include <filesystem>
#include <map>
#include <string>

#include "braid/checkpoint/safetensors.h"
#include "checkpoint/hashed_file.h"

namespace braid::checkpoint {

FileRecord write_tensors(const std::filesystem::path& path, const Tensors& tensors,
                         const std::map<std::string, std::string>& metadata);
SafetensorsFile read_tensors(FileReader& in);

}  // namespace braid::checkpoint
