// SPDX-License-Identifier: BSD-3-Clause
// Memory histories by hand for the tests of the files about them, and readers of those files.
#pragma once
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "braid/report/memory_files.h"
#include "support/files.h"

namespace braid::test {

// A weight that was there, two layers forward and backward: 1000 + 600 + 300 + 50 at the peak.
inline report::MemoryHistory small_history() {
  using What = report::MemoryChange::What;
  report::MemoryHistory history{.rank = 3,
                                .device = "cpu",
                                .during = "steps 4 to 8",
                                .names = {"", "layers.0", "layers.1", "aten::mm", "aten::mul"},
                                .changes = {}};
  const auto add = [&](What what, uint64_t block, int64_t bytes, uint8_t category, uint32_t module,
                       int64_t microseconds) {
    history.changes.push_back(
        {what, category, module, module == 0 ? 0U : 3U, block, bytes, microseconds * 1000});
  };
  add(What::before, 0, 1000, 0, 0, 0);
  add(What::taken, 1, 600, 3, 1, 10);
  add(What::changed, 1, 600, 4, 1, 11);
  add(What::taken, 2, 300, 3, 2, 20);
  add(What::taken, 3, 50, 5, 2, 30);
  add(What::freed, 2, 300, 3, 2, 40);
  add(What::changed, 1, 600, 3, 1, 45);
  add(What::freed, 1, 600, 3, 1, 50);
  return history;
}

inline std::string output_of_command(const std::string& command) {
  std::FILE* pipe = ::popen(command.c_str(), "r");
  std::string text;
  for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) text += static_cast<char>(c);
  EXPECT_EQ(::pclose(pipe), 0) << command;
  return text;
}

// What Python reads out of a pickle: {"protocol", "opcodes", "value"}.
inline nlohmann::json read_pickle(const std::string& bytes) {
  TempDir dir;
  const std::string file = (dir / "file.pickle").string();
  std::ofstream(file, std::ios::binary) << bytes;
  const std::string text =
      output_of_command("python3 " BRAID_SOURCE_DIR "/tests/report/read_pickle.py " + file);
  return nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
}

}  // namespace braid::test
