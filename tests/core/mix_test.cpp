// SPDX-License-Identifier: BSD-3-Clause
// The numbers behind keys and masks never change: checkpoints and runs lean on them.
#include "braid/core/mix.h"

#include <gtest/gtest.h>

#include <string>

#include "braid/core/rng.h"

namespace braid {
namespace {

// The published first words of SplitMix64 from seed 1234567.
static_assert(mix_at(1234567, 0) == 6457827717110365317U);
static_assert(mix_at(1234567, 1) == 3203168211198807973U);
static_assert(mix_at(1234567, 2) == 9817491932198370423U);
static_assert(mix_at(1234567, 3) == 4593380528125082431U);
static_assert(mix_at(1234567, 4) == 16408922859458223821U);

TEST(Mix, KeysStayWhatTheyWere) {
  const RandomKey key = random_key(1, "mask");
  EXPECT_EQ(key.bits, 0x2f52d90a313d9a8eU);
  EXPECT_EQ(key.with(7).bits, 0xabc2cf2caa09009dU);
  EXPECT_EQ(key.with("crop").bits, 0xfe4404472616c7a6U);
}

TEST(Mix, MasksStayWhatTheyWere) {
  std::string kept;
  for (uint64_t i = 100; i < 132; ++i)
    kept += mix_keeps(random_key(1, "mask").bits, i, mix_threshold(0.3)) ? '1' : '0';
  EXPECT_EQ(kept, "00001100111111100111101001110010");
}

TEST(Mix, DropsTheShareAskedFor) {
  for (const double rate : {0.0, 0.1, 0.5, 0.9, 1.0}) {
    int dropped = 0;
    for (uint64_t i = 0; i < 10000; ++i) dropped += mix_keeps(3, i, mix_threshold(rate)) ? 0 : 1;
    EXPECT_NEAR(dropped, 10000 * rate, 250 * (rate > 0 && rate < 1)) << rate;
  }
}

}  // namespace
}  // namespace braid
