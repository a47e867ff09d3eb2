// SPDX-License-Identifier: BSD-3-Clause
// The pickles that we write, read by Python.
#include "report/pickle.h"

#include <gtest/gtest.h>

#include <limits>

#include "report/memory_samples.h"

namespace braid::test {
namespace {

using nlohmann::json;

TEST(Pickle, PythonReadsEveryKindOfValue) {
  report::Pickle pickle;
  pickle.begin_dict();
  pickle.text("none").none();
  pickle.text("flags").begin_list().boolean(true).next().boolean(false).next().end_list();
  pickle.text("real").real(-0.1);
  pickle.text("pair").integer(1).text("two").pair();
  pickle.text("empty").begin_list().end_list();
  pickle.text("inner").begin_dict().text("Größe").integer(7).end_dict();
  pickle.text("long").text(std::string(1000, 'x'));
  const json read = read_pickle(pickle.end_dict().finish());
  EXPECT_EQ(read["protocol"], 4);
  EXPECT_EQ(read["value"], (json{{"none", nullptr},
                                 {"flags", {true, false}},
                                 {"real", -0.1},
                                 {"pair", {1, "two"}},
                                 {"empty", json::array()},
                                 {"inner", {{"Größe", 7}}},
                                 {"long", std::string(1000, 'x')}}));
}

TEST(Pickle, IntegersOfEveryLengthAndSign) {
  std::vector<int64_t> values = {0, 1, -1, std::numeric_limits<int64_t>::max(),
                                 std::numeric_limits<int64_t>::min()};
  for (int bit = 7; bit < 63; ++bit)
    for (const int64_t near : {-1, 0, 1}) {
      values.push_back((int64_t{1} << bit) + near);
      values.push_back(-(int64_t{1} << bit) + near);
    }
  report::Pickle pickle;
  pickle.begin_list();
  for (const int64_t value : values) pickle.integer(value).next();
  EXPECT_EQ(read_pickle(pickle.end_list().finish())["value"], json(values));
}

TEST(Pickle, LongListsAreWrittenInPartsAndTextsOnce) {
  report::Pickle pickle;
  pickle.begin_list();
  for (int i = 0; i < 2500; ++i) pickle.text("name " + std::to_string(i % 400)).next();
  const std::string bytes = pickle.end_list().finish();
  EXPECT_LT(bytes.size(), 400 * 11 + 2100 * 5 + 100U);
  const json list = read_pickle(bytes)["value"];
  ASSERT_EQ(list.size(), 2500U);
  EXPECT_EQ(list[2499], "name 99");
  EXPECT_EQ(list[399], "name 399");
}

TEST(Pickle, AValueCanBeNamedAgain) {
  report::Pickle pickle;
  pickle.begin_list();
  pickle.begin_list().integer(1).next().end_list();
  const uint32_t inner = pickle.remember();
  pickle.next().again(inner).next();
  EXPECT_EQ(read_pickle(pickle.end_list().finish())["value"], (json{{1}, {1}}));
}

}  // namespace
}  // namespace braid::test
