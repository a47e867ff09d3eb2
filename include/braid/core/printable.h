// SPDX-License-Identifier: BSD-3-Clause
// Text from files and arguments, made safe for a terminal.
//
//   printable("a\x1b[31mb") == "a\\x1b[31mb";
//   printable("naïve\nline") == "naïve\nline";   // UTF-8 and line ends stay
//
// Whoever writes a config or a data file could otherwise move the cursor, clear the screen or
// change the title of the terminal of everyone who reads a message about that file.
#pragma once
#include <string>
#include <string_view>

namespace braid {

// Control characters become \x1b, \t, \u009b. Applying it twice changes nothing more.
std::string printable(std::string_view text);

}  // namespace braid
