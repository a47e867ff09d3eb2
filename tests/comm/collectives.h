// SPDX-License-Identifier: BSD-3-Clause
// Every collective of a group, or of a backend asked directly, against what one process computes
// from all inputs. `like` says dtype and device.
#pragma once
#include <ATen/ops/stack.h>
#include <gtest/gtest.h>

#include "braid/comm/group.h"
#include "comm/values.h"

namespace braid::test {

inline at::ScalarType dtype_of(const at::TensorOptions& like) {
  return like.dtype().toScalarType();
}

template <class World>
void check_all_reduce(const World& world, const at::TensorOptions& like) {
  const at::Tensor all = at::stack(values_of_ranks(world.size(), {3, 5}, like));
  const auto result = [&](comm::Op op) {
    const at::Tensor mine = values(world.rank(), {3, 5}, like);
    world.all_reduce(mine, op).wait();
    return mine;
  };
  EXPECT_TRUE(result(comm::Op::sum).equal(all.sum(0, false, dtype_of(like))));
  EXPECT_TRUE(result(comm::Op::max).equal(all.amax(0)));
  EXPECT_TRUE(result(comm::Op::min).equal(all.amin(0)));
  const at::ScalarType dtype = dtype_of(like);
  if (at::isFloatingType(dtype)) {
    const double close = dtype == at::kBFloat16 ? 0.1 : dtype == at::kFloat ? 1e-5 : 1e-12;
    EXPECT_TRUE(result(comm::Op::mean).allclose(all.mean(0), close, close));
  }
}

template <class World>
void check_reduce_scatter(const World& world, const at::TensorOptions& like) {
  const int64_t n = world.size(), r = world.rank();
  const at::Tensor all = at::stack(values_of_ranks(world.size(), {n, 2, 3}, like));
  const at::Tensor mine = values(world.rank(), {n, 2, 3}, like), share = at::zeros({2, 3}, like);
  world.reduce_scatter(share, mine).wait();
  EXPECT_TRUE(share.equal(all.sum(0, false, dtype_of(like))[r]));
  world.reduce_scatter(share, mine, comm::Op::max).wait();
  EXPECT_TRUE(share.equal(all.amax(0)[r]));
  world.reduce_scatter(share, mine, comm::Op::min).wait();
  EXPECT_TRUE(share.equal(all.amin(0)[r]));
  EXPECT_TRUE(mine.equal(values(world.rank(), {n, 2, 3}, like))) << "the input was changed";
  if (dtype_of(like) == at::kDouble) {
    world.reduce_scatter(share, mine, comm::Op::mean).wait();
    EXPECT_TRUE(share.allclose(all.mean(0)[r], 1e-12, 1e-12));
    EXPECT_TRUE(mine.equal(values(world.rank(), {n, 2, 3}, like))) << "the input was changed";
  }
}

// Rank i holds i rows: the first one none.
inline std::vector<int64_t> stairs(int size) {
  std::vector<int64_t> counts;
  for (int rank = 0; rank < size; ++rank) counts.push_back(rank);
  return counts;
}

template <class World>
void check_gathers(const World& world, const at::TensorOptions& like) {
  const int n = world.size(), r = world.rank();
  const at::Tensor whole = at::zeros({n * 2, 3}, like);
  world.all_gather(whole, values(r, {2, 3}, like)).wait();
  EXPECT_TRUE(whole.equal(at::cat(values_of_ranks(n, {2, 3}, like))));

  const std::vector<int64_t> counts = stairs(n);
  const int64_t rows = n * (n - 1) / 2;
  std::vector<at::Tensor> shares;
  for (int i = 0; i < n; ++i) shares.push_back(values(i, {i, 3}, like));
  const at::Tensor uneven = at::zeros({rows, 3}, like);
  world.all_gather(uneven, shares[static_cast<size_t>(r)], counts).wait();
  EXPECT_TRUE(uneven.equal(at::cat(shares)));

  const at::Tensor all =
      at::stack(values_of_ranks(n, {rows, 3}, like)).sum(0, false, dtype_of(like));
  const at::Tensor share = at::zeros({r, 3}, like);
  world.reduce_scatter(share, values(r, {rows, 3}, like), comm::Op::sum, counts).wait();
  EXPECT_TRUE(share.equal(all.narrow(0, r * (r - 1) / 2, r)));
}

template <class World>
void check_all_to_all(const World& world, const at::TensorOptions& like) {
  const int n = world.size(), r = world.rank();
  std::vector<at::Tensor> from, uneven_from;
  for (int i = 0; i < n; ++i) from.push_back(values(i, {n, 2}, like).narrow(0, r, 1));
  const at::Tensor out = at::zeros({n, 2}, like);
  world.all_to_all(out, values(r, {n, 2}, like)).wait();
  EXPECT_TRUE(out.equal(at::cat(from)));

  // Rank i gives j rows to rank j, so rank r takes r rows from each.
  const int64_t rows = n * (n - 1) / 2;
  for (int i = 0; i < n; ++i)
    uneven_from.push_back(values(i, {rows, 2}, like).narrow(0, r * (r - 1) / 2, r));
  const at::Tensor uneven = at::zeros({n * r, 2}, like);
  world
      .all_to_all(uneven, values(r, {rows, 2}, like),
                  std::vector<int64_t>(static_cast<size_t>(n), r), stairs(n))
      .wait();
  EXPECT_TRUE(uneven.equal(at::cat(uneven_from)));
}

template <class World>
void check_messages(const World& world, const at::TensorOptions& like) {
  const int n = world.size(), r = world.rank();
  for (int root = 0; root < n; ++root) {
    const at::Tensor mine = values(r, {4}, like);
    world.broadcast(mine, root).wait();
    EXPECT_TRUE(mine.equal(values(root, {4}, like)));
  }
  if (n > 1) {  // round the ring, two messages under way on one tag and one on another
    const int next = (r + 1) % n, before = (r + n - 1) % n;
    const at::Tensor first = at::zeros({4}, like), second = at::zeros({2}, like),
                     third = at::zeros({3}, like);
    auto a = world.recv(first, before), b = world.recv(second, before);
    auto c = world.recv(third, before, 1);
    auto x = world.send(values(r, {4}, like), next), y = world.send(values(r, {2}, like), next);
    auto z = world.send(values(r, {3}, like), next, 1);
    for (auto* pending : {&b, &a, &c, &x, &y, &z}) pending->wait();
    EXPECT_TRUE(first.equal(values(before, {4}, like)));
    EXPECT_TRUE(second.equal(values(before, {2}, like)));
    EXPECT_TRUE(third.equal(values(before, {3}, like)));
  }
  world.barrier().wait();
}

template <class World>
void check_everything(const World& world, at::Device device = at::kCPU) {
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat, at::kBFloat16, at::kLong}) {
    SCOPED_TRACE(c10::toString(dtype));
    const at::TensorOptions like = at::TensorOptions(dtype).device(device);
    check_all_reduce(world, like);
    check_reduce_scatter(world, like);
    check_gathers(world, like);
    check_all_to_all(world, like);
    check_messages(world, like);
  }
}

}  // namespace braid::test
