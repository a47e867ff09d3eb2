// SPDX-License-Identifier: BSD-3-Clause
// Files in folders that anybody may have filled. Opening a named pipe there would block forever, so
// everything but a regular file is refused.
//
//   const std::string text = read_regular(checkpoint / "manifest.json");
#pragma once
#include <filesystem>
#include <string>

namespace braid {

// All bytes of the file. Throws StorageError.
std::string read_regular(const std::filesystem::path& file);
// Throws StorageError if `file` exists and is not a regular file.
void refuse_irregular(const std::filesystem::path& file);
// The error for a path with this mode (of stat) that is not a regular file.
[[noreturn]] void throw_irregular(const std::filesystem::path& file, unsigned mode);

}  // namespace braid
