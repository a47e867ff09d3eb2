// SPDX-License-Identifier: BSD-3-Clause
// The folders of a run's checkpoints: step-00001200/ and, while it is written,
// step-00001200.tmp-<token>/.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/hashed_file.h"

namespace braid::checkpoint {

std::string folder_name(int64_t step);
int64_t step_of(const std::filesystem::path& dir);  // -1: not the name of a finished checkpoint
// Oldest first, broken ones too.
std::vector<std::filesystem::path> checkpoint_folders(const std::filesystem::path& dir);
// Those whose manifest can be read and whose files have the right sizes.
std::vector<std::filesystem::path> whole_by_size(const std::vector<std::filesystem::path>& all);

void remove_quietly(const std::filesystem::path& path);
// What killed processes left in `dir`; `mine` stays.
void remove_stale(const std::filesystem::path& dir, const std::filesystem::path& mine);
// Moves a whole new folder to its name. A folder of that name is exchanged in one stroke where the
// file system can.
void put_in_place(const std::filesystem::path& temporary, const std::filesystem::path& target);
FileRecord write_bytes(const std::filesystem::path& file, std::string_view bytes);

}  // namespace braid::checkpoint
