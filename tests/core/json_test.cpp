// SPDX-License-Identifier: BSD-3-Clause
#include "core/json.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "braid/core/regular_file.h"
#include "support/expect.h"
#include "support/files.h"

namespace braid {
namespace {

using nlohmann::json;

std::string fault_in(const std::function<void()>& body) {
  try {
    body();
  } catch (const std::exception& error) {
    return json_fault(error);
  }
  return "";
}

TEST(Json, DepthIsBounded) {
  const auto nested = [](size_t depth) {
    return "{\"[[\\\"[[\":" + std::string(depth - 1, '[') + std::string(depth - 1, ']') + "}";
  };
  EXPECT_TRUE(parse_json(nested(64)).is_object());
  EXPECT_EQ(fault_in([&] { parse_json(nested(65)); }),
            "its JSON is nested 65 levels deep, at most 64 are read");
  EXPECT_EQ(fault_in([&] { parse_json(std::string(1'000'000, '[')); }),
            "its JSON is nested 1000000 levels deep, at most 64 are read");
}

TEST(Json, KeysMayHaveToBeUnique) {
  const std::string twice = R"({"a": {"b": 1}, "c": {"b": 1, "b": 2}})";
  EXPECT_EQ(parse_json(twice)["c"]["b"], 2);
  EXPECT_EQ(fault_in([&] { parse_json(twice, JsonKeys::unique); }), "\"b\" occurs twice");
  EXPECT_EQ(parse_json(R"({"a": {"b": 1}, "c": {"b": 1}})", JsonKeys::unique).size(), 2u);
}

TEST(Json, IntegersAreIntegersOf64Bits) {
  EXPECT_EQ(integer_of(json(-7), "x"), -7);
  for (const char* text : {"1.0", "1e300", "9223372036854775808", "true", "null", "\"7\"", "[7]"})
    EXPECT_TRUE(test::contains(fault_in([&] { integer_of(json::parse(text), "x"); }),
                               "a 64-bit integer is needed"))
        << text;
}

TEST(Json, FaultsAreToldInWords) {
  EXPECT_EQ(fault_in([] { return json::parse("{\"a\": x}"); }),
            "it is not JSON (line 1, column 7)");
  EXPECT_EQ(fault_in([] { json(3).get<std::string>(); }), "type must be string, but is number");
  EXPECT_EQ(fault_in([] { json::object().at("x"); }), "key 'x' not found");
  EXPECT_EQ(fault_in([] { json(3).at("x"); }),
            "an object or a list is needed where it has: number");
}

TEST(RegularFile, NothingElseIsRead) {
  const test::TempDir dir;
  std::ofstream(dir / "a") << std::string(10'000, 'a');
  EXPECT_EQ(read_regular(dir / "a"), std::string(10'000, 'a'));
  ASSERT_EQ(mkfifo((dir / "pipe").c_str(), 0600), 0);
  EXPECT_TRUE(test::contains(test::error_of([&] { read_regular(dir / "pipe"); }),
                             "pipe: it is a named pipe"));
  EXPECT_TRUE(test::contains(test::error_of([&] { read_regular(dir.path()); }), "it is a folder"));
  EXPECT_TRUE(test::contains(test::error_of([] { read_regular("/dev/zero"); }), "it is a device"));
  EXPECT_TRUE(test::contains(test::error_of([&] { read_regular(dir / "none"); }), "No such file"));
  refuse_irregular(dir / "none");
}

}  // namespace
}  // namespace braid
