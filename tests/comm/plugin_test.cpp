// SPDX-License-Identifier: BSD-3-Clause
// What is said where a backend that is opened at run time cannot be used.
#include <gtest/gtest.h>

#include <ATen/ops/empty.h>

#include "braid/comm/mpi.h"
#include "braid/comm/nccl.h"
#include "braid/core/accelerator.h"
#include "comm/plugin.h"
#include "support/expect.h"
#include "support/ranks.h"

namespace braid {
namespace {

TEST(Plugin, ALibraryThatIsNotThereIsNamed) {
  const comm::PluginSymbol none = comm::plugin_symbol("libbraid_nothing.so", "anything");
  EXPECT_EQ(none.address, nullptr);
  EXPECT_EQ(none.reason, "libbraid_nothing.so is not there");
}

TEST(Plugin, AnotherVersionIsNamed) {
  if (const std::string reason = comm::mpi_missing(); !reason.empty()) GTEST_SKIP() << reason;
  const comm::PluginSymbol none = comm::plugin_symbol("libbraid_mpi.so", "braid_mpi_of_tomorrow");
  EXPECT_EQ(none.address, nullptr);
  EXPECT_TRUE(test::contains(none.reason, "has no braid_mpi_of_tomorrow"));
}

TEST(Plugin, NcclWithoutAGpuSaysSo) {
  if (accelerator() != nullptr) GTEST_SKIP() << "a GPU is there";
  const std::string text = test::error_of([] { (void)comm::nccl(comm::Store::in_memory(), 0, 1); });
  EXPECT_TRUE(test::contains(text, "NCCL cannot be used: " + accelerator_status().reason));
  EXPECT_TRUE(test::contains(text, "use Gloo"));
}

TEST(Plugin, GlooRefusesATensorWithoutMemory) {
  test::on_ranks(2, [](comm::Group world) {
    const at::Tensor none = at::empty({3}, at::TensorOptions(at::kFloat).device(at::kMeta));
    const std::string text = test::error_of([&] { world.all_reduce(none).wait(); });
    EXPECT_TRUE(test::contains(text, "all_reduce sum Float [3] of a tensor on meta over gloo"));
  });
}

}  // namespace
}  // namespace braid
