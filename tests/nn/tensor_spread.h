// SPDX-License-Identifier: BSD-3-Clause
// A language model on many ranks against the same model on one: loss, output, and the gradient of
// every weight, put together from what the ranks hold.
#pragma once
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "braid/core/rng.h"
#include "braid/nn/loss.h"
#include "braid/nn/options.h"
#include "support/ranks.h"

namespace braid::test {

using MakeModel = std::function<std::unique_ptr<nn::Model>(const nn::Build&)>;

struct Spread {
  int ranks = 2;
  bool sequence = false, regather = false;
  int64_t overlap = 1;
};

inline std::string name_of(const Spread& spread) {
  return "tensor " + std::to_string(spread.ranks) + (spread.sequence ? ", sequence" : "") +
         (spread.regather ? ", regather" : "") + ", overlap " + std::to_string(spread.overlap);
}

inline std::vector<Spread> all_spreads(const std::vector<int>& ranks) {
  std::vector<Spread> all;
  for (const int n : ranks)
    for (const int64_t overlap : {1, 3})
      for (const Spread& mode : {Spread{.ranks = n}, Spread{.ranks = n, .sequence = true},
                                 Spread{.ranks = n, .sequence = true, .regather = true}})
        all.push_back({n, mode.sequence, mode.regather, overlap});
  return all;
}

inline nn::Build build_on(const nn::Layout& layout, std::string_view dtype = "fp64") {
  return {.seed = 3, .precision = precision(dtype), .layout = layout};
}

inline nn::Layout layout_of(const Spread& spread, const comm::Group& world) {
  return {.tensor = world,
          .sequence = spread.sequence,
          .regather = spread.regather,
          .overlap = spread.overlap};
}

struct Texts {
  at::Tensor tokens, target;
};

inline Texts texts(int64_t batch, int64_t count, int64_t vocabulary) {
  const at::Tensor both = at::empty({2, batch, count}, at::kDouble);
  fill_uniform(both, random_key(5, "texts"), 0, static_cast<double>(vocabulary));
  const at::Tensor ids = both.to(at::kLong);
  ids[1][0][1] = nn::ignored_target;
  return {ids[0].clone(), ids[1].clone()};
}

inline const nn::Pass training_pass = {.training = true, .seed = 8, .step = 4};

// Gradients of all ranks, put together.
class Together {
 public:
  void add(const Param& param) {
    const std::lock_guard lock(mutex_);
    ASSERT_TRUE(param.tensor.grad().defined()) << param.name;
    const at::Tensor grad = param.tensor.grad().detach().clone();
    if (param.repeated && !param.tensor_partial) {
      copies_.push_back({param, grad});
      return;
    }
    const auto shape = param.is_whole() ? param.tensor.sizes().vec() : param.piece.whole;
    at::Tensor& sum = sums_[param.name];
    at::Tensor& held = held_[param.name];
    if (!sum.defined()) {
      sum = at::zeros(shape, grad.options());
      held = at::zeros(shape, at::kLong);
    }
    at::Tensor mine = at::zeros(shape, grad.options());
    for (const Run& run : runs_of(piece_of(param), grad.numel())) {
      mine.view(-1)
          .narrow(0, run.from, run.count)
          .copy_(grad.view(-1).narrow(0, run.at, run.count));
      if (!param.repeated) held.view(-1).narrow(0, run.from, run.count).add_(1);
    }
    sum.add_(mine);
  }

  // All elements are there once, and are those of `expected`.
  void expect(const std::map<std::string, at::Tensor>& expected, double tolerance) const {
    EXPECT_EQ(sums_.size(), expected.size());
    for (const auto& [name, grad] : expected) {
      ASSERT_TRUE(sums_.contains(name)) << name;
      EXPECT_TRUE(held_.at(name).eq(1).all().item<bool>()) << name << " has gaps";
      EXPECT_LE(apart(sums_.at(name), grad), tolerance) << name;
    }
    for (const auto& [param, grad] : copies_) {
      const at::Tensor flat = expected.at(param.name).reshape({-1});
      for (const Run& run : runs_of(piece_of(param), grad.numel()))
        EXPECT_LE(
            apart(grad.view(-1).narrow(0, run.at, run.count), flat.narrow(0, run.from, run.count)),
            tolerance)
            << param.name;
    }
  }

  static double apart(const at::Tensor& a, const at::Tensor& b) {  // largest, of the largest
    const double scale = std::max(1e-300, b.abs().max().item<double>());
    return a.sub(b).abs().max().item<double>() / scale;
  }

 private:
  static Piece piece_of(const Param& param) {
    return param.is_whole() ? Piece{param.tensor.sizes().vec()} : param.piece;
  }
  struct Copy {
    Param param;
    at::Tensor grad;
  };
  mutable std::mutex mutex_;
  std::map<std::string, at::Tensor> sums_, held_;
  std::vector<Copy> copies_;
};

struct Outcome {
  at::Tensor loss, output;
};

inline Outcome pass_of(nn::Model& model, const Texts& data) {
  const at::Tensor output = model.forward(data.tokens, training_pass);
  const at::Tensor loss = nn::loss(nn::Loss::cross_entropy, output, model.local_target(data.target),
                                   model.loss_share());
  loss.backward();
  return {loss.detach(), model.whole_output(output.detach())};
}

inline void expect_as_one(const MakeModel& make, const Texts& data, int ranks,
                          const std::function<nn::Layout(const comm::Group&)>& layout) {
  const auto one = make(build_on({}));
  const Outcome expected = pass_of(*one, data);
  std::map<std::string, at::Tensor> grads;
  for (const Param& param : one->params()) grads[param.name] = param.tensor.grad();
  Together together;
  on_ranks(ranks, [&](comm::Group world) {
    const nn::Layout spread = layout(world);
    const auto model = make(build_on(spread));
    const Outcome found = pass_of(*model, data);
    EXPECT_LE(Together::apart(found.loss, expected.loss), 1e-12);
    EXPECT_LE(Together::apart(found.output, expected.output), 1e-12);
    for (const Param& param : model->params()) {  // as the trainer sums them over context
      spread.context.all_reduce(param.tensor.grad()).wait();
      if (spread.context.rank() == 0) together.add(param);
    }
  });
  together.expect(grads, 1e-12);
}

}  // namespace braid::test
