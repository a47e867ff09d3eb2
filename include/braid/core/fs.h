// SPDX-License-Identifier: BSD-3-Clause
// Files written so that a crash or a full disk leaves the old one whole. All throw StorageError
// with the path and the cause.
#pragma once
#include <filesystem>
#include <string>
#include <string_view>

namespace braid {

void make_dirs(const std::filesystem::path& dir);
std::string read_text(const std::filesystem::path& file);
void write_atomic(const std::filesystem::path& file,
                  std::string_view bytes);  // temporary, fsync, rename, fsync of the folder
void sync_dir(const std::filesystem::path& dir);
void rename_durably(const std::filesystem::path& from, const std::filesystem::path& to);
// An error about a path from errno: "cannot write runs/a/x: No space left on device", with the fix
// that fits the cause.
[[noreturn]] void throw_storage(std::string_view doing, const std::filesystem::path& path,
                                int error);

}  // namespace braid
