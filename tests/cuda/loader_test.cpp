// SPDX-License-Identifier: BSD-3-Clause
// Batches on the GPU: the same bits as on the CPU, in two buffers that come again.
#include <gtest/gtest.h>

#include <ATen/ops/equal.h>

#include <set>

#include "braid/data/loader.h"
#include "braid/data/make.h"
#include "braid/data/options.h"
#include "support/cuda.h"
#include "support/files.h"

namespace braid {
namespace {

using LoaderOnGpu = OnGpu;

std::shared_ptr<const data::Source> frames_in(const std::filesystem::path& dir) {
  data::make_weather(dir, {.channels = 3, .height = 8, .width = 16, .frames = 24});
  data::DataOptions options;
  options.kind = data::Kind::frames;
  options.train = (dir / "train").string();
  options.means = (dir / "stats/global_means.npy").string();
  options.stds = (dir / "stats/global_stds.npy").string();
  options.size = {6, 12};
  return data::open_source(options, data::Split::train, 1);
}

TEST_F(LoaderOnGpu, NormalisesAsTheCpuDoes) {
  const test::TempDir dir;
  const auto source = frames_in(dir / "weather");
  data::LoaderOptions options{.global_batch = 5, .workers = 2, .seed = 5, .tail = data::Tail::keep};
  data::Loader host(source, options);
  options.device = 0;
  data::Loader device(source, options);
  for (int epoch = 0; epoch < 3; ++epoch) {
    while (const auto expected = host.next()) {
      const auto batch = device.next();
      ASSERT_TRUE(batch.has_value());
      EXPECT_TRUE(at::equal(batch->input.to(at::kCPU), expected->input));
      EXPECT_TRUE(at::equal(batch->target.to(at::kCPU), expected->target));
    }
    EXPECT_FALSE(device.next().has_value());
  }
}

TEST_F(LoaderOnGpu, UsesTwoBuffersInTurn) {
  const test::TempDir dir;
  data::Loader loader(frames_in(dir / "weather"),
                      {.global_batch = 4, .workers = 2, .seed = 5, .device = 0});
  std::set<const void*> places;
  for (int step = 0; step < 20; ++step)
    if (const auto batch = loader.next()) {
      EXPECT_TRUE(batch->fixed);
      places.insert(batch->input.const_data_ptr());
    }
  EXPECT_EQ(places.size(), 2U);
}

TEST_F(LoaderOnGpu, LeavesABatchAloneThatSomebodyHolds) {
  const test::TempDir dir;
  data::Loader loader(frames_in(dir / "weather"),
                      {.global_batch = 4, .workers = 2, .seed = 5, .device = 0});
  const auto first = loader.next();
  const at::Tensor copy = first->input.clone();
  for (int step = 0; step < 4; ++step) loader.next();
  EXPECT_TRUE(at::equal(first->input, copy));
}

}  // namespace
}  // namespace braid
