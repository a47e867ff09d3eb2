// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoint/catalog.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "braid/core/fs.h"
#include "checkpoint/folder.h"
#include "checkpoint/names.h"
#include "checkpoint/tensor_file.h"

namespace braid::checkpoint {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// The pieces of a file as its head tells them, under `prefix`; all are whole tensors.
std::vector<StoredPiece> pieces_in(const fs::path& file, std::string_view prefix) {
  FileReader in(file);
  std::vector<StoredPiece> pieces;
  for (TensorInfo& info : read_head(in).tensors) {
    const int64_t count = elements_of(info.shape);
    pieces.push_back({.name = std::string(prefix) + info.name,
                      .dtype = info.dtype,
                      .whole = std::move(info.shape),
                      .first = 0,
                      .count = count,
                      .begin = info.begin,
                      .xxh3 = {}});
  }
  return pieces;
}

// Version 1: the heads say where the tensors are; the first file is the model.
void locate_first_version(Manifest& manifest, const fs::path& dir) {
  check_sizes(manifest, dir);
  for (size_t i = 0; i < manifest.shards.size(); ++i) {
    Shard& shard = manifest.shards[i];
    const auto record = manifest.files.find(shard.file);
    if (record == manifest.files.end())
      throw broken_checkpoint(dir, fmt::format("{} does not list {}", manifest_name, shard.file));
    shard.record = record->second;
    shard.pieces = pieces_in(dir / shard.file, i == 0 ? model_prefix : std::string_view());
  }
}

void add_tensors(Catalog& catalog) {
  for (size_t s = 0; s < catalog.manifest.shards.size(); ++s) {
    const std::vector<StoredPiece>& pieces = catalog.manifest.shards[s].pieces;
    for (size_t p = 0; p < pieces.size(); ++p) {
      catalog.tensors[pieces[p].name] = {pieces[p].dtype, pieces[p].whole};
      catalog.pieces[pieces[p].name].push_back({s, p});
    }
  }
  for (auto& [name, where] : catalog.pieces)
    std::sort(where.begin(), where.end(), [&](const Located& a, const Located& b) {
      return catalog.at(a).first < catalog.at(b).first;
    });
}

std::unique_ptr<Catalog> weights_in(const fs::path& dir, const std::vector<std::string>& files) {
  auto catalog = std::make_unique<Catalog>();
  catalog->dir = dir;
  catalog->checkpoint = false;
  for (const std::string& file : files) {
    Shard shard;
    shard.file = file;
    shard.pieces = pieces_in(dir / file, model_prefix);
    shard.record.bytes = static_cast<int64_t>(fs::file_size(dir / file));
    catalog->manifest.shards.push_back(std::move(shard));
  }
  use_braid_names(catalog->manifest.shards);
  add_tensors(*catalog);
  return catalog;
}

StorageError broken_index(const fs::path& file, const std::string& why) {
  return StorageError({.what = fmt::format("{} cannot be used", file.string()),
                       .why = why,
                       .fix = "copy the folder again, all files of it"});
}

// Every tensor of the index must be in the file that it names.
void check_index(const Catalog& catalog, const json& weight_map, const fs::path& index) {
  for (const auto& [name, file] : weight_map.items()) {
    const std::string key = braid_name(std::string(model_prefix) + name, catalog.tensors);
    if (key.empty()) continue;  // a buffer that braid computes itself
    const auto where = catalog.pieces.find(key);
    if (where == catalog.pieces.end() ||
        catalog.manifest.shards[where->second.front().shard].file != file.get<std::string>())
      throw broken_index(index, fmt::format("{} should hold {}", file.get<std::string>(), name));
  }
}

std::unique_ptr<Catalog> open_index(const fs::path& dir, const fs::path& index) {
  const json content = json::parse(read_text(index), nullptr, /*allow_exceptions=*/false);
  if (!content.is_object() || !content.contains("weight_map") || !content["weight_map"].is_object())
    throw broken_index(index, "it is not JSON with a weight_map");
  std::vector<std::string> files;
  for (const auto& [name, file] : content["weight_map"].items()) {
    if (!file.is_string()) throw broken_index(index, "its weight_map does not name files");
    files.push_back(file.get<std::string>());
  }
  std::sort(files.begin(), files.end());
  files.erase(std::unique(files.begin(), files.end()), files.end());
  for (const std::string& file : files)
    if (!fs::exists(dir / file)) throw broken_index(index, fmt::format("{} is missing", file));
  auto catalog = weights_in(dir, files);
  check_index(*catalog, content["weight_map"], index);
  return catalog;
}

}  // namespace

std::unique_ptr<Catalog> open_checkpoint(const fs::path& dir) {
  auto catalog = std::make_unique<Catalog>();
  catalog->dir = dir;
  catalog->manifest = read_manifest(dir);
  if (catalog->manifest.version == 1) locate_first_version(catalog->manifest, dir);
  add_tensors(*catalog);
  return catalog;
}

fs::path newest_by_size(const fs::path& checkpoints) {
  const std::vector<fs::path> whole = whole_by_size(checkpoint_folders(checkpoints));
  return whole.empty() ? fs::path() : whole.back();
}

namespace {

// Weights as torch.save writes them are Python objects, which only Python can read.
bool holds_pickles(const fs::path& path) {
  return fs::exists(path / "pytorch_model.bin") ||
         fs::exists(path / "pytorch_model.bin.index.json");
}

}  // namespace

std::unique_ptr<Catalog> open_any(const fs::path& path) {
  if (fs::is_regular_file(path)) return weights_in(path.parent_path(), {path.filename()});
  if (fs::exists(path / manifest_name)) return open_checkpoint(path);
  for (const fs::path& folder : {path / "checkpoints", path})
    if (const fs::path newest = newest_by_size(folder); !newest.empty())
      return open_checkpoint(newest);
  if (const fs::path index = path / "model.safetensors.index.json"; fs::exists(index))
    return open_index(path, index);
  if (fs::exists(path / "model.safetensors")) return weights_in(path, {"model.safetensors"});
  if (holds_pickles(path))
    throw StorageError(
        {.what = fmt::format("{} holds its weights as pytorch_model.bin", path.string()),
         .why = "that is a pickle of Python, and braid reads safetensors",
         .fix = "in Python: AutoModelForCausalLM.from_pretrained(folder).save_pretrained(other)"});
  throw StorageError(
      {.what = fmt::format("{} holds no weights that braid can read", path.string()),
       .why = fs::exists(path) ? "it has neither manifest.json, checkpoints, "
                                 "model.safetensors.index.json nor model.safetensors"
                               : "it does not exist",
       .fix = "give a run folder, a checkpoint, a .safetensors file or a folder of such files"});
}

}  // namespace braid::checkpoint
