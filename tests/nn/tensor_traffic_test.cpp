// SPDX-License-Identifier: BSD-3-Clause
// What a layer of a model sends over the ranks of tensor, counted: the messages of a deeper model
// less those of a shallower one.
#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "braid/comm/counting.h"
#include "nn/tensor_spread.h"

namespace braid::nn::tensor_traffic {  // names of its own, also in a unity build
namespace {

using comm::Kind;

constexpr int64_t sent_batch = 2, sent_length = 12, sent_width = 24, sent_entries = 32;

struct Message {
  Kind kind;
  int64_t bytes;
  auto operator<=>(const Message&) const = default;
};
using Messages = std::map<Message, int64_t>;  // how many of each

Messages messages_of(const test::MakeModel& make, const test::Spread& spread,
                     std::string_view dtype) {
  const auto traffic = std::make_shared<comm::Traffic>();
  const comm::Group world(comm::counting(comm::dry(1, spread.ranks), traffic));
  const auto model = make(test::build_on(layout_of(spread, world), dtype));
  const at::Tensor tokens = at::zeros({sent_batch, sent_length}, at::kLong);
  const at::Tensor output = model->forward(tokens, test::training_pass);
  loss(Loss::cross_entropy, output, tokens, model->loss_share()).backward();
  Messages messages;
  for (const comm::TrafficEntry& entry : traffic->entries()) ++messages[{entry.kind, entry.bytes}];
  return messages;
}

using MakeDeep = std::function<test::MakeModel(int64_t layers)>;

Messages of_a_layer(const MakeDeep& make, const test::Spread& spread,
                    std::string_view dtype = "fp32") {
  Messages layer = messages_of(make(3), spread, dtype);
  for (const auto& [message, count] : messages_of(make(2), spread, dtype))
    if ((layer[message] -= count) == 0) layer.erase(message);
  return layer;
}

test::MakeModel gpt_with(int64_t layers) {
  return [=](const Build& build) {
    return make_gpt({.vocabulary = sent_entries,
                     .sequence = sent_length,
                     .layers = layers,
                     .heads = 4,
                     .width = sent_width,
                     .dropout = 0.1},
                    build);
  };
}

test::MakeModel llama_with(int64_t layers) {
  return [=](const Build& build) {
    return make_llama({.vocabulary = sent_entries,
                       .sequence = sent_length,
                       .layers = layers,
                       .heads = 4,
                       .kv_heads = 4,
                       .width = sent_width,
                       .hidden = 40},
                      build);
  };
}

constexpr int64_t numbers = sent_batch * sent_length * sent_width;  // b s h

TEST(TensorTraffic, FourSumsALayer) {
  for (const int ranks : {2, 4})
    for (const MakeDeep& make : {MakeDeep(gpt_with), MakeDeep(llama_with)})
      EXPECT_EQ(of_a_layer(make, {.ranks = ranks}),
                (Messages{{{Kind::all_reduce, 4 * numbers}, 4}}));
}

TEST(TensorTraffic, FourGathersAndFourScatteredSumsALayerWhereTokensAreShared) {
  for (const int ranks : {2, 4})
    for (const MakeDeep& make : {MakeDeep(gpt_with), MakeDeep(llama_with)}) {
      EXPECT_EQ(of_a_layer(make, {.ranks = ranks, .sequence = true}),
                (Messages{{{Kind::all_gather, 4 * numbers}, 4},
                          {{Kind::reduce_scatter, 4 * numbers}, 4}}));
      EXPECT_EQ(of_a_layer(make, {.ranks = ranks, .sequence = true, .regather = true}),
                (Messages{{{Kind::all_gather, 4 * numbers}, 6},
                          {{Kind::reduce_scatter, 4 * numbers}, 4}}));
    }
}

TEST(TensorTraffic, HalfPrecisionSendsHalfTheBytes) {
  for (const MakeDeep& make : {MakeDeep(gpt_with), MakeDeep(llama_with)}) {
    EXPECT_EQ(of_a_layer(make, {.ranks = 2}, "bf16"),
              (Messages{{{Kind::all_reduce, 2 * numbers}, 4}}));
    EXPECT_EQ(
        of_a_layer(make, {.ranks = 2, .sequence = true}, "bf16"),
        (Messages{{{Kind::all_gather, 2 * numbers}, 4}, {{Kind::reduce_scatter, 2 * numbers}, 4}}));
  }
}

// Three numbers a row: the largest, then the sum of exponentials and the score of the target.
TEST(TensorTraffic, CrossEntropySendsRowsAndNoScores) {
  const auto traffic = std::make_shared<comm::Traffic>();
  const comm::Group world(comm::counting(comm::dry(0, 2), traffic));
  const at::Tensor scores = at::zeros({sent_batch, sent_length, sent_entries / 2}).requires_grad_();
  const at::Tensor target = at::zeros({sent_batch, sent_length}, at::kLong);
  loss(Loss::cross_entropy, scores, target, {.vocabulary = world, .scores = sent_entries})
      .backward();
  const auto sent = traffic->entries();
  ASSERT_EQ(sent.size(), 2);
  const int64_t rows = sent_batch * sent_length;
  EXPECT_EQ(sent[0].op, comm::Op::max);
  EXPECT_EQ(sent[0].bytes, 4 * rows);
  EXPECT_EQ(sent[1].bytes, 2 * 4 * rows);
}

// Embedding and scores: a sum of b s h forward, one backward, and rows of the loss.
TEST(TensorTraffic, TheEndsOfAModelSendNoScoresEither) {
  Messages ends = messages_of(gpt_with(2), {.ranks = 2}, "fp32");
  ends[{Kind::all_reduce, 4 * numbers}] -= 2 * 4;
  const int64_t rows = sent_batch * sent_length;
  EXPECT_EQ(ends, (Messages{{{Kind::all_reduce, 4 * numbers}, 2},
                            {{Kind::all_reduce, 4 * rows}, 1},
                            {{Kind::all_reduce, 2 * 4 * rows}, 1}}));
}

}  // namespace
}  // namespace braid::nn::tensor_traffic
