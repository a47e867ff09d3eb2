// SPDX-License-Identifier: BSD-3-Clause
// Master weights and gradients on the host: the same bits, counted bytes, updates one step late.
#include <gtest/gtest.h>

#include <ATen/core/grad_mode.h>

#include <stdexcept>

#include "braid/memory/instruments.h"
#include "braid/parallel/host.h"
#include "braid/parallel/replicate.h"
#include "parallel/zero_toy.h"
#include "support/ranks.h"

namespace braid {
namespace {

using memory::Instruments;
using memory::Ledger;
using parallel::HostOptions;
using parallel::HostParams;
using parallel::HostUpdate;
using test::Toy;
using test::ToyOptions;

at::Tensor host_batch(const ToyOptions& options, int64_t number = 0) {
  const at::Tensor x = at::empty({4, 6}, options.type);
  test::toy_initial("batch" + std::to_string(number), x, 0);
  return x;
}

ToyOptions toy_of(c10::ScalarType dtype) {
  ToyOptions options;
  options.type = options.type.dtype(dtype);
  return options;
}

void expect_same_weights(const Toy& a, const Toy& b) {
  for (size_t i = 0; i < a.params.size(); ++i)
    EXPECT_TRUE(a.params[i].tensor.equal(b.params[i].tensor)) << a.params[i].name;
}

// The same update from masters that the test keeps itself.
struct PlainMasters {
  explicit PlainMasters(const Toy& toy, c10::ScalarType dtype) : model(toy) {
    for (const Param& param : model.params) masters.push_back(param.tensor.detach().to(dtype));
  }
  void apply(const std::vector<at::Tensor>& grads, double rate) {
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < masters.size(); ++i) {
      if (!grads[i].defined()) continue;
      masters[i].sub_(grads[i].to(masters[i].scalar_type()), rate);
      model.params[i].tensor.copy_(masters[i]);
    }
  }
  const Toy& model;
  std::vector<at::Tensor> masters;
};

std::vector<at::Tensor> taken_grads(const Toy& model) {
  std::vector<at::Tensor> grads;
  for (const Param& param : model.params) grads.push_back(param.tensor.grad());
  model.zero_grad();
  return grads;
}

void host_sgd(const HostParams& host, double rate) {
  const at::NoGradGuard no_grad;
  for (const Param& param : host.params())
    if (param.tensor.grad().defined())
      param.tensor.detach().sub_(param.tensor.grad().to(param.tensor.scalar_type()), rate);
}

TEST(HostParams, UpdatesTheSameBits) {
  for (const auto dtype : {c10::kDouble, c10::kFloat, c10::kBFloat16}) {
    ToyOptions options = toy_of(dtype);
    options.unused = options.frozen = true;
    Toy alone(options), model(options);
    PlainMasters plain(alone, dtype == c10::kDouble ? dtype : c10::kFloat);
    HostParams host(model.params);
    for (int step = 0; step < 3; ++step) {
      for (int pass = 0; pass < 3; ++pass) {  // the host adds what autograd would
        alone.loss(host_batch(options, step + pass), 4).backward();
        model.loss(host_batch(options, step + pass), 4).backward();
        for (const Param& param : model.params) EXPECT_FALSE(param.tensor.grad().defined());
      }
      plain.apply(taken_grads(alone), 0.05);
      host.finish();
      host_sgd(host, 0.05);
      host.publish();
    }
    expect_same_weights(model, alone);
    for (size_t i = 0; i < plain.masters.size(); ++i)
      EXPECT_TRUE(host.params()[i].tensor.equal(plain.masters[i])) << host.params()[i].name;
  }
}

TEST(HostParams, GradientsOfAReplicaComeAtTheEnd) {
  test::on_ranks(2, [](comm::Group world) {
    const ToyOptions options = toy_of(c10::kDouble);
    Toy plain(options), model(options);
    parallel::Replicate replicas(plain.params, world);
    HostParams host(std::make_unique<parallel::Replicate>(model.params, world));
    EXPECT_EQ(host.inner()->params().size(), model.params.size());
    for (int step = 0; step < 2; ++step) {
      for (const Toy* toy : {&plain, &model})
        toy->loss(host_batch(options, world.rank()), 4).backward();
      replicas.finish();
      host.finish();
      const at::NoGradGuard no_grad;
      test::toy_sgd(plain.params, 0.05);
      test::toy_sgd(host.params(), 0.05);
      plain.zero_grad();
      host.publish();
    }
    expect_same_weights(model, plain);
  });
}

int64_t elements_of(const Toy& model) {
  int64_t sum = 0;
  for (const Param& param : model.params) sum += param.tensor.numel();
  return sum;
}

TEST(HostParams, TrafficIsFourBytesAWeight) {
  const ToyOptions options = toy_of(c10::kBFloat16);
  Toy model(options);
  HostParams host(model.params);
  for (int step = 0; step < 3; ++step) {
    model.loss(host_batch(options), 4).backward();
    host.finish();
    host.publish();
  }
  EXPECT_EQ(host.traffic().to_host, 3 * 2 * elements_of(model));
  EXPECT_EQ(host.traffic().to_device, 3 * 2 * elements_of(model));
}

struct Bytes3 {
  int64_t device, host, pinned;
};

// What stays after two steps of a GPU that is not there, and the most that the device ever had.
Bytes3 dry_bytes(Ledger& ledger, const HostOptions& host_options, int passes) {
  ToyOptions options = toy_of(c10::kBFloat16);
  options.type = options.type.device(c10::kCUDA, 0);
  const Instruments on({.ledger = &ledger, .dry = true});
  Toy model(options);
  HostParams host(model.params, host_options);
  for (int step = 0; step < 2; ++step) {
    for (int pass = 0; pass < passes; ++pass) model.loss(host_batch(options), 4).backward();
    host.finish();
    host.publish();
    for (const Param& param : host.params()) param.tensor.mutable_grad().reset();
  }
  return {ledger.live(memory::cuda()), ledger.live(memory::cpu), ledger.live(memory::pinned_host)};
}

TEST(HostParams, TheDeviceKeepsWeightsAlone) {
  const int64_t weights = elements_of(Toy(toy_of(c10::kBFloat16)));
  constexpr int64_t largest = 8 * 12, tile = 32;
  Ledger one, accumulated, late;
  const Bytes3 bytes = dry_bytes(one, {.tile = tile}, 1);
  EXPECT_EQ(bytes.device, 2 * weights);
  EXPECT_EQ(bytes.host, 4 * weights);                     // masters
  EXPECT_EQ(bytes.pinned, 2 * weights + 2 * (2 * tile));  // gradients, two tiles
  const Bytes3 more = dry_bytes(accumulated, {.tile = tile}, 2);
  EXPECT_EQ(more.device, 2 * weights);
  // And two places where a gradient waits to be added, each as large as the largest it was for.
  EXPECT_GT(more.pinned, bytes.pinned);
  EXPECT_LE(more.pinned, bytes.pinned + 2 * (2 * largest));
  // Gradients of the step that runs and of the one that waits.
  EXPECT_EQ(dry_bytes(late, {.delay_from = 1, .tile = tile}, 1).pinned, bytes.pinned + 2 * weights);
  const auto gradients = [](const Ledger& ledger) {
    int64_t most = 0;
    for (const memory::Moment& moment : ledger.timeline(memory::cuda()))
      most = std::max(most, moment.by_kind[static_cast<size_t>(MemoryKind::gradient)]);
    return most;
  };
  EXPECT_LT(gradients(one), 2 * weights);  // never all of them
}

TEST(HostParams, ADryStepTakesTheMemoryOfARealOne) {
  const auto steps = [](Ledger& ledger, bool dry) {
    const Instruments on({.ledger = &ledger, .dry = dry});
    const ToyOptions options = toy_of(c10::kBFloat16);
    Toy model(options);
    HostParams host(model.params, {.delay_from = 1});
    for (int step = 0; step < 3; ++step) {
      host.begin(step);
      for (int pass = 0; pass < 2; ++pass) model.loss(host_batch(options), 4).backward();
      host.finish();
      host.update({.lr = 0.1}, [&](const HostUpdate& update) { host_sgd(host, update.lr); }, step);
    }
  };
  Ledger real, dry;
  steps(real, false);
  steps(dry, true);
  EXPECT_GT(dry.highest(memory::cpu), 0);
  EXPECT_EQ(dry.highest(memory::cpu), real.highest(memory::cpu));
  EXPECT_EQ(dry.peak(memory::cpu).by_kind, real.peak(memory::cpu).by_kind);
}

// Gradients of step 0, 1 at once; of step 2, 3, ... each one step later.
TEST(HostParams, LateUpdatesAreThoseOfASimulator) {
  for (const auto dtype : {c10::kDouble, c10::kFloat, c10::kBFloat16}) {
    const ToyOptions options = toy_of(dtype);
    Toy sequential(options), model(options);
    PlainMasters plain(sequential, dtype == c10::kDouble ? dtype : c10::kFloat);
    HostParams host(model.params, {.delay_from = 2});
    std::vector<at::Tensor> waiting;
    for (int step = 0; step < 7; ++step) {
      const double rate = 0.05 / (1 + step);
      sequential.loss(host_batch(options, step), 4).backward();
      const std::vector<at::Tensor> fresh = taken_grads(sequential);
      if (step < 2) plain.apply(fresh, rate);
      if (step > 2) plain.apply(waiting, 0.05 / step);
      waiting = fresh;

      host.begin(step);
      model.loss(host_batch(options, step), 4).backward();
      host.finish();
      host.update({.lr = rate}, [&](const HostUpdate& given) { host_sgd(host, given.lr); }, step);
      for (const Param& param : host.params()) param.tensor.mutable_grad().reset();
      expect_same_weights(model, sequential);
    }
  }
}

TEST(HostParams, WhatALateUpdateThrowsReachesTheCaller) {
  const ToyOptions options = toy_of(c10::kFloat);
  Toy model(options);
  HostParams host(model.params, {.delay_from = 1});
  model.loss(host_batch(options), 4).backward();
  host.finish();
  host.update({}, [](const HostUpdate&) { throw std::runtime_error("broken"); }, 1);
  host.begin(2);
  model.loss(host_batch(options), 4).backward();
  EXPECT_THROW(host.finish(), std::runtime_error);
}

}  // namespace
}  // namespace braid
