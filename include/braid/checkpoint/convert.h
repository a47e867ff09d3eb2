// SPDX-License-Identifier: BSD-3-Clause
// Checkpoints and weights from one form into another, one tensor at a time in memory.
//
//   const auto from = checkpoint::Reader::open("runs/gpt");     // or gpt2/, model.safetensors
//   checkpoint::convert(from, "gpt.safetensors", {.format = checkpoint::Format::safetensors});
//
// What is written stands beside until it is whole, then takes its name.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "braid/checkpoint/reader.h"
#include "braid/core/units.h"

namespace braid::checkpoint {

// braid: a checkpoint folder. safetensors: one file of weights. hugging_face: a folder of
// model-00001-of-00002.safetensors, ... and model.safetensors.index.json.
enum class Format { braid, safetensors, hugging_face };

struct ConvertOptions {
  Format format = Format::braid;
  Bytes max_shard{5'000'000'000};             // hugging_face: of one file
  std::optional<c10::ScalarType> dtype = {};  // of weights; none: as they are
  int64_t ranks = 1;                          // braid: as if so many had saved it
  bool force = false;                         // replace what stands there
  std::optional<bool> tied = {};              // braid: false keeps a head equal to the embedding
  std::map<std::string, std::string> texts =
      {};  // more files of the folder: config.yaml, config.json
};

struct Converted {
  int64_t tensors = 0;
  int64_t bytes = 0;  // of their elements
  int64_t files = 0;  // of tensors
  std::vector<std::string> left_out;
};

// `progress`: bytes done and in all. Throws StorageError.
using Progress = std::function<void(int64_t done, int64_t all)>;
Converted convert(const Reader& from, const std::filesystem::path& to,
                  const ConvertOptions& options, const Progress& progress = {});

}  // namespace braid::checkpoint
