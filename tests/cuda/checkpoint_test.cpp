// SPDX-License-Identifier: BSD-3-Clause
// Checkpoints of tensors on a GPU: copied through page-locked memory, read back to either place.
#include <gtest/gtest.h>

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/randn.h>

#include "braid/checkpoint/store.h"
#include "support/cuda.h"
#include "support/files.h"

namespace braid {
namespace {

TEST_F(OnGpu, CheckpointsComeBackBitEqual) {
  const test::TempDir dir;
  State state, wanted, host;
  state.tensors["model/w"] = at::randn({300, 1000}).to(gpu(), at::kBFloat16);
  state.tensors["optimizer/w/master"] = at::randn({300, 1000}).to(gpu());
  state.set("optimizer/w/exp_avg", at::randn({300'000}).to(gpu()), {.whole = {300, 1000}});
  checkpoint::Store store(dir / "ck");
  for (int64_t step = 1; step <= 2; ++step) {  // the second one uses the memory of the first
    const at::Tensor before = state.tensors["model/w"].clone();
    store.save({.step = step, .state = state});
    state.tensors["model/w"].add_(1);  // does not reach the copy
    store.wait();
    wanted = state;
    for (auto& [name, tensor] : wanted.tensors) tensor = at::empty_like(tensor).fill_(-1);
    ASSERT_TRUE(store.newest([&](const checkpoint::Reader& reader) { reader.fill(wanted); }));
    EXPECT_TRUE(wanted.tensors["model/w"].equal(before));
    EXPECT_TRUE(wanted.tensors["optimizer/w/exp_avg"].equal(state.tensors["optimizer/w/exp_avg"]));
  }
  host.tensors["model/w"] = at::empty({300, 1000});  // wider: from the master
  store.newest([&](const checkpoint::Reader& reader) { reader.fill(host); });
  EXPECT_TRUE(host.tensors["model/w"].equal(state.tensors["optimizer/w/master"].to(at::kCPU)));
}

}  // namespace
}  // namespace braid
