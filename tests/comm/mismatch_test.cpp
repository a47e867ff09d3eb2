// SPDX-License-Identifier: BSD-3-Clause
#include "braid/comm/mismatch.h"

#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <functional>

#include "braid/comm/group.h"
#include "support/expect.h"
#include "support/ranks.h"

namespace braid {
namespace {

// What each of three ranks is told when it runs `body` in a checked group.
std::vector<std::string> told(const std::function<void(const comm::Group&)>& body,
                              double timeout_seconds = 10) {
  const comm::Store store = comm::Store::in_memory();
  std::vector<std::string> texts(3);
  test::on_ranks(3, [&](comm::Group world) {
    const comm::Group group(
        comm::checked(world.backend(), store, {.timeout_seconds = timeout_seconds}));
    try {
      body(group);
    } catch (const CommError& error) {
      texts[static_cast<size_t>(world.rank())] = explain(error.complaint());
    }
  });
  return texts;
}

void expect_all_told(const std::vector<std::string>& texts, const std::string& part) {
  for (const std::string& text : texts) EXPECT_TRUE(test::contains(text, part));
}

TEST(Mismatch, NamesTheRankWithAnotherShapeAndBothCalls) {
  const auto texts = told([](const comm::Group& group) {
    group.barrier().wait();
    group.all_reduce(at::zeros({group.rank() == 2 ? 3 : 4})).wait();
  });
  expect_all_told(texts,
                  "rank 2 of group world differs in call 1: all_reduce sum Float [3], others "
                  "all_reduce sum Float [4]");
}

TEST(Mismatch, NamesAnotherKindOperationDtypeAndRoot) {
  expect_all_told(
      told([](const comm::Group& group) {
        const at::Tensor tensor = at::zeros({2});
        if (group.rank() == 1) {
          group.broadcast(tensor, 0).wait();
        } else {
          group.all_reduce(tensor).wait();
        }
      }),
      "rank 1 of group world differs in call 0: broadcast Float [2] from rank 0, others "
      "all_reduce sum Float [2]");
  expect_all_told(
      told([](const comm::Group& group) {
        group.all_reduce(at::zeros({2}), group.rank() == 0 ? comm::Op::mean : comm::Op::sum).wait();
      }),
      "rank 0 of group world differs in call 0: all_reduce mean");
  expect_all_told(
      told([](const comm::Group& group) {
        group.all_reduce(at::zeros({2}, group.rank() == 1 ? at::kDouble : at::kFloat)).wait();
      }),
      "rank 1 of group world differs in call 0: all_reduce sum Double [2]");
  expect_all_told(told([](const comm::Group& group) {
                    group.broadcast(at::zeros({2}), group.rank() == 1 ? 2 : 0).wait();
                  }),
                  "from rank 2, others broadcast Float [2] from rank 0");
}

TEST(Mismatch, ComparesSharesOfSeveralSizes) {
  expect_all_told(
      told([](const comm::Group& group) {
        const int64_t last = group.rank() == 0 ? 4 : 3;
        const std::vector<int64_t> counts = {1, 2, last};
        const int64_t mine = counts[static_cast<size_t>(group.rank())];
        group.all_gather(at::zeros({3 + last, 2}), at::zeros({mine, 2}), counts).wait();
      }),
      "rank 0 of group world differs in call 0: all_gather Float [7, 2] in shares [1, 2, 4]");
  expect_all_told(
      told([](const comm::Group& group) {
        const std::vector<int64_t> ones = {1, 1, 1}, odd = {1, 1, 2};
        const bool wrong = group.rank() == 1;
        group.all_to_all(at::zeros({3}), at::zeros({wrong ? 4 : 3}), ones, wrong ? odd : ones)
            .wait();
      }),
      "all_to_all gives 2 rows to rank 2, which takes 1");
}

TEST(Mismatch, NamesTheRankThatDoesNotComeAndWhatItDidLast) {
  const auto texts = told(
      [](const comm::Group& group) {
        group.broadcast(at::zeros({5}), 0).wait();
        if (group.rank() != 1) group.all_reduce(at::zeros({4})).wait();
      },
      1);
  for (const int rank : {0, 2}) {
    const std::string& text = texts[static_cast<size_t>(rank)];
    EXPECT_TRUE(test::contains(text, "rank 1 of group world did not come to call 1 within 1 s"));
    EXPECT_TRUE(test::contains(text, "rank 1 made call 0: broadcast Float [5] from rank 0 last"));
    EXPECT_TRUE(test::contains(text, "is there with call 1: all_reduce sum Float [4]"));
  }
  EXPECT_EQ(texts[1], "");
}

TEST(Mismatch, ComparesBothEndsOfAMessage) {
  auto texts = told([](const comm::Group& group) {
    if (group.rank() == 0) group.send(at::zeros({3}), 1, 4).wait();
    if (group.rank() == 1) group.recv(at::zeros({5}), 0, 4).wait();
  });
  for (const int rank : {0, 1})
    EXPECT_TRUE(
        test::contains(texts[static_cast<size_t>(rank)],
                       "rank 0 of group world sends Float [3], tag 4; rank 1 receives Float [5]"));
  texts = told(
      [](const comm::Group& group) {
        if (group.rank() == 1) group.recv(at::zeros({5}), 0, 4).wait();
        if (group.rank() == 0) group.send(at::zeros({5}), 2).wait();
      },
      1);
  EXPECT_TRUE(
      test::contains(texts[1], "rank 0 of group world did not come to its end of a message"));
  EXPECT_TRUE(test::contains(texts[1], "rank 1 is there with recv Float [5] from rank 0, tag 4"));
  EXPECT_TRUE(test::contains(texts[0], "rank 0 is there with send Float [5] to rank 2"));
}

TEST(Mismatch, NamesTheOthersWhenOneRankCallsOnceMore) {
  const auto texts = told(
      [](const comm::Group& group) {
        group.all_reduce(at::zeros({4})).wait();
        if (group.rank() == 0) group.all_reduce(at::zeros({4})).wait();
      },
      0.5);
  EXPECT_TRUE(test::contains(texts[0], "rank 1, 2 of group world did not come to call 1"));
  EXPECT_TRUE(test::contains(texts[0], "rank 2 made call 0: all_reduce sum Float [4] last"));
}

TEST(Mismatch, IsSwitchedByOneOption) {
  const std::shared_ptr<comm::Backend> plain = comm::dry(0, 2);
  const comm::Store store = comm::Store::in_memory();
  EXPECT_EQ(comm::checked(plain, store, {.on = false}), plain);
  EXPECT_NE(comm::checked(plain, store), plain);
  EXPECT_TRUE(comm::wants_checks("DETAIL") && comm::wants_checks("detail"));
  EXPECT_FALSE(comm::wants_checks("") || comm::wants_checks("OFF") || comm::wants_checks("INFO"));
  EXPECT_TRUE(test::contains(test::error_of([] { comm::wants_checks("all"); }),
                             "TORCH_DISTRIBUTED_DEBUG is \"all\""));
}

TEST(Mismatch, LooksAtSplitGroupsToo) {
  const auto texts = told([](const comm::Group& group) {
    if (group.rank() == 0) return;
    const comm::Group pair = group.split({1, 2}, "pair");
    pair.all_reduce(at::zeros({group.rank()})).wait();
  });
  EXPECT_EQ(texts[0], "");
  EXPECT_TRUE(test::contains(texts[1], "rank 1 of group pair differs in call 0"));
  EXPECT_TRUE(test::contains(texts[2], "rank 1 of group pair differs in call 0"));
}

}  // namespace
}  // namespace braid
