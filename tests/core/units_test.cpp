// SPDX-License-Identifier: BSD-3-Clause
#include "braid/core/units.h"

#include <gtest/gtest.h>

#include <limits>

namespace braid {
namespace {

TEST(Units, ReadsIntegersExactly) {
  EXPECT_EQ(parse_integer("30000"), 30000);
  EXPECT_EQ(parse_integer("30_000"), 30000);
  EXPECT_EQ(parse_integer("3e4"), 30000);
  EXPECT_EQ(parse_integer("+7"), 7);
  EXPECT_EQ(parse_integer("-1"), -1);
  EXPECT_EQ(parse_integer("-3E+2"), -300);
  EXPECT_EQ(parse_integer("1.5e3"), 1500);
  EXPECT_EQ(parse_integer("0e5"), 0);
  EXPECT_EQ(parse_integer("2.0"), 2);
  EXPECT_EQ(parse_integer("9007199254740993e0"), 9007199254740993);  // a double would give ...992
  EXPECT_EQ(parse_integer("9223372036854775807"), std::numeric_limits<int64_t>::max());
}

TEST(Units, RefusesWhatIsNoInteger) {
  for (const char* text :
       {"",        "-",   "abc",   "2.5",  "1e-3", "3e",   "e3",   "1__0",
        "_1",      "1_",  "1 2",   "12 B", "+-3",  "0x10", "1e19", "9223372036854775808",
        "1e99999", "--3", "1.2.3", "inf"})
    EXPECT_EQ(parse_integer(text), std::nullopt) << text;
}

TEST(Units, ReadsNumbers) {
  EXPECT_EQ(parse_number("5e-4"), 5e-4);
  EXPECT_EQ(parse_number("7.07e-4"), 7.07e-4);
  EXPECT_EQ(parse_number("1_000.5"), 1000.5);
  EXPECT_EQ(parse_number(".5"), 0.5);
  EXPECT_EQ(parse_number("-3"), -3.0);
  EXPECT_EQ(parse_number("+2"), 2.0);
  for (const char* text : {"", ".", "nan", "inf", ".inf", "-inf", "1e999", "1,5", "0.1x", "1e"})
    EXPECT_EQ(parse_number(text), std::nullopt) << text;
}

TEST(Units, ReadsBytes) {
  EXPECT_EQ(parse_bytes("12"), Bytes{12});
  EXPECT_EQ(parse_bytes("12 B"), Bytes{12});
  EXPECT_EQ(parse_bytes("25 MB"), Bytes{25'000'000});
  EXPECT_EQ(parse_bytes("25MB"), Bytes{25'000'000});
  EXPECT_EQ(parse_bytes("16 GiB"), Bytes{17179869184});
  EXPECT_EQ(parse_bytes("1.5 KiB"), Bytes{1536});
  EXPECT_EQ(parse_bytes("2_000 kB"), Bytes{2'000'000});
  EXPECT_EQ(parse_bytes("1e9"), Bytes{1'000'000'000});
  for (const char* text : {"", "GiB", "-1", "-1 MB", "1.5 B", "16 G", "16 Mb", "16 gib", "9e18 GiB",
                           "1 MB 2 kB", "x MB"})
    EXPECT_EQ(parse_bytes(text), std::nullopt) << text;
}

TEST(Units, ReadsTimes) {
  EXPECT_EQ(parse_seconds("90"), Seconds{90});
  EXPECT_EQ(parse_seconds("90s"), Seconds{90});
  EXPECT_EQ(parse_seconds("0.25 s"), Seconds{0.25});
  EXPECT_EQ(parse_seconds("5m"), Seconds{300});
  EXPECT_EQ(parse_seconds("1h30m"), Seconds{5400});
  EXPECT_EQ(parse_seconds("1h 30m"), Seconds{5400});
  EXPECT_EQ(parse_seconds("2d"), Seconds{172800});
  EXPECT_EQ(parse_seconds("1.5h"), Seconds{5400});
  EXPECT_EQ(parse_seconds("500ms"), Seconds{0.5});
  for (const char* text : {"", "h", "-5m", "30m1h", "5m5m", "5 x", "1:30", "5m 3", "m5", "1h30"})
    EXPECT_EQ(parse_seconds(text), std::nullopt) << text;
}

TEST(Units, PrintsBytes) {
  EXPECT_EQ(to_text(Bytes{0}), "0 B");
  EXPECT_EQ(to_text(Bytes{1023}), "1023 B");
  EXPECT_EQ(to_text(Bytes{1536}), "1.50 KiB");
  EXPECT_EQ(to_text(Bytes{17179869184}), "16.00 GiB");
  EXPECT_EQ(to_text(Bytes{(1 << 20) - 1}), "1.00 MiB");  // not 1024.00 KiB
  EXPECT_EQ(to_text(Bytes{-1536}), "-1.50 KiB");
}

TEST(Units, PrintsTimes) {
  EXPECT_EQ(to_text(Seconds{0}), "0 s");
  EXPECT_EQ(to_text(Seconds{2.5e-5}), "25 us");
  EXPECT_EQ(to_text(Seconds{0.0123}), "12.3 ms");
  EXPECT_EQ(to_text(Seconds{0.9999}), "1 s");
  EXPECT_EQ(to_text(Seconds{4.5}), "4.5 s");
  EXPECT_EQ(to_text(Seconds{59.99}), "1m");
  EXPECT_EQ(to_text(Seconds{90}), "1m30s");
  EXPECT_EQ(to_text(Seconds{3599.9}), "1h");
  EXPECT_EQ(to_text(Seconds{5400}), "1h30m");
  EXPECT_EQ(to_text(Seconds{2 * 86400 + 3 * 3600 + 59}), "2d3h");
  EXPECT_EQ(to_text(Seconds{-90}), "-1m30s");
}

TEST(Units, ExactTextsReadBackTheSame) {
  EXPECT_EQ(exact_text(Bytes{17179869184}), "16 GiB");
  EXPECT_EQ(exact_text(Seconds{5400}), "1h30m");
  EXPECT_EQ(exact_text(5e-4), "0.0005");
  for (const int64_t count :
       {int64_t{0}, int64_t{1537}, int64_t{25'000'000}, int64_t{3} << 40, (int64_t{1} << 62) + 1})
    EXPECT_EQ(parse_bytes(exact_text(Bytes{count})), Bytes{count});
  for (const double count : {0.0, 0.1, 59.99, 61.5, 3661.0, 5400.0, 1e-7, 1e6 / 3})
    EXPECT_EQ(parse_seconds(exact_text(Seconds{count})), Seconds{count});
  for (const double number : {0.1, 1e-8, 1.0 / 3, 1e22, -2.5})
    EXPECT_EQ(parse_number(exact_text(number)), number);
}

TEST(Units, PrintsCommasAndPrefixes) {
  EXPECT_EQ(with_commas(0), "0");
  EXPECT_EQ(with_commas(999), "999");
  EXPECT_EQ(with_commas(1000), "1,000");
  EXPECT_EQ(with_commas(23832960), "23,832,960");
  EXPECT_EQ(with_commas(-123456), "-123,456");
  EXPECT_EQ(with_prefix(1.45e12, "FLOP"), "1.45 TFLOP");
  EXPECT_EQ(with_prefix(512000, ""), "512 k");
  EXPECT_EQ(with_prefix(3.2e9, ""), "3.2 G");
  EXPECT_EQ(with_prefix(999.9, "B"), "1 kB");
  EXPECT_EQ(with_prefix(42, ""), "42");
  EXPECT_EQ(with_prefix(0, "B"), "0 B");
  EXPECT_EQ(with_prefix(0.0032, "s"), "3.2 ms");
  EXPECT_EQ(with_prefix(-5e6, "x"), "-5 Mx");
}

}  // namespace
}  // namespace braid
