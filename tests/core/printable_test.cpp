// SPDX-License-Identifier: BSD-3-Clause
// No text from a file or an argument may command the terminal of its reader.
#include "braid/core/printable.h"

#include <gtest/gtest.h>

#include "braid/core/config.h"
#include "braid/core/error.h"
#include "braid/core/log.h"
#include "support/command.h"
#include "support/expect.h"

namespace braid {
namespace {

using test::contains;

TEST(Printable, ShowsControlCharactersAsEscapes) {
  EXPECT_EQ(printable("a\x1b[31mb\x07\x7f\r\t"), "a\\x1b[31mb\\x07\\x7f\\r\\t");
  EXPECT_EQ(printable(std::string_view("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(printable("\xc2\x9b"
                      "2J"),
            "\\u009b2J");
  EXPECT_EQ(printable("naïve ━ 天\nnext\xc2"), "naïve ━ 天\nnext\xc2");
  EXPECT_EQ(printable(printable("\x1b\\")), printable("\x1b\\"));
}

TEST(Printable, MessagesAndLogHoldNoRawControlCharacters) {
  const std::string said = explain({.what = "unknown key a\x1b]0;title\x07",
                                    .why = "b\x1b",
                                    .fix = "c\x7f",
                                    .where = "d\x1b.yaml:1"});
  for (const char c : said) EXPECT_TRUE(c == '\n' || (c >= 0x20 && c != 0x7f)) << said;
  EXPECT_TRUE(contains(said, "a\\x1b]0;title\\x07"));
  const test::TempDir dir;
  const std::string file = (dir / "out.log").string();
  testing::internal::CaptureStderr();
  Log({.file = file}).info("Run a\x1b[2J");
  EXPECT_TRUE(contains(testing::internal::GetCapturedStderr(), "Run a\\x1b[2J\n"));
  EXPECT_TRUE(contains(test::text_of(file), "Run a\\x1b[2J\n"));
}

}  // namespace
}  // namespace braid
