// SPDX-License-Identifier: BSD-3-Clause
#include "braid/core/param.h"

#include <algorithm>

namespace braid {
namespace {

// One dimension of a box: the ranges of the whole that it holds.
struct BoxSide {
  std::vector<Range> ranges;
  int64_t whole = 0;
  int64_t size() const {
    int64_t size = 0;
    for (const Range& range : ranges) size += range.size();
    return size;
  }
  bool is_whole() const { return size() == whole && ranges.size() == 1; }
};

std::vector<BoxSide> sides_of(const Piece& piece) {
  std::vector<BoxSide> sides;
  for (const int64_t size : piece.whole) sides.push_back({{{0, size}}, size});
  for (const Cut& cut : piece.cuts) sides.at(static_cast<size_t>(cut.dim)).ranges = cut.ranges;
  return sides;
}

// Walks the box in row-major order and notes what lies between two of its elements.
class BoxWalk {
 public:
  BoxWalk(std::vector<BoxSide> sides, Range wanted) : sides_(std::move(sides)), wanted_(wanted) {
    // Whole trailing dimensions move as one.
    while (!sides_.empty() && sides_.back().is_whole()) {
      unit_ *= sides_.back().whole;
      sides_.pop_back();
    }
    inner_.assign(sides_.size() + 1, unit_);
    for (size_t dim = sides_.size(); dim-- > 0;) inner_[dim] = inner_[dim + 1] * sides_[dim].size();
  }

  std::vector<Run> runs() {
    walk(0, 0);
    return std::move(runs_);
  }

 private:
  void walk(size_t dim, int64_t from) {
    if (dim == sides_.size()) return add(from * unit_, unit_);
    for (const Range& range : sides_[dim].ranges) {
      if (dim + 1 == sides_.size()) {
        add((from * sides_[dim].whole + range.begin) * unit_, range.size() * unit_);
        continue;
      }
      const int64_t inner = inner_[dim + 1];
      if (inner == 0) continue;
      const int64_t skip = std::clamp((wanted_.begin - reached_) / inner, int64_t{0}, range.size());
      reached_ += skip * inner;
      for (int64_t i = range.begin + skip; i < range.end && reached_ < wanted_.end; ++i)
        walk(dim + 1, from * sides_[dim].whole + i);
    }
  }

  // Elements `from` ... of the whole are the next `count` ones of the box.
  void add(int64_t from, int64_t count) {
    const int64_t begin = std::max(reached_, wanted_.begin);
    const int64_t end = std::min(reached_ + count, wanted_.end);
    if (begin < end) {
      const int64_t first = from + begin - reached_;
      if (!runs_.empty() && runs_.back().from + runs_.back().count == first)
        runs_.back().count += end - begin;
      else
        runs_.push_back({first, begin - wanted_.begin, end - begin});
    }
    reached_ += count;
  }

  std::vector<BoxSide> sides_;
  Range wanted_;
  int64_t unit_ = 1, reached_ = 0;
  std::vector<int64_t> inner_;  // elements of the box that one index of the dimension before has
  std::vector<Run> runs_;
};

}  // namespace

c10::ScalarType gradient_dtype(const at::Tensor& tensor) {
  if (!tensor.requires_grad() || !tensor.is_leaf()) return tensor.scalar_type();
  return tensor.grad_dtype().value_or(tensor.scalar_type());
}

std::vector<Run> runs_of(const Piece& piece, int64_t count) {
  if (count == 0) return {};
  if (piece.cuts.empty()) return {{piece.first, 0, count}};
  return BoxWalk(sides_of(piece), {piece.first, piece.first + count}).runs();
}

std::vector<int64_t> box_of(const Piece& piece) {
  std::vector<int64_t> sizes;
  for (const BoxSide& side : sides_of(piece)) sizes.push_back(side.size());
  return sizes;
}

}  // namespace braid
