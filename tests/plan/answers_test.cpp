// SPDX-License-Identifier: BSD-3-Clause
// The whole search on small models, and the questions with one answer.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "plan/small.h"

namespace braid::plan {
namespace {

using braid::test::contains;
using braid::test::error_of;
using test::request_of;

Choice whole(int64_t gpus, int64_t micro) {
  Choice choice{.mesh = {.data = gpus, .shard = 1}, .micro_batch = micro};
  return choice;
}

int64_t peak(const Request& request, const Choice& choice) {
  return evaluate(request, choice).peak_bytes;
}

// The best of a small space by looking at every choice in it.
TEST(Search, FindsWhatLookingAtEverythingFinds) {
  Request request = request_of(test::small_vit, 2, {"train.global_batch=2"});
  request.offload = false;
  const Found found = search(request);
  ASSERT_FALSE(found.plans.empty());
  double best = 0;
  const std::vector<Choice> all = choices_of(request);
  for (const Choice& choice : all) {
    const Plan plan = evaluate(request, choice);
    if (plan.fits) best = std::max(best, plan.time.samples_per_second);
  }
  EXPECT_NEAR(found.plans.front().time.samples_per_second, best, 1e-9 * best);
  EXPECT_EQ(found.choices, static_cast<int64_t>(all.size()));
  EXPECT_GT(found.pruned, 0);
  EXPECT_GT(found.dry_runs, 0);
  EXPECT_TRUE(found.plans.front().reason.empty());
  EXPECT_FALSE(found.plans.front().time.timeline.empty());
  for (size_t i = 1; i < found.plans.size(); ++i) EXPECT_FALSE(found.plans[i].reason.empty()) << i;
}

TEST(Search, SaysTheNearestMissWhereNothingFits) {
  Request request = request_of(test::small_vit, 2, {"train.global_batch=2"});
  request.offload = false;
  request.memory = 1 << 20;
  const Found found = search(request);
  ASSERT_FALSE(found.plans.empty());
  for (const Plan& plan : found.plans) {
    EXPECT_FALSE(plan.fits);
    EXPECT_TRUE(contains(plan.reason, "does not fit: "));
    EXPECT_TRUE(contains(plan.reason, " of 1.00 MiB (by "));
    EXPECT_GE(plan.peak_bytes, found.plans.front().peak_bytes);
  }
  std::string notes;
  for (const std::string& note : found.notes) notes += note + "\n";
  EXPECT_TRUE(contains(notes, "nothing fits; the nearest miss is "));
  EXPECT_TRUE(contains(notes, "what would help: "));
}

// However short the time is: something that fits comes back, and how far from the best it can be.
TEST(Search, SaysHowMuchIsLeftWhenItsTimeIsOver) {
  Request request = request_of(test::small_vit, 2, {"train.global_batch=2"});
  const double best = search(request).plans.front().time.samples_per_second;
  request.seconds = 1e-9;
  const Found found = search(request);
  ASSERT_FALSE(found.plans.empty());
  ASSERT_TRUE(found.plans.front().fits);
  const std::string before = "none can be more than ";
  const auto note =
      std::find_if(found.notes.begin(), found.notes.end(),
                   [&](const std::string& text) { return text.find(before) != std::string::npos; });
  ASSERT_NE(note, found.notes.end());
  EXPECT_TRUE(contains(*note, "stopped after "));
  const double percent = std::stod(note->substr(note->find(before) + before.size()));
  const double rounded = 0.05;
  EXPECT_GE(found.plans.front().time.samples_per_second * (1 + (percent + rounded) / 100), best);
  // A climb begins where one would: states in pieces, blocks computed again.
  EXPECT_TRUE(std::any_of(found.plans.begin(), found.plans.end(), [](const Plan& plan) {
    return to_text(plan.choice) == "shard 2, ZeRO-3, recompute blocks, micro 1";
  }));
}

TEST(Answers, LargestMicroBatch) {
  Request request = request_of(test::small_gpt, 1);
  const auto bytes = [&](int64_t samples) { return peak(request, whole(1, samples)); };
  int64_t most = 5;  // the allocator takes pieces of 2 MiB: some more samples may cost nothing
  while (most < 15 && bytes(most) == bytes(most + 1)) ++most;
  ASSERT_LT(bytes(most), bytes(most + 1));
  request.memory = (bytes(most) + bytes(most + 1)) / 2;
  const Answer answer = largest_micro_batch(request, whole(1, 1));
  EXPECT_EQ(answer.value, most);
  EXPECT_TRUE(contains(answer.text, std::to_string(most) + " of 16 samples of a rank at once"));
  request.memory = 0;
  EXPECT_EQ(largest_micro_batch(request, whole(1, 1)).value, 16);
  request.memory = 1 << 20;
  const Answer none = largest_micro_batch(request, whole(1, 1));
  EXPECT_EQ(none.value, 0);
  EXPECT_TRUE(contains(none.text, "not even one sample fits: "));
}

TEST(Answers, LargestSequenceAndImage) {
  Request request = request_of(test::small_gpt, 1, {"train.global_batch=2"});
  const Choice choice = whole(1, 1);
  const auto text = [](int64_t tokens) {
    const std::string length = std::to_string(tokens);
    return request_of(
        test::small_gpt, 1,
        {"train.global_batch=2", "model.sequence=" + length, "data.sequence=" + length});
  };
  request.memory = peak(text(192), choice);
  const Answer tokens = largest_sequence(request, choice);
  EXPECT_GE(tokens.value, 192);
  EXPECT_LE(peak(text(tokens.value), choice), request.memory);
  EXPECT_GT(peak(text(tokens.value + 64), choice), request.memory);
  EXPECT_TRUE(contains(tokens.text, std::to_string(tokens.value) + " tokens (in steps of 64)"));

  const auto image = [](int64_t rows) {
    const std::string edges = "[" + std::to_string(rows) + ", " + std::to_string(2 * rows) + "]";
    return request_of(test::small_vit, 1, {"train.global_batch=2", "model.image=" + edges});
  };
  Request images = image(16);
  images.memory = peak(image(64), choice);
  const int64_t rows = largest_sequence(images, choice).value;
  EXPECT_GE(rows, 64);
  EXPECT_LE(peak(image(rows), choice), images.memory);
  EXPECT_GT(peak(image(rows + 4), choice), images.memory);
  EXPECT_TRUE(
      contains(error_of([&] { largest_sequence(request_of(test::small_mlp, 1), choice); }), "mlp"));
}

TEST(Answers, FewestGpusAndCheapest) {
  Request request = request_of(test::small_mlp, 2);
  const Answer one = fewest_gpus(request);
  EXPECT_EQ(one.value, 1);
  EXPECT_TRUE(contains(one.text, "1 GPU: one GPU"));
  request.memory = 1 << 12;
  const Answer none = fewest_gpus(request);
  EXPECT_EQ(none.value, 0);
  EXPECT_TRUE(contains(none.text, "it does not fit on up to 2 GPUs; the nearest miss is "));
  request.memory = 0;
  const Answer cheap = cheapest(request, 2);
  EXPECT_EQ(cheap.value, 1);  // one GPU waits for nobody
  EXPECT_TRUE(contains(cheap.text, "GPU hours on 1 GPU"));
}

TEST(Answers, Scaling) {
  const Request request = request_of(test::small_mlp, 1);
  const Scaling curves = scaling(request, {1, 2, 3});
  ASSERT_EQ(curves.strong.size(), 3u);
  ASSERT_EQ(curves.weak.size(), 3u);
  EXPECT_DOUBLE_EQ(curves.strong.front().efficiency, 1);
  for (const ScalingPoint& point : curves.strong)
    if (curves.strong_below > 0 && point.gpus < curves.strong_below)
      EXPECT_GE(point.efficiency, 0.75);
  EXPECT_GT(curves.strong_below, 0);  // so small a model does not scale
  EXPECT_EQ(curves.weak.back().plan.options.train.global_batch, 36);
  EXPECT_TRUE(contains(error_of([&] { scaling(request, {}); }), "--scaling"));
}

TEST(Answers, EffectOfOneChange) {
  const Request request = request_of(test::small_gpt, 2, {"train.micro_batch=8"});
  const Effect effect = effect_of(request, {"memory.recompute=blocks"});
  EXPECT_EQ(effect.sets, "--set memory.recompute=blocks");
  EXPECT_LT(effect.after.peak_bytes, effect.before.peak_bytes);
  EXPECT_GT(effect.after.time.parts.recompute, 0);
  EXPECT_TRUE(contains(effect.text, "% slower); memory "));
  EXPECT_TRUE(contains(effect.text, "% less)"));
  EXPECT_TRUE(
      contains(error_of([&] { effect_of(request, {"train.zero"}); }), "--set train.zero=2"));
  EXPECT_TRUE(contains(error_of([&] { effect_of(request, {"mesh.tensor=3"}); }), "mesh"));
}

}  // namespace
}  // namespace braid::plan
