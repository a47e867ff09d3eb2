// SPDX-License-Identifier: BSD-3-Clause
#include "braid/checkpoint/convert.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "braid/core/error.h"
#include "braid/core/fs.h"
#include "checkpoint/folder.h"
#include "checkpoint/names.h"
#include "checkpoint/shard.h"

namespace braid::checkpoint {
namespace {

namespace fs = std::filesystem;

bool is_float(c10::ScalarType type) { return c10::isFloatingType(type); }

// Both are read in parts, so that two large embeddings need little room.
bool equal_tensors(const Reader& from, const std::string& a, const std::string& b) {
  const Stored &first = from.tensors().at(a), &second = from.tensors().at(b);
  if (first.dtype != second.dtype || first.shape != second.shape) return false;
  constexpr int64_t part = int64_t{4} << 20;
  const int64_t all = elements_of(first.shape);
  for (int64_t at = 0; at < all; at += part) {
    State parts;
    for (const std::string& name : {a, b})
      parts.set(name, at::empty({std::min(part, all - at)}, at::TensorOptions(first.dtype)),
                {.whole = first.shape, .first = at});
    from.fill(parts);
    if (!parts.tensor(a).equal(parts.tensor(b))) return false;
  }
  return true;
}

class Conversion {
 public:
  Conversion(const Reader& from, const ConvertOptions& options, const Progress& progress)
      : from_(from), options_(options), progress_(progress) {
    choose();
  }

  Converted write(const fs::path& to) {
    switch (options_.format) {
      case Format::braid:
        write_braid(to);
        break;
      case Format::safetensors:
        write_part(to.parent_path(), {to.filename(), parts(holdings_), {{"format", "pt"}}});
        break;
      case Format::hugging_face:
        write_hugging_face(to);
        break;
    }
    return std::move(result_);
  }

 private:
  void choose();
  bool left_out(const std::string& name) const;
  std::vector<Part> parts(const std::vector<Holding>& holdings) const;
  at::Tensor read(const StoredPiece& piece);
  Shard write_part(const fs::path& dir, ShardPlan plan);
  void write_braid(const fs::path& to);
  void write_hugging_face(const fs::path& to);
  void write_texts(const fs::path& to, Manifest* manifest) const;

