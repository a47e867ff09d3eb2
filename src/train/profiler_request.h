// SPDX-License-Identifier: BSD-3-Clause
// Wishes of people outside for a profile of a running job.
#pragma once
#include <chrono>
#include <cstdint>
#include <filesystem>

namespace braid::train {

class ProfileRequests {
 public:
  // `looks`: this rank looks for the file.
  ProfileRequests(const std::filesystem::path& run_dir, bool looks);
  // Steps asked for since the last call; 0: none. `usual`: where no number was said.
  int64_t take(int64_t usual);

 private:
  int64_t from_file(int64_t usual);
  std::filesystem::path file_;
  bool looks_;
  std::chrono::steady_clock::time_point looked_ = {};
};

}  // namespace braid::train
