// SPDX-License-Identifier: BSD-3-Clause
#include "braid/checkpoint/reader.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "braid/core/regular_file.h"
#include "checkpoint/catalog.h"
#include "checkpoint/piece_reader.h"
#include "checkpoint/runs.h"
#include "checkpoint/tensor_file.h"

namespace braid::checkpoint {
namespace {

namespace fs = std::filesystem;

// The elements of `piece` go to `flat`.
struct Target {
  at::Tensor flat;            // contiguous, one dim
  at::Tensor scattered = {};  // where they end if the wanted tensor is not contiguous
  Piece piece = {};
};

// What a stored piece gives to a target.
struct Overlap {
  Located piece;
  size_t target = 0;
  std::vector<CommonRun> parts;  // by their place in the stored piece
};

Target target_of(const at::Tensor& wanted, const Piece& piece) {
  const at::Tensor tensor = wanted.detach();
  if (tensor.is_contiguous()) return {.flat = tensor.view(-1), .piece = piece};
  return {
      .flat = at::empty({tensor.numel()}, tensor.options()), .scattered = tensor, .piece = piece};
}

StorageError not_stored(const Catalog& catalog, const std::string& name) {
  std::vector<std::string> there;
  for (const auto& [other, stored] : catalog.tensors) there.push_back(other);
  const std::string near = nearest(name, there);
  return StorageError({.what = fmt::format("{} has no tensor {}", catalog.dir.string(), name),
                       .why = near.empty() ? fmt::format("it has {} others", there.size())
                                           : fmt::format("the nearest name is {}", near),
                       .fix = "use the config that wrote it, or start again without --resume"});
}

// Master copies and weights stand in for each other where the precision changed.
std::string stored_name(const Catalog& catalog, const std::string& name, c10::ScalarType wanted) {
  constexpr std::string_view optimizer = "optimizer/", master = "/master";
  const auto stored = catalog.tensors.find(name);
  if (stored == catalog.tensors.end()) {
    if (!name.starts_with(optimizer) || !name.ends_with(master)) throw not_stored(catalog, name);
    const size_t inner = name.size() - optimizer.size() - master.size();
    const std::string weight = std::string(model_prefix) + name.substr(optimizer.size(), inner);
    if (!catalog.tensors.contains(weight)) throw not_stored(catalog, name);
    return weight;
  }
  if (!name.starts_with(model_prefix)) return name;
  const auto copy = catalog.tensors.find(
      fmt::format("{}{}{}", optimizer, name.substr(model_prefix.size()), master));
  const auto width = c10::elementSize(stored->second.dtype);
  const bool wider = copy != catalog.tensors.end() && c10::elementSize(wanted) > width &&
                     c10::elementSize(copy->second.dtype) > width;
  return wider ? copy->first : name;
}

void check_shape(const Catalog& catalog, const std::string& name,
                 const std::vector<int64_t>& wanted) {
  const std::vector<int64_t>& stored = catalog.tensors.at(name).shape;
  // A counter that several ranks hold is saved as a piece of one element.
  const auto single = [](const std::vector<int64_t>& shape) {
    return std::all_of(shape.begin(), shape.end(), [](int64_t size) { return size == 1; });
  };
  if (stored == wanted || (single(stored) && single(wanted))) return;
  throw StorageError(
      {.what = fmt::format("tensor {} of {} has the shape [{}], [{}] is wanted", name,
                           catalog.dir.string(), fmt::join(stored, ", "), fmt::join(wanted, ", ")),
       .why = "it was saved for a model of other sizes",
       .fix = "use the config that wrote it, or start again without --resume"});
}

// The pieces that together hold all elements of the target. An element that several hold is taken
// from the first of them.
void plan_target(const Catalog& catalog, const std::string& name, const Target& target,
                 size_t number, std::vector<Overlap>& plan) {
  std::vector<Run> missing = ascending_runs(target.piece, target.flat.numel());
  for (const Located& where : catalog.pieces.at(name)) {
    if (missing.empty()) return;
    const StoredPiece& stored = catalog.at(where);
    if (boxes_disjoint(stored.cuts, target.piece.cuts)) continue;
    auto parts = take_common(
        missing, ascending_runs({stored.whole, stored.cuts, stored.first}, stored.count));
    const auto before = [](const CommonRun& a, const CommonRun& b) {
      return a.in_piece < b.in_piece;
    };
    if (!std::is_sorted(parts.begin(), parts.end(), before))
      std::sort(parts.begin(), parts.end(), before);
    if (!parts.empty()) plan.push_back({where, number, std::move(parts)});
  }
  if (missing.empty()) return;
  throw broken_checkpoint(
      catalog.dir, fmt::format("no file has the elements {} to {} of {}", missing.front().from,
                               missing.front().from + missing.front().count - 1, name));
}

// One file at a time, from front to back.
void sort_plan(const Catalog& catalog, std::vector<Overlap>& plan) {
  std::sort(plan.begin(), plan.end(), [&](const Overlap& a, const Overlap& b) {
    return std::tuple(a.piece.shard, catalog.at(a.piece).begin, a.parts.front().in_piece) <
           std::tuple(b.piece.shard, catalog.at(b.piece).begin, b.parts.front().in_piece);
  });
}

// The head, or in version 1 the whole file, against its hash; once for each file.
void check_head(Catalog& catalog, size_t number, FileReader& in) {
  const Shard& shard = catalog.manifest.shards[number];
  if (shard.record.xxh3.empty() || !catalog.checked.insert(number).second) return;
  int64_t length = catalog.manifest.version == 1 ? in.size() : 8;
  if (catalog.manifest.version > 1 && in.size() >= 8) {
    uint64_t header = 0;
    in.read_at(&header, sizeof header, 0);
    length =
        static_cast<int64_t>(std::min<uint64_t>(header, static_cast<uint64_t>(in.size() - 8))) + 8;
  }
  std::string piece(static_cast<size_t>(std::min(length, read_bytes)), '\0');
  for (int64_t at = 0; at < length; at += read_bytes)
    in.read(piece.data(), static_cast<size_t>(std::min(read_bytes, length - at)));
  if (in.record().xxh3 == shard.record.xxh3) return;
  catalog.checked.erase(number);
  throw differs(catalog, shard.file,
                fmt::format("hash {}, saved {}", in.record().xxh3, shard.record.xxh3));
}

std::unique_ptr<FileReader> open_shard(Catalog& catalog, size_t number) {
  const Shard& shard = catalog.manifest.shards[number];
  std::error_code error;
  const auto size = fs::file_size(catalog.dir / shard.file, error);
  if (error)
    throw broken_checkpoint(catalog.dir,
                            fmt::format("{} is missing: {}", shard.file, error.message()));
  if (static_cast<int64_t>(size) != shard.record.bytes)
    throw broken_checkpoint(
        catalog.dir,
        fmt::format("{} is {} ({} of {} bytes)", shard.file,
                    static_cast<int64_t>(size) < shard.record.bytes ? "truncated" : "too long",
                    size, shard.record.bytes));
  auto in = std::make_unique<FileReader>(catalog.dir / shard.file);
  check_head(catalog, number, *in);
  return in;
}

// All files that the plan needs are looked at before the first tensor is touched.
void read_plan(Catalog& catalog, const std::vector<Overlap>& plan,
               const std::vector<Target>& targets) {
  for (size_t i = 0; i < plan.size(); ++i)
    if (i == 0 || plan[i].piece.shard != plan[i - 1].piece.shard)
      open_shard(catalog, plan[i].piece.shard);
  std::unique_ptr<FileReader> in;
  for (size_t i = 0; i < plan.size(); ++i) {
    const size_t shard = plan[i].piece.shard;
    if (i == 0 || plan[i - 1].piece.shard != shard) in = open_shard(catalog, shard);
    PieceReader(catalog, catalog.at(plan[i].piece), catalog.manifest.shards[shard].file, *in)
        .read(plan[i].parts, targets[plan[i].target].flat);
  }
}

}  // namespace

Reader::Reader(const fs::path& dir) : catalog_(open_checkpoint(dir)) {}
Reader::Reader(std::unique_ptr<Catalog> catalog) : catalog_(std::move(catalog)) {}
Reader Reader::open(const fs::path& any) { return Reader(open_any(any)); }
Reader::~Reader() = default;
Reader::Reader(Reader&&) noexcept = default;
Reader& Reader::operator=(Reader&&) noexcept = default;

const fs::path& Reader::dir() const { return catalog_->dir; }
bool Reader::is_checkpoint() const { return catalog_->checkpoint; }
int64_t Reader::step() const { return catalog_->manifest.step; }
int64_t Reader::world() const { return catalog_->manifest.world; }
const std::map<std::string, double>& Reader::metrics() const { return catalog_->manifest.metrics; }
const std::map<std::string, std::string>& Reader::values() const {
  return catalog_->manifest.values;
}
const std::map<std::string, Stored>& Reader::tensors() const { return catalog_->tensors; }

std::string Reader::config() const { return file(config_name); }

std::vector<std::string> Reader::files() const {
  std::vector<std::string> names;
  for (const auto& [name, record] : catalog_->manifest.files)
    if (!name.ends_with(".safetensors")) names.push_back(name);  // version 1 lists its shards, too
  return names;
}

std::string Reader::file(const std::string& name) const {
  const auto record = catalog_->manifest.files.find(name);
  if (record == catalog_->manifest.files.end()) return {};
  std::string text = read_regular(catalog_->dir / name);
  if (xxh3_of(text) != record->second.xxh3)
    throw broken_checkpoint(catalog_->dir, fmt::format("{} differs from what was saved", name));
  return text;
}

void Reader::fill(const State& wanted) const {
  std::vector<Target> targets;
  std::vector<Overlap> plan;
  for (const auto& [name, tensor] : wanted.tensors) {
    const auto found = wanted.pieces.find(name);
    const Piece piece = found == wanted.pieces.end() ? Piece{} : found->second;
    const std::string stored = stored_name(*catalog_, name, tensor.scalar_type());
    check_shape(*catalog_, stored, piece.whole.empty() ? tensor.sizes().vec() : piece.whole);
    targets.push_back(target_of(tensor, piece));
    plan_target(*catalog_, stored, targets.back(), targets.size() - 1, plan);
  }
  sort_plan(*catalog_, plan);
  read_plan(*catalog_, plan, targets);
  for (const Target& target : targets)
    if (target.scattered.defined())
      target.scattered.copy_(target.flat.view(target.scattered.sizes()));
}

at::Tensor Reader::whole(const std::string& name) const {
  const auto stored = catalog_->tensors.find(name);
  if (stored == catalog_->tensors.end()) throw not_stored(*catalog_, name);
  State wanted;
  wanted.tensors[name] = at::empty(stored->second.shape, at::TensorOptions(stored->second.dtype));
  fill(wanted);
  return wanted.tensors[name];
}

}  // namespace braid::checkpoint
