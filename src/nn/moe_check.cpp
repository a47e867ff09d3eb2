// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>

#include "braid/core/error.h"
#include "nn/check.h"
#include "nn/moe_layers.h"

namespace braid::nn {
namespace {

void check_choices(const MoeOptions& o) {
  const int64_t fixed = o.router == Router::switch_top_1 ? 1 : o.router == Router::gshard ? 2 : 0;
  if (fixed != 0 && o.choices() != fixed)
    throw ConfigError({
        .what = fmt::format("model.moe.top_k = {} with model.moe.router = {}", o.choices(),
                            fixed == 1 ? "switch" : "gshard"),
        .why = fmt::format("this router sends a token to {}", fixed == 1 ? "one expert" : "two"),
        .fix = "set model.moe.top_k=auto, or model.moe.router=top_k",
    });
  if (o.choices() > o.experts)
    throw ConfigError({
        .what = fmt::format("model.moe.top_k = {} is more than model.moe.experts = {}", o.choices(),
                            o.experts),
        .why = "each token is routed to top_k distinct experts",
        .fix = fmt::format("set model.moe.top_k to at most {}, or more experts", o.experts),
    });
  const bool constant = o.choices() == 1 && ((o.router == Router::top_k && o.normalize) ||
                                             o.router == Router::noisy_top_k);
  if (constant)
    throw ConfigError({
        .what = "model.moe.top_k = 1 with gates that add up to 1",
        .why = "the one gate of a token would be 1 whatever the router says, so it cannot learn",
        .fix = "set model.moe.router=switch, or model.moe.top_k=2",
    });
}

void check_capacity(const MoeOptions& o) {
  if (!o.capacity || *o.capacity > 0) return;
  throw ConfigError({
      .what = fmt::format("model.moe.capacity = {}", *o.capacity),
      .why = "an expert takes capacity * tokens / experts * top_k tokens of a sample: none at all",
      .fix = "set model.moe.capacity=1.25, or none to let experts take all tokens that chose them",
  });
}

}  // namespace

void check_moe(const MoeOptions& o, const Layout& layout) {
  check_choices(o);
  check_capacity(o);
  check_divides("mesh.expert", layout.expert.size(), "model.moe.experts", o.experts,
                "each rank of the expert axis holds as many experts");
}

}  // namespace braid::nn
