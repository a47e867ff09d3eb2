// SPDX-License-Identifier: BSD-3-Clause
// One model and its optimizer states as the ranks of tensor, expert, shard and pipeline axes hold
// them: boxes, and runs of boxes.
#pragma once
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "braid/core/param.h"
#include "checkpoint/layouts.h"

namespace braid::checkpoint {

// Four heads of two rows, two of them for k and v.
inline const std::vector<Shape>& box_shapes() {
  static const std::vector<Shape> shapes = {{"embed", {12, 6}},       {"qkv", {16, 6}},
                                            {"out", {6, 7}},          {"experts.up", {4, 6, 8}},
                                            {"experts.bias", {4, 8}}, {"norm", {6}}};
  return shapes;
}

// Cuts of a tensor on a rank; nullopt: the rank has nothing of it.
using CutsOf = std::function<std::optional<std::vector<Cut>>(const Shape& shape, int rank)>;

struct BoxLayout {
  std::string name;
  int ranks = 1;
  CutsOf cuts;
  int shards = 1;  // each box again in as many runs: rank = box rank * shards + shard
};

inline Cut even_cut(const Shape& shape, int64_t dim, int64_t rank, int64_t ranks) {
  const int64_t n = shape.sizes[static_cast<size_t>(dim)], base = n / ranks, more = n % ranks;
  const int64_t begin = rank * base + std::min(rank, more);
  return {dim, {{begin, begin + base + (rank < more ? 1 : 0)}}};
}

inline std::vector<Cut> rows_of(const Shape& shape, int rank, int ranks) {
  if (shape.sizes.size() < 2) return {};
  return {even_cut(shape, 0, rank, ranks)};
}

inline std::vector<Cut> columns_of(const Shape& shape, int rank, int ranks) {
  if (shape.sizes.size() < 2) return {};
  return {even_cut(shape, static_cast<int64_t>(shape.sizes.size()) - 1, rank, ranks)};
}

// Own heads of q, and the head of k and v that they use; others by rows.
inline std::vector<Cut> heads_of(const Shape& shape, int rank, int ranks) {
  if (shape.name != std::string("qkv")) return rows_of(shape, rank, ranks);
  const int64_t q = 8 / ranks, kv = 2;
  const int64_t head = 2 * (int64_t{2} * rank / ranks);
  return {{0, {{q * rank, q * rank + q}, {8 + head, 8 + head + kv}, {12 + head, 12 + head + kv}}}};
}

inline std::vector<Cut> experts_of(const Shape& shape, int rank) {
  const bool expert = std::string(shape.name).starts_with("experts");
  std::vector<Cut> cuts = columns_of(shape, rank % 2, 2);
  if (expert) cuts.push_back(even_cut(shape, 0, rank / 2, 2));
  return cuts;
}

inline const std::vector<BoxLayout>& box_layouts() {
  static const std::vector<BoxLayout> all = {
      {"alone", 1, [](const Shape&, int) { return std::vector<Cut>(); }},
      {"rows 2", 2, [](const Shape& s, int r) { return rows_of(s, r, 2); }},
      {"columns 3", 3, [](const Shape& s, int r) { return columns_of(s, r, 3); }},
      {"qkv 2", 2, [](const Shape& s, int r) { return heads_of(s, r, 2); }},
      {"qkv 4, kv shared", 4, [](const Shape& s, int r) { return heads_of(s, r, 4); }},
      {"experts 2 x tensor 2", 4, [](const Shape& s, int r) { return experts_of(s, r); }},
      {"zero 2 x tensor 2", 4, [](const Shape& s, int r) { return heads_of(s, r, 2); }, 2},
      {"zero 3 x columns 2", 6, [](const Shape& s, int r) { return columns_of(s, r, 2); }, 3},
      {"pipeline 2", 2,
       [](const Shape& s, int r) -> std::optional<std::vector<Cut>> {
         if ((std::string(s.name) < "f") != (r == 0)) return std::nullopt;
         return std::vector<Cut>();
       }},
  };
  return all;
}

inline at::Tensor cut_out(const at::Tensor& whole, const std::vector<Cut>& cuts) {
  at::Tensor box = whole;
  for (const Cut& cut : cuts) {
    std::vector<at::Tensor> parts;
    for (const Range& range : cut.ranges)
      parts.push_back(box.narrow(cut.dim, range.begin, range.size()));
    box = at::cat(parts, cut.dim);
  }
  return box.clone();
}

inline void put_box(State& state, const std::string& name, const at::Tensor& whole,
                    const std::vector<Cut>& cuts, const BoxLayout& layout, int rank) {
  const at::Tensor box = cut_out(whole, cuts);
  const auto [begin, end] = share(box.numel(), rank % layout.shards, layout.shards);
  if (cuts.empty() && layout.shards == 1) {
    state.tensors[name] = box;
  } else if (layout.shards == 1) {
    state.set(name, box, {whole.sizes().vec(), cuts, 0});
  } else if (end > begin) {
    state.set(name, box.view({-1}).narrow(0, begin, end - begin).clone(),
              {whole.sizes().vec(), cuts, begin});
  }
}

inline State boxes_on(const BoxLayout& layout, int rank, int64_t seed = 1) {
  State state;
  for (const Shape& shape : box_shapes()) {
    const auto cuts = layout.cuts(shape, rank / layout.shards);
    if (!cuts) continue;
    const std::string model = std::string("model/") + shape.name;
    const std::string states = std::string("optimizer/") + shape.name;
    put_box(state, model, numbers(model, shape.sizes, seed), *cuts, layout, rank);
    if (!state.tensors.contains(model)) continue;
    put_box(state, states + "/exp_avg", numbers(states, shape.sizes, seed), *cuts, layout, rank);
    const at::Tensor step = at::full({}, 17.0, at::TensorOptions(c10::kFloat));
    if (state.pieces.contains(model))
      state.set(states + "/step", step.view({1}), Piece{.whole = {1}});
    else
      state.tensors[states + "/step"] = step;
  }
  return state;
}

}  // namespace braid::checkpoint
