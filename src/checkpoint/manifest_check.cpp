// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoint/manifest_check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "checkpoint/tensor_file.h"
#include "core/json.h"

namespace braid::checkpoint {
namespace {

// Elements of a shape that has memory: sizes of 0 do not hide sizes that no memory has.
int64_t checked_elements(const StoredPiece& piece) {
  int64_t elements = 1, bytes = static_cast<int64_t>(c10::elementSize(piece.dtype));
  for (const int64_t size : piece.whole) {
    const bool impossible =
        size < 0 || __builtin_mul_overflow(bytes, std::max<int64_t>(size, 1), &bytes);
    if (impossible)
      throw JsonFault(
          fmt::format("{} has the shape [{}]", piece.name, fmt::join(piece.whole, ", ")));
    elements *= size;
  }
  return elements;
}

// Elements that the cuts leave of a whole of `elements`.
int64_t box_elements(const StoredPiece& piece, int64_t elements) {
  std::set<int64_t> seen;
  for (const Cut& cut : piece.cuts) {
    const bool known = cut.dim >= 0 && cut.dim < static_cast<int64_t>(piece.whole.size());
    if (!known || !seen.insert(cut.dim).second)
      throw JsonFault(fmt::format("{} is cut in dimension {} of [{}]{}", piece.name, cut.dim,
                                  fmt::join(piece.whole, ", "), known ? " twice" : ""));
    const int64_t size = piece.whole[static_cast<size_t>(cut.dim)];
    int64_t kept = 0;
    for (const Range& range : cut.ranges) {
      if (range.begin < 0 || range.end < range.begin || range.end > size ||
          range.size() > size - kept)
        throw JsonFault(fmt::format("{} is cut to the rows {} to {} of {}", piece.name, range.begin,
                                    range.end, size));
      kept += range.size();
    }
    elements = size == 0 ? 0 : elements / size * kept;
  }
  return elements;
}

// Returns the elements of the whole.
int64_t check_piece(const StoredPiece& piece, const Shard& shard) {
  const int64_t elements = checked_elements(piece), box = box_elements(piece, elements);
  if (piece.first < 0 || piece.count < 0 || piece.first > box || piece.count > box - piece.first)
    throw JsonFault(fmt::format("{} has {} elements from {} on, of {}", piece.name, piece.count,
                                piece.first, box));
  const int64_t bytes = piece.count * static_cast<int64_t>(c10::elementSize(piece.dtype));
  if (piece.begin < 0 || piece.begin > shard.record.bytes ||
      bytes > shard.record.bytes - piece.begin)
    throw JsonFault(fmt::format("{} has the bytes {} to {} of {}, which has {}", piece.name,
                                piece.begin,
                                static_cast<uint64_t>(piece.begin) + static_cast<uint64_t>(bytes),
                                shard.file, shard.record.bytes));
  const int64_t runs = bytes / hashed_run + (bytes % hashed_run != 0 ? 1 : 0);
  if (static_cast<int64_t>(piece.xxh3.size()) != runs)
    throw JsonFault(fmt::format("{} has {} hashes, {} bytes need {}", piece.name, piece.xxh3.size(),
                                bytes, runs));
  return elements;
}

bool is_hash(const std::string& text) {
  return text.size() == 16 && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

JsonFault not_a_name(const std::string& name) {
  using Json = nlohmann::json;
  const std::string quoted =
      Json(name).dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
  return JsonFault(fmt::format("{} is not the name of a file in this folder", quoted));
}

void check_file(const std::string& name, const FileRecord& record) {
  if (!is_plain_name(name)) throw not_a_name(name);
  if (record.bytes < 0) throw JsonFault(fmt::format("{} has {} bytes", name, record.bytes));
  if (!is_hash(record.xxh3)) throw JsonFault(fmt::format("the hash of {} is damaged", name));
}

// What the pieces of one tensor have together.
struct Together {
  const StoredPiece* first = nullptr;
  int64_t elements = 0, stored = 0;
};

void check_pieces(const Manifest& manifest) {
  std::map<std::string, Together> tensors;
  for (const Shard& shard : manifest.shards)
    for (const StoredPiece& piece : shard.pieces) {
      Together& all = tensors[piece.name];
      all.elements = check_piece(piece, shard);
      if (all.first == nullptr) all.first = &piece;
      if (all.first->dtype != piece.dtype || all.first->whole != piece.whole)
        throw JsonFault(fmt::format("the pieces of {} differ in shape or dtype", piece.name));
      all.stored += std::min(piece.count, all.elements);  // their bytes are in files: no overflow
    }
  for (const auto& [name, all] : tensors)
    if (all.stored < all.elements)
      throw JsonFault(fmt::format("the pieces of {} have {} of its {} elements", name, all.stored,
                                  all.elements));
}

}  // namespace

bool is_plain_name(const std::string& name) {
  constexpr size_t longest = 255;
  return !name.empty() && name.size() <= longest && name != "." && name != ".." &&
         std::none_of(name.begin(), name.end(),
                      [](unsigned char c) { return c < 32 || c == 127 || c == '/'; });
}

void check_manifest(const Manifest& manifest) {
  constexpr int64_t most_ranks = int64_t{1} << 31;
  if (manifest.step < 0) throw JsonFault(fmt::format("its step is {}", manifest.step));
  if (manifest.world < 1 || manifest.world > most_ranks)
    throw JsonFault(fmt::format("it was written by {} ranks", manifest.world));
  for (const auto& [name, record] : manifest.files) check_file(name, record);
  for (const Shard& shard : manifest.shards) {
    if (manifest.version > 1)
      check_file(shard.file, shard.record);
    else if (!is_plain_name(shard.file))  // the list of files has its size
      throw not_a_name(shard.file);
  }
  if (manifest.version > 1) check_pieces(manifest);
}

}  // namespace braid::checkpoint
