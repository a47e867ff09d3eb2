// SPDX-License-Identifier: BSD-3-Clause
#include "braid/core/dry.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>

#include "braid/comm/group.h"
#include "comm/values.h"
#include "support/expect.h"
#include "support/ranks.h"

namespace braid {
namespace {

// Keys of a CPU tensor and no data; here no operator is ready for it, so that the test sees one
// that is called.
at::Tensor dry_tensor(at::IntArrayRef sizes) {
  const c10::Storage nothing(c10::Storage::use_byte_size_t(), 4 * c10::multiply_integers(sizes),
                             c10::DataPtr(nullptr, c10::kCPU), nullptr, false);
  auto impl = c10::make_intrusive<c10::TensorImpl>(
      c10::Storage(nothing), c10::DispatchKeySet({c10::DispatchKey::CPU, c10::DispatchKey::Fake}),
      caffe2::TypeMeta::Make<float>());
  impl->set_sizes_contiguous(sizes);
  return at::Tensor(std::move(impl));
}

TEST(Dry, StandsForAnyWorldWithoutANetwork) {
  constexpr int64_t n = 16384;
  const comm::Group world(comm::dry(777, n));
  EXPECT_EQ(world.rank(), 777);
  EXPECT_EQ(world.size(), n);
  const at::Tensor share = dry_tensor({8}), whole = dry_tensor({8 * n});
  ASSERT_TRUE(is_dry(share));
  world.all_gather(whole, share).wait();
  world.reduce_scatter(share, whole).wait();
  world.all_reduce(whole, comm::Op::max).wait();
  world.broadcast(whole, 3).wait();
  world.all_to_all(whole, dry_tensor({8 * n})).wait();
  world.send(share, 778).wait();
  world.recv(share, 776).wait();
  world.barrier().wait();
  const comm::Group pair = world.split({778, 777}, "pair");
  EXPECT_EQ(pair.rank(), 1);
  EXPECT_EQ(pair.ranks(), (std::vector{778, 777}));
  pair.all_reduce(share).wait();
}

TEST(Dry, ChecksShapes) {
  const comm::Group world(comm::dry(0, 16384));
  const std::string text =
      test::error_of([&] { world.all_gather(dry_tensor({100}), dry_tensor({8})).wait(); });
  EXPECT_TRUE(test::contains(text, "the whole has 100 elements, not 16384 ranks times 8"));
}

TEST(Dry, MetaTensorsPassToo) {
  const comm::Group world(comm::dry(0, 4));
  const at::Tensor meta = at::empty({8}, at::TensorOptions().device(at::kMeta));
  world.all_reduce(meta, comm::Op::mean).wait();
}

// What every collective leaves in real tensors, when all ranks give the same.
std::vector<at::Tensor> outcomes(const comm::Group& world) {
  const int n = world.size();
  const at::Tensor sum = test::values(0, {5}), mean = test::values(1, {4}),
                   largest = test::values(2, {3});
  const at::Tensor scattered = at::zeros({2}), gathered = at::zeros({2 * n}),
                   root = test::values(3, {2});
  world.all_reduce(sum).wait();
  world.all_reduce(mean, comm::Op::mean).wait();
  world.all_reduce(largest, comm::Op::max).wait();
  world.reduce_scatter(scattered, test::values(4, {2 * n})).wait();
  world.all_gather(gathered, test::values(5, {2})).wait();
  world.broadcast(root, n - 1).wait();
  const at::Tensor exchanged = at::zeros({n}), uneven = at::zeros({6});
  world.all_to_all(exchanged, test::values(6, {n})).wait();
  const at::Tensor share = at::zeros({world.rank() == 1 ? 2 : 1});
  world.reduce_scatter(share, test::values(7, {n + 1}), comm::Op::min, {1, 2, 1, 1}).wait();
  return {sum, mean, largest, scattered, gathered, root, exchanged, share};
}

TEST(Dry, RealTensorsGetWhatEqualRanksWouldGive) {
  test::on_ranks(4, [](comm::Group world) {
    const std::vector<at::Tensor> real = outcomes(world);
    const std::vector<at::Tensor> dry = outcomes(comm::Group(comm::dry(world.rank(), 4)));
    for (size_t i = 0; i < real.size(); ++i)
      EXPECT_TRUE(dry[i].allclose(real[i])) << i << ": " << dry[i] << real[i];
  });
}

}  // namespace
}  // namespace braid
