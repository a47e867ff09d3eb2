// SPDX-License-Identifier: BSD-3-Clause
// A job of this test program's ranks under a real launcher, and what its ranks left.
#pragma once
#include <cstdlib>
#include <string>

#include "launch/processes.h"
#include "support/command.h"
#include "support/files.h"

namespace braid::test {

inline bool installed(const std::string& program) {
  for (const char* folder : {"/usr/bin/", "/usr/sbin/", "/bin/", "/sbin/", "/usr/local/bin/"})
    if (std::filesystem::exists(folder + program)) return true;
  return false;
}

inline std::string rank_command(const std::string& test = "Rank.DISABLED_Meets") {
  std::string line;
  for (const std::string& word : again(test)) line += word + " ";
  return line;
}

class Launched {
 public:
  Launched() { setenv("BRAID_TEST_OUT", dir_.path().c_str(), 1); }
  const std::filesystem::path& dir() const { return dir_.path(); }
  // The exit code of a line of shell.
  int run(const std::string& line) const {
    return Command({"/bin/sh", "-c", "(" + line + ") > " + (dir() / "out").string() + " 2>&1"})
        .wait()
        .code;
  }
  std::string said(int rank) const { return text_of(dir() / std::to_string(rank)); }
  std::string output() const { return text_of(dir() / "out"); }

 private:
  TempDir dir_;
};

}  // namespace braid::test
