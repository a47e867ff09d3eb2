// SPDX-License-Identifier: BSD-3-Clause
// One model and its optimizer states as ranks hold them in several layouts.
#pragma once
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <string>

#include "braid/checkpoint/store.h"
#include "braid/comm/group.h"
#include "braid/core/state.h"

namespace braid::checkpoint {

// whole: every rank has everything. flat: ranks have runs of all elements, of uneven length. mixed:
// weights whole, optimizer states flat (ZeRO 1). hybrid: runs over pairs of ranks, repeated.
enum class Layout { whole, flat, mixed, hybrid };
inline constexpr Layout layouts[] = {Layout::whole, Layout::flat, Layout::mixed, Layout::hybrid};
inline const char* name_of(Layout layout) {
  constexpr const char* names[] = {"whole", "flat", "mixed", "hybrid"};
  return names[static_cast<int>(layout)];
}

struct Shape {
  const char* name;
  std::vector<int64_t> sizes;
};
inline const std::vector<Shape>& model_shapes() {
  static const std::vector<Shape> shapes = {{"a.weight", {7, 5}},
                                            {"a.bias", {5}},
                                            {"b.weight", {3, 4, 2}},
                                            {"c", {1}},
                                            {"empty", {0, 3}}};
  return shapes;
}

inline int64_t count_of(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  return count;
}

// Distinct numbers for every element of every tensor; `seed` tells two states apart.
inline at::Tensor numbers(const std::string& name, const std::vector<int64_t>& shape,
                          int64_t seed) {
  int64_t base = seed * 1000;
  for (const char c : name) base += c;
  return at::arange(base, base + count_of(shape), at::TensorOptions(c10::kFloat))
      .view(shape)
      .div(7);
}

// Elements of a tensor of n that rank holds in a split over `ranks`: uneven, and none on some ranks
// for small tensors.
inline std::pair<int64_t, int64_t> share(int64_t n, int rank, int ranks) {
  const auto cut = [&](int r) {
    return r == ranks ? n : std::min<int64_t>(n, (n * r * (r + 2)) / (ranks * (ranks + 2)));
  };
  return {cut(rank), cut(rank + 1)};
}

inline void put(State& state, const std::string& name, const at::Tensor& whole,
                std::pair<int64_t, int64_t> run, bool as_piece) {
  if (!as_piece) {
    state.tensors[name] = whole.clone();
  } else {
    state.set(name, whole.reshape({-1}).narrow(0, run.first, run.second - run.first).clone(),
              {.whole = whole.sizes().vec(), .first = run.first});
  }
}

// What `rank` of `ranks` holds. An element on no rank is missing on purpose: a rank without a run
// of a parameter has no entry for its states at all.
inline State state_of(Layout layout, int rank, int ranks, int64_t seed) {
  const bool paired = layout == Layout::hybrid && ranks % 2 == 0;
  const int part = paired ? rank % 2 : rank, parts = paired ? 2 : ranks;
  State state;
  for (const Shape& shape : model_shapes()) {
    const auto run = share(count_of(shape.sizes), part, parts);
    const std::string model = std::string("model/") + shape.name;
    const std::string states = std::string("optimizer/") + shape.name;
    const bool flat = layout != Layout::whole;
    const bool none = flat && run.first == run.second && count_of(shape.sizes) > 0;
    if (layout == Layout::mixed || !none)
      put(state, model, numbers(model, shape.sizes, seed), run, flat && layout != Layout::mixed);
    if (none) continue;
    put(state, states + "/exp_avg", numbers(states, shape.sizes, seed), run, flat);
    state.tensors[states + "/step"] = at::full({}, 17.0, at::TensorOptions(c10::kFloat));
  }
  state.values["loader/seen"] = "123";
  return state;
}

inline State emptied(const State& like) {
  State wanted = like;
  for (auto& [name, tensor] : wanted.tensors)
    tensor = at::full(tensor.sizes(), -1.0, tensor.options());
  return wanted;
}

inline void expect_equal(const State& got, const State& want, const std::string& note) {
  ASSERT_EQ(got.tensors.size(), want.tensors.size()) << note;
  for (const auto& [name, tensor] : want.tensors)
    EXPECT_TRUE(got.tensors.at(name).equal(tensor)) << note << " " << name;
}

}  // namespace braid::checkpoint
