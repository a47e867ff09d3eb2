// SPDX-License-Identifier: BSD-3-Clause
// What a layer sends over the ranks of tensor when it is computed again. A layer has two messages
// in and two out of its split regions, forward and backward; the second run repeats the forward
// ones, but ends with the last value that is wanted: without dropout that stands before the last
// message out of its last layer.
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "braid/comm/counting.h"
#include "braid/memory/recompute.h"
#include "nn/tensor_spread.h"

namespace braid::nn::recompute_traffic {  // names of its own, also in a unity build
namespace {

using comm::Kind;
using memory::Again;
using memory::RecomputeOptions;

using CallsOf = std::map<Kind, int64_t>;

CallsOf calls_of(int64_t layers, double dropout, const test::Spread& spread,
                 const RecomputeOptions& options) {
  const auto traffic = std::make_shared<comm::Traffic>();
  const comm::Group world(comm::counting(comm::dry(1, spread.ranks), traffic));
  const auto model = make_gpt({.vocabulary = 32,
                               .sequence = 12,
                               .layers = layers,
                               .heads = 4,
                               .width = 24,
                               .dropout = dropout},
                              test::build_on(layout_of(spread, world), "fp32"));
  const at::Tensor tokens = at::zeros({2, 12}, at::kLong);
  memory::Recompute again(options);
  Pass pass = test::training_pass;
  pass.segments = &again;
  const at::Tensor output = model->forward(tokens, pass);
  loss(Loss::cross_entropy, output, tokens, model->loss_share()).backward();
  CallsOf calls;
  for (const comm::TrafficEntry& entry : traffic->entries()) ++calls[entry.kind];
  return calls;
}

// Of `more` layers on top of as many.
CallsOf of_layers(int64_t more, double dropout, const test::Spread& spread,
                  const RecomputeOptions& options) {
  CallsOf calls = calls_of(2 * more, dropout, spread, options);
  for (const auto& [kind, count] : calls_of(more, dropout, spread, options))
    if ((calls[kind] -= count) == 0) calls.erase(kind);
  return calls;
}

TEST(RecomputeTraffic, RepeatsTheForwardMessagesUpToTheLastValueThatIsWanted) {
  for (const int64_t segment : {1, 2, 3})
    for (const bool dropout : {false, true}) {
      SCOPED_TRACE(segment);
      const RecomputeOptions blocks = {.what = Again::blocks, .segment = segment};
      const double rate = dropout ? 0.1 : 0;
      const int64_t skipped = dropout ? 0 : 1;
      EXPECT_EQ(of_layers(segment, rate, {.ranks = 2}, blocks),
                (CallsOf{{Kind::all_reduce, 6 * segment - skipped}}));
      EXPECT_EQ(of_layers(segment, rate, {.ranks = 2, .sequence = true}, blocks),
                (CallsOf{{Kind::all_gather, 6 * segment},
                         {Kind::reduce_scatter, 6 * segment - skipped}}));
    }
}

TEST(RecomputeTraffic, IsNotNeededForAttention) {
  const RecomputeOptions attention = {.what = Again::attention};
  EXPECT_EQ(of_layers(1, 0.1, {.ranks = 2}, attention), (CallsOf{{Kind::all_reduce, 4}}));
}

}  // namespace
}  // namespace braid::nn::recompute_traffic
