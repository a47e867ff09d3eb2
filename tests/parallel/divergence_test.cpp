// SPDX-License-Identifier: BSD-3-Clause
// A replica that goes its own way is found and named.
#include "braid/parallel/divergence.h"

#include <gtest/gtest.h>

#include <chrono>
#include <iostream>
#include <set>

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include "braid/comm/counting.h"
#include "parallel/divergence_sum.h"
#include "support/expect.h"
#include "support/ranks.h"

namespace braid::parallel {
namespace {

using test::contains;
using test::error_of;

std::vector<Param> some_params(c10::ScalarType dtype = c10::kFloat) {
  std::vector<Param> params;
  for (const auto& [name, size] :
       {std::pair{"embed.weight", 37}, {"fc.weight", 64}, {"fc.bias", 5}})
    params.push_back({name, at::arange(size, dtype).add(0.25).requires_grad_()});
  return params;
}

// Turns one bit of an element's bytes.
void flip(const at::Tensor& tensor, int64_t byte, int bit) {
  static_cast<uint8_t*>(tensor.mutable_data_ptr())[byte] ^= static_cast<uint8_t>(1 << bit);
}

using Summed = int64_t (*)(const at::Tensor&);
int64_t by_bytes(const at::Tensor& x) { return static_cast<int64_t>(host_checksum(x)); }
int64_t by_operations(const at::Tensor& x) { return device_checksum(x).item<int64_t>(); }

class Checksum : public testing::TestWithParam<Summed> {};
INSTANTIATE_TEST_SUITE_P(Kinds, Checksum, testing::Values(by_bytes, by_operations));

TEST_P(Checksum, EveryBitCountsAndItsPlace) {
  for (const auto dtype : {c10::kDouble, c10::kFloat, c10::kBFloat16, c10::kHalf, c10::kByte}) {
    const at::Tensor x = at::arange(21, dtype);
    std::set<int64_t> seen = {GetParam()(x)};
    const auto bytes = static_cast<int64_t>(x.nbytes());
    for (int64_t byte = 0; byte < bytes; ++byte)
      for (int bit = 0; bit < 8; ++bit) {
        flip(x, byte, bit);
        EXPECT_TRUE(seen.insert(GetParam()(x)).second) << dtype << " " << byte << " " << bit;
        flip(x, byte, bit);
      }
    const at::Tensor swapped = x.clone();
    swapped[3] = x[7].clone();
    swapped[7] = x[3].clone();
    EXPECT_TRUE(seen.insert(GetParam()(swapped)).second);
    EXPECT_EQ(*seen.find(GetParam()(x.clone())), GetParam()(x));
  }
}

TEST_P(Checksum, TwoFlippedSignsDoNotCancel) {
  const at::Tensor x = at::arange(1, 9, c10::kDouble);
  std::set<int64_t> seen = {GetParam()(x)};
  for (int i = 0; i < 8; ++i)
    for (int j = 0; j < i; ++j) {
      const at::Tensor y = x.clone();
      y[i].neg_();
      y[j].neg_();
      EXPECT_TRUE(seen.insert(GetParam()(y)).second) << i << " " << j;
    }
}

TEST_P(Checksum, HolesAndNothingAtAll) {
  const at::Tensor x = at::arange(12, c10::kFloat).view({3, 4});
  EXPECT_EQ(GetParam()(x.t()), GetParam()(x.t().contiguous()));
  EXPECT_NE(GetParam()(x.t()), GetParam()(x));
  EXPECT_EQ(GetParam()(at::zeros({0})), GetParam()(at::zeros({0})));
}

TEST(Divergence, AlikeReplicasSendOneSmallMessage) {
  test::on_ranks(3, [](comm::Group world) {
    const auto traffic = std::make_shared<comm::Traffic>();
    Divergence same(some_params(), comm::Group(comm::counting(world.backend(), traffic)),
                    {.every = 10});
    for (int64_t step = 1; step <= 40; ++step) same.step(step);
    EXPECT_EQ(traffic->entries().size(), 4u);
    EXPECT_EQ(traffic->bytes(comm::Kind::all_reduce), 4 * 16);
    Divergence off(some_params(), comm::Group(comm::counting(world.backend(), traffic)),
                   {.every = 0});
    for (int64_t step = 1; step <= 40; ++step) off.step(step);
    EXPECT_EQ(traffic->entries().size(), 4u);
  });
}

TEST(Divergence, NamesTheFirstParameterAndTheRanksInTheMinority) {
  for (const auto dtype : {c10::kFloat, c10::kBFloat16})
    test::on_ranks(4, [&](comm::Group world) {
      const std::vector<Param> params = some_params(dtype);
      Divergence same(params, world, {.every = 5});
      same.step(35);
      if (world.rank() == 2) {
        flip(params[1].tensor, 8, 0);  // the last bit of one element
        flip(params[2].tensor, 0, 0);
      }
      const std::string text = error_of([&] { same.step(40); });  // on every rank
      EXPECT_TRUE(contains(text,
                           "replicas differ at step 40: fc.weight on rank 2 is not what ranks "
                           "0, 1, 3 have (2 of 3 parameters; all were alike at step 35)"));
    });
}

TEST(Divergence, WithoutAMajorityTheFirstRankIsTheMeasure) {
  test::on_ranks(2, [](comm::Group world) {
    const std::vector<Param> params = some_params();
    if (world.rank() == 0) flip(params[0].tensor, 3, 7);
    const std::string text = error_of([&] { Divergence(params, world).check(7); });
    EXPECT_TRUE(contains(text,
                         "at step 7: embed.weight on rank 1 is not what rank 0 has (1 of 3 "
                         "parameters)"));
  });
}

// Ranks of a part of the world are named by their numbers in the world.
TEST(Divergence, ComparesPiecesOverReplicasOnly) {
  test::on_ranks(4, [](comm::Group world) {
    const int part = world.rank() % 2;  // 0 and 2 hold the first half, 1 and 3 the second
    const comm::Group replicas = world.split({part, part + 2}, "data");
    const at::Tensor half = at::arange(8 * part, 8 * part + 8, c10::kFloat);
    Divergence same({{"w", half, {.whole = {16}, .first = 8 * part}}}, replicas);
    same.check(1);
    if (world.rank() == 3) half[2].add_(1);
    if (part == 0) {
      same.check(2);
    } else {
      EXPECT_TRUE(contains(error_of([&] { same.check(2); }), "w on rank 3 is not what rank 1 has"));
    }
  });
}

TEST(Divergence, OptionsAreReadFromAConfig) {
  EXPECT_EQ(read_options<DivergenceOptions>(Config::parse("{every: 0}")).every, 0);
  EXPECT_EQ(DivergenceOptions().every, 100);
  error_of([] { read_options<DivergenceOptions>(Config::parse("{every: -1}")); });
}

double ns_per_mb(Summed summed, const at::Tensor& x) {
  summed(x);
  const auto begin = std::chrono::steady_clock::now();
  summed(x);
  const std::chrono::duration<double, std::nano> taken = std::chrono::steady_clock::now() - begin;
  return taken.count() / (static_cast<double>(x.nbytes()) / 1e6);
}

// Measured numbers are in docs/parallel.md; here only a ceiling that a mistake in the order of
// magnitude would break.
TEST(ChecksumCost, IsThatOfOnePassOverTheWeights) {
  const at::Tensor x = at::full({8 << 20}, 1.5, c10::kFloat);
  const double bytes = ns_per_mb(by_bytes, x), operations = ns_per_mb(by_operations, x);
  std::cout << "checksum: " << bytes << " ns per MB, by tensor operations " << operations << "\n";
  EXPECT_LT(bytes, 1e7);
  EXPECT_LT(bytes, operations);
}

}  // namespace
}  // namespace braid::parallel
