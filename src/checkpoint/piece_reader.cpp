// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoint/piece_reader.h"

#include <ATen/ops/from_blob.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "checkpoint/tensor_file.h"

namespace braid::checkpoint {
namespace {

// Parts of one length at regular distances, as rows of a matrix cut by columns are: they are copied
// as one.
struct Rows {
  CommonRun first;
  int64_t count = 1;
  int64_t wanted_step = 0, piece_step = 0;
};

bool continues(const Rows& rows, const CommonRun& part) {
  const int64_t wanted =
      part.in_wanted - rows.first.in_wanted - (rows.count - 1) * rows.wanted_step;
  const int64_t piece = part.in_piece - rows.first.in_piece - (rows.count - 1) * rows.piece_step;
  if (part.count != rows.first.count || wanted < part.count || piece < part.count) return false;
  return rows.count == 1 || (wanted == rows.wanted_step && piece == rows.piece_step);
}

void add_part(std::vector<Rows>& all, const CommonRun& part) {
  if (all.empty() || !continues(all.back(), part)) {
    all.push_back({part});
    return;
  }
  Rows& rows = all.back();
  if (rows.count == 1) {
    rows.wanted_step = part.in_wanted - rows.first.in_wanted;
    rows.piece_step = part.in_piece - rows.first.in_piece;
  }
  ++rows.count;
}

// `low`: element of the piece at which `from` starts.
void copy_rows(const Rows& rows, const at::Tensor& flat, const at::Tensor& from, int64_t low) {
  const int64_t width = rows.first.count;
  const at::Tensor source =
      from.as_strided({rows.count, width}, {rows.piece_step, 1}, rows.first.in_piece - low);
  flat.as_strided({rows.count, width}, {rows.wanted_step, 1},
                  flat.storage_offset() + rows.first.in_wanted)
      .copy_(source);
}

}  // namespace

StorageError differs(const Catalog& catalog, const std::string& file, const std::string& what) {
  return broken_checkpoint(catalog.dir,
                           fmt::format("{} differs from what was saved ({})", file, what));
}

PieceReader::PieceReader(const Catalog& catalog, const StoredPiece& piece, const std::string& file,
                         FileReader& in)
    : catalog_(catalog),
      piece_(piece),
      file_(file),
      in_(in),
      size_(static_cast<int64_t>(c10::elementSize(piece.dtype))) {}

void PieceReader::read(const std::vector<CommonRun>& parts, const at::Tensor& flat) {
  parts_ = &parts;
  flat_ = flat;
  next_ = 0;
  const int64_t bytes = piece_.count * size_;
  while (next_ < parts.size()) {
    const int64_t run = parts[next_].in_piece * size_ / hashed_run;
    // A part may reach over the end of a run.
    for (int64_t begin = run * hashed_run; begin < bytes && reaches(begin); begin += hashed_run) {
      const int64_t end = std::min(begin + hashed_run, bytes);
      for (int64_t at = begin; at < end; at += read_bytes) take(at, std::min(read_bytes, end - at));
      check(static_cast<size_t>(begin / hashed_run), hash_.take());
    }
  }
}

bool PieceReader::direct() const { return flat_.is_cpu() && flat_.scalar_type() == piece_.dtype; }

// A part that is left has something in the run that begins at byte `begin`.
bool PieceReader::reaches(int64_t begin) const {
  return next_ < parts_->size() && (*parts_)[next_].in_piece * size_ < begin + hashed_run;
}

void PieceReader::take(int64_t at, int64_t bytes) {
  const int64_t low = at / size_, high = (at + bytes) / size_;
  const auto inside = [&] { return next_ < parts_->size() && (*parts_)[next_].in_piece < high; };
  if (!inside() && piece_.xxh3.empty()) return;
  char* to = nullptr;
  bool straight = false;
  if (inside() && direct()) {
    const CommonRun& part = (*parts_)[next_];
    straight = part.in_piece <= low && part.in_piece + part.count >= high;
    if (straight)
      to = static_cast<char*>(flat_.mutable_data_ptr()) +
           (part.in_wanted + low - part.in_piece) * size_;
  }
  if (!straight) {
    scratch_.resize(static_cast<size_t>(read_bytes));
    to = scratch_.data();
  }
  in_.read_at(to, static_cast<size_t>(bytes), piece_.begin + at);
  if (!piece_.xxh3.empty()) hash_.add(to, static_cast<size_t>(bytes));
  if (!straight) spread(to, low, high);
  while (inside() && (*parts_)[next_].in_piece + (*parts_)[next_].count <= high) ++next_;
}

// Elements low .. high of the piece to their places.
void PieceReader::spread(const char* from, int64_t low, int64_t high) {
  std::vector<Rows> rows;
  for (size_t i = next_; i < parts_->size() && (*parts_)[i].in_piece < high; ++i) {
    CommonRun part = (*parts_)[i];
    const int64_t skip = std::max<int64_t>(low - part.in_piece, 0);
    part = {part.in_wanted + skip, part.in_piece + skip,
            std::min(part.in_piece + part.count, high) - part.in_piece - skip};
    if (direct())
      std::memcpy(static_cast<char*>(flat_.mutable_data_ptr()) + part.in_wanted * size_,
                  from + (part.in_piece - low) * size_, static_cast<size_t>(part.count * size_));
    else
      add_part(rows, part);
  }
  if (rows.empty()) return;
  const at::Tensor read =
      at::from_blob(const_cast<char*>(from), {high - low}, at::TensorOptions(piece_.dtype));
  for (const Rows& some : rows) copy_rows(some, flat_, read, low);
}

void PieceReader::check(size_t run, uint64_t hash) const {
  if (piece_.xxh3.empty()) return;
  const uint64_t saved = run < piece_.xxh3.size() ? piece_.xxh3[run] : 0;
  if (saved != hash)
    throw differs(catalog_, file_,
                  fmt::format("{}: hash {}, saved {}", piece_.name, hex_of(hash), hex_of(saved)));
}

}  // namespace braid::checkpoint
