// SPDX-License-Identifier: BSD-3-Clause
// Which token goes to which expert, and into which of its slots. A sample is a routing group, so
// that nothing depends on how a batch is split; where its tokens are spread over context, the ranks
// tell each other what they need to know. Nothing is read on the host.
//
//   Choices choices = choose(scores, options, where);
//   Routes routes = place(choices, options, where);         // slots of experts
//   RouteLosses losses = route_losses(scores, choices, options, where);
#pragma once
#include <cstdint>
#include <map>
#include <string>

#include <ATen/core/Tensor.h>

#include "braid/comm/group.h"
#include "braid/core/rng.h"
#include "braid/kernels/grouped.h"
#include "braid/nn/options.h"
#include "braid/parallel/context.h"

namespace braid::nn {

// The tokens of this rank, and what random numbers depend on.
struct RouteWhere {
  parallel::TokenShare tokens;  // of a sample
  comm::Group context = {};
  RandomKey key = {};  // of seed, layer and step
  int64_t first_sample = 0;
  bool training = false;
};

// [batch, tokens, experts] in fp32 or fp64.
struct RouteScores {
  at::Tensor logits;
  at::Tensor spread = {};  // of noisy_top_k: standard deviation of the noise
};

// Experts of tokens: [batch, tokens, choices]. Of expert_choice tokens of experts: [batch, experts,
// slots of a sample].
struct Choices {
  at::Tensor probabilities;  // [batch, tokens, experts]
  at::Tensor index = {};     // int64: the expert, or the token
  at::Tensor gates = {};
  at::Tensor taken = {};  // bool: it is one; undefined: all are
  at::Tensor noisy = {};  // noisy_top_k: scores with noise
};

struct Routes {
  kernels::SlotMap map = {};
  at::Tensor gates = {};   // as kernels::from_slots wants them
  int64_t each = 0;        // slots of every expert; 0: as `counts` says
  at::Tensor counts = {};  // [experts] int64: tokens that go to each
  at::Tensor load = {};    // [experts + 1] int64: tokens that chose each; last: those left out
};

// Most tokens of a sample that an expert takes.
int64_t capacity_of(const MoeOptions& options, int64_t tokens);

Choices choose(const RouteScores& scores, const MoeOptions& options, const RouteWhere& where);
Routes place(const Choices& choices, const MoeOptions& options, const RouteWhere& where);

// Random numbers depend on these: [batch, tokens] int64, place of a token in the global batch.
at::Tensor token_places(int64_t batch, const RouteWhere& where, const c10::Device& device);

// [batch] each, with their weights in the sum; the same on all ranks of context. "aux", "z", ...
using RouteLosses = std::map<std::string, at::Tensor>;
RouteLosses route_losses(const RouteScores& scores, const Choices& choices,
                         const MoeOptions& options, const RouteWhere& where);

// x, in whose backward pass the losses join the gradient with the weight that `extras` then has,
// times `share`. Notes their values in `extras` under `layer`.
at::Tensor with_losses(const at::Tensor& x, const RouteLosses& losses, Extras& extras,
                       const std::string& layer, double share);

}  // namespace braid::nn
