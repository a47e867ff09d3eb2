// SPDX-License-Identifier: BSD-3-Clause
// A small model with blocks and weights of every sort, run through a BlockRunner or without one.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "braid/core/blocks.h"
#include "braid/core/param.h"
#include "braid/core/rng.h"
#include "braid/parallel/zero.h"

namespace braid::test {

struct ToyOptions {
  int64_t width = 8;
  int64_t hidden = 12;
  int64_t blocks = 3;
  bool root = true;       // weights outside of blocks
  bool frozen = false;    // some weights of a block, all of another, one outside
  bool tied = false;      // embed and head are one; so are two weights of two blocks
  bool unused = false;    // a weight of a block, and one outside
  bool in_place = false;  // blocks write over their input and output
  bool fresh = true;      // false: no values yet
  c10::TensorOptions type = c10::TensorOptions().dtype(c10::kDouble);
};

inline at::Tensor toy_values(at::IntArrayRef sizes, const std::string& name) {
  const at::Tensor x = at::zeros(sizes, at::kDouble);
  fill_normal(x, random_key(7, name), {.std = 0.5});
  return x;
}

inline void toy_initial(const std::string& name, const at::Tensor& values, int64_t first) {
  fill_normal(values, random_key(7, name), {.std = 0.5}, first);
}

struct Toy {
  explicit Toy(ToyOptions given = {}) : options(given) {
    const int64_t w = options.width, h = options.hidden;
    if (options.root) add("embed.weight", {6, w});
    for (int64_t i = 0; i < options.blocks; ++i) {
      const std::string block = "blocks." + std::to_string(i);
      if (!options.root && i == 0) add(block + ".embed", {6, w});
      add(block + ".up", {w, h});
      add(block + ".bias", {h}, !(options.frozen && i == 0));
      if (options.unused && i == 1) add(block + ".spare", {5});
      if (options.tied && i == 2) {
        params.push_back({block + ".down", find("blocks.0.down")});
      } else {
        add(block + ".down", {h, w}, !(options.frozen && i == 1));
      }
    }
    if (options.frozen && options.blocks > 1) find("blocks.1.up").requires_grad_(false);
    if (options.frozen && options.blocks > 1) find("blocks.1.bias").requires_grad_(false);
    if (!options.root) return;
    add("shift", {w}, !options.frozen);
    add("gain", {});
    if (options.unused) add("spare", {2, 2});
    if (options.tied) params.push_back({"head.weight", find("embed.weight")});
    if (!options.tied) add("head.weight", {6, w});
  }

  void add(const std::string& name, std::vector<int64_t> sizes, bool trained = true) {
    const at::Tensor x = at::empty(sizes, options.type);
    if (options.fresh) toy_initial(name, x, 0);
    params.push_back({name, x.requires_grad_(trained)});
  }

  at::Tensor find(const std::string& name) const {
    for (const Param& param : params)
      if (param.name == name) return param.tensor;
    return {};
  }

  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (int64_t i = 0; i < options.blocks; ++i) all.push_back("blocks." + std::to_string(i));
    return all;
  }
  std::vector<parallel::ZeroUnit> units() const { return parallel::units_of(params, names()); }

  at::Tensor block(int64_t i, const at::Tensor& x) const {
    const std::string name = "blocks." + std::to_string(i) + ".";
    at::Tensor y = x;
    if (!options.root && i == 0) y = at::matmul(y, find(name + "embed"));
    if (options.in_place) y.mul_(0.5);
    const at::Tensor inner = at::matmul(y, find(name + "up")).add(find(name + "bias")).tanh();
    return y.add(at::matmul(inner, find(name + "down")));
  }

  at::Tensor body(const at::Tensor& x, BlockRunner* runner) const {
    at::Tensor y = options.root ? at::matmul(x, find("embed.weight")) : x;
    for (int64_t i = 0; i < options.blocks; ++i) {
      y = run_block(runner, "blocks." + std::to_string(i), y,
                    [&](const at::Tensor& in) { return block(i, in); });
      if (options.in_place) y.mul_(2);
    }
    if (!options.root) return y;
    y = y.add(find("shift")).mul(find("gain"));
    return at::matmul(y, find("head.weight").t());
  }

  at::Tensor forward(const at::Tensor& x, BlockRunner* runner = nullptr) const {
    if (runner == nullptr || !options.root) return body(x, runner);
    return runner->run("", x, [&](const at::Tensor& in) { return body(in, runner); });
  }

  // Its part of the mean over `samples`.
  at::Tensor loss(const at::Tensor& x, double samples, BlockRunner* runner = nullptr) const {
    return forward(x, runner).square().sum().div(samples);
  }

  void zero_grad() const {
    for (const Param& param : params) param.tensor.mutable_grad().reset();
  }

  ToyOptions options;
  std::vector<Param> params;
};

// Plain SGD, without a look at how much of a parameter is there.
inline void toy_sgd(const std::vector<Param>& params, double rate) {
  for (const Param& param : params)
    if (param.tensor.grad().defined()) param.tensor.detach().sub_(param.tensor.grad(), rate);
}

// The same elements of a whole parameter.
inline at::Tensor toy_piece(const at::Tensor& whole, const Param& piece) {
  return whole.detach().reshape({-1}).narrow(0, piece.piece.first, piece.tensor.numel());
}

}  // namespace braid::test