  const Reader& from_;
  const ConvertOptions& options_;
  const Progress& progress_;
  std::vector<Holding> holdings_;  // what is written
  int64_t done_ = 0;
  Converted result_;
};

// A head that repeats the embedding is written by some programs for tied models.
bool Conversion::left_out(const std::string& name) const {
  if (name != head_weight || options_.format != Format::braid || from_.is_checkpoint())
    return false;
  return options_.tied.value_or(true) && head_repeats_embedding(from_);
}

void Conversion::choose() {
  for (const auto& [name, stored] : from_.tensors()) {
    const bool weight = name.starts_with(model_prefix);
    if (!weight && options_.format != Format::braid) continue;
    if (left_out(name)) {
      result_.left_out.push_back(name.substr(model_prefix.size()));
      continue;
    }
    const bool cast = weight && options_.dtype && is_float(stored.dtype);
    const c10::ScalarType dtype = cast ? *options_.dtype : stored.dtype;
    holdings_.push_back({name, dtype, stored.shape, 0, elements_of(stored.shape)});
    result_.tensors += 1;
    result_.bytes += holdings_.back().count * static_cast<int64_t>(c10::elementSize(dtype));
  }
  if (result_.tensors > 0) return;
  throw StorageError({.what = fmt::format("{} holds no weights", from_.dir().string()),
                      .why = "no tensor in it belongs to a model",
                      .fix = "give another checkpoint"});
}

at::Tensor Conversion::read(const StoredPiece& piece) {
  State wanted;
  wanted.set(piece.name, at::empty({piece.count}, at::TensorOptions(piece.dtype)),
             {.whole = piece.whole, .first = piece.first});
  if (piece.whole.empty())  // one number
    wanted.tensors[piece.name] = at::empty(piece.whole, at::TensorOptions(piece.dtype));
  from_.fill(wanted);
  done_ += piece.count * static_cast<int64_t>(c10::elementSize(piece.dtype));
  if (progress_) progress_(done_, result_.bytes);
  return wanted.tensors[piece.name];
}

std::vector<Part> Conversion::parts(const std::vector<Holding>& holdings) const {
  std::vector<Part> parts;
  for (const Holding& held : holdings)
    parts.push_back({.piece = {held.name, held.dtype, held.whole, held.first, held.count, 0, {}},
                     .stored_name = held.name.substr(model_prefix.size()),
                     .host = {}});
  return parts;
}

Shard Conversion::write_part(const fs::path& dir, ShardPlan plan) {
  for (Part& part : plan.parts) part.host = [this, piece = part.piece] { return read(piece); };
  result_.files += 1;
  return write_shard(dir, plan);
}

void Conversion::write_texts(const fs::path& to, Manifest* manifest) const {
  for (const auto& [name, text] : options_.texts) {
    const FileRecord record = write_bytes(to / name, text);
    if (manifest != nullptr) manifest->files[name] = record;
  }
}

void Conversion::write_braid(const fs::path& to) {
  make_dirs(to);
  Manifest manifest;
  manifest.step = from_.step();
  manifest.world = options_.ranks;
  manifest.metrics = from_.metrics();
  manifest.values = from_.values();
  const std::vector<std::vector<Holding>> ranks(static_cast<size_t>(options_.ranks), holdings_);
  for (int rank = 0; rank < static_cast<int>(options_.ranks); ++rank)
    for (ShardPlan& plan : plan_shards(holdings_, runs_of(ranks, rank), rank, options_.ranks))
      manifest.shards.push_back(write_part(to, std::move(plan)));
  for (const std::string& name : from_.files())
    if (!options_.texts.contains(name))
      manifest.files[name] = write_bytes(to / name, from_.file(name));
  write_texts(to, &manifest);
  write_bytes(to / manifest_name, to_json(manifest));
  sync_dir(to);
}

// Files as full as max_shard allows, in the order of the names.
std::vector<std::vector<Holding>> dealt(const std::vector<Holding>& holdings, int64_t max_bytes) {
  std::vector<std::vector<Holding>> files(1);
  int64_t filled = 0;
  for (const Holding& held : holdings) {
    const int64_t bytes = held.count * static_cast<int64_t>(c10::elementSize(held.dtype));
    if (filled > 0 && filled + bytes > max_bytes) {
      files.emplace_back();
      filled = 0;
    }
    files.back().push_back(held);
    filled += bytes;
  }
  return files;
}

void Conversion::write_hugging_face(const fs::path& to) {
  make_dirs(to);
  const auto files = dealt(holdings_, options_.max_shard.count);
  nlohmann::json index = {{"metadata", {{"total_size", result_.bytes}}}};
  for (size_t i = 0; i < files.size(); ++i) {
    const std::string name =
        files.size() == 1 ? "model.safetensors"
                          : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, files.size());
    write_part(to, {name, parts(files[i]), {{"format", "pt"}}});
    for (const Holding& held : files[i])
      index["weight_map"][held.name.substr(model_prefix.size())] = name;
  }
  if (files.size() > 1) write_bytes(to / "model.safetensors.index.json", index.dump(2) + "\n");
  write_texts(to, nullptr);
  sync_dir(to);
}

bool holds_weights(const fs::path& dir) {
  for (const char* name : {manifest_name, "model.safetensors", "model.safetensors.index.json"})
    if (fs::exists(dir / name)) return true;
  return false;
}

void check_place(const fs::path& to, const ConvertOptions& options) {
  if (!fs::exists(to)) return;
  const bool file = options.format == Format::safetensors;
  if (!options.force)
    throw StorageError({.what = fmt::format("{} exists already", to.string()),
                        .why = "nothing is overwritten unasked",
                        .fix = "choose another name, or add --force"});
  if (file == fs::is_regular_file(to) && (file || fs::is_empty(to) || holds_weights(to))) return;
  throw StorageError({.what = fmt::format("{} is not replaced", to.string()),
                      .why = fmt::format("it is not a {} of weights", file ? "file" : "folder"),
                      .fix = "choose another name, or remove it yourself"});
}

}  // namespace

bool head_repeats_embedding(const Reader& from) {
  const std::string embedding = embedding_of(from.tensors());
  return !embedding.empty() && from.has(head_weight) && equal_tensors(from, embedding, head_weight);
}

Converted convert(const Reader& from, const fs::path& to, const ConvertOptions& options,
                  const Progress& progress) {
  const fs::path target = fs::absolute(to / "").parent_path();  // without a slash at the end
  check_place(target, options);
  if (!target.parent_path().empty()) make_dirs(target.parent_path());
  const fs::path temporary = target.string() + fmt::format(".tmp-{}", ::getpid());
  remove_quietly(temporary);
  try {
    Converted result = Conversion(from, options, progress).write(temporary);
    if (options.format == Format::safetensors)
      rename_durably(temporary, target);
    else
      put_in_place(temporary, target);
    return result;
  } catch (...) {
    remove_quietly(temporary);
    throw;
  }
}

}  // namespace braid::checkpoint
