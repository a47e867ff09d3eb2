// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoint/folder.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "braid/core/error.h"
#include "braid/core/fs.h"
#include "checkpoint/manifest.h"

namespace braid::checkpoint {
namespace {

namespace fs = std::filesystem;

}  // namespace

std::string folder_name(int64_t step) { return fmt::format("step-{:08}", step); }

// "step-00001200.tmp-77" is none.
int64_t step_of(const fs::path& dir) {
  const std::string name = dir.filename().string();
  if (!name.starts_with("step-") || name.size() < 13 || name.size() > 23) return -1;
  if (name.find_first_not_of("0123456789", 5) != std::string::npos) return -1;
  return std::stoll(name.substr(5));
}

void remove_quietly(const fs::path& dir) {
  std::error_code ignored;
  fs::remove_all(dir, ignored);
}

void remove_stale(const fs::path& dir, const fs::path& mine) {
  std::error_code error;
  std::vector<fs::path> stale;
  for (const auto& item : fs::directory_iterator(dir, error)) {
    const std::string name = item.path().filename().string();
    if (name.starts_with("step-") && name.find(".tmp-") != std::string::npos && item.path() != mine)
      stale.push_back(item.path());
  }
  for (const fs::path& path : stale) remove_quietly(path);
}

FileRecord write_bytes(const fs::path& file, std::string_view bytes) {
  FileWriter out(file, static_cast<int64_t>(bytes.size()));
  out.write(bytes.data(), bytes.size());
  return out.finish();
}

void put_in_place(const fs::path& temporary, const fs::path& target) {
  if (fs::exists(target)) {
    if (::renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, target.c_str(), RENAME_EXCHANGE) == 0) {
      sync_dir(target.parent_path());
      remove_quietly(temporary);
      return;
    }
    const fs::path old = temporary.string() + "-old";
    rename_durably(target, old);
    rename_durably(temporary, target);
    remove_quietly(old);
    return;
  }
  rename_durably(temporary, target);
}

std::vector<fs::path> whole_by_size(const std::vector<fs::path>& all) {
  std::vector<fs::path> whole;
  for (const fs::path& dir : all) {
    try {
      check_sizes(read_manifest(dir), dir);
      whole.push_back(dir);
    } catch (const StorageError&) {
      // A broken one is neither counted nor removed: newest() will name it.
    }
  }
  return whole;
}

std::vector<fs::path> checkpoint_folders(const fs::path& dir) {
  std::vector<fs::path> result;
  std::error_code error, unknown;
  fs::directory_iterator items(dir, error);
  for (; !error && items != fs::directory_iterator(); items.increment(error))
    if (step_of(items->path()) >= 0 && items->is_directory(unknown))
      result.push_back(items->path());
  // With any other error the checkpoints that are there would be taken for none.
  if (error && error.value() != ENOENT) throw_storage("list", dir, error.value());
  std::sort(result.begin(), result.end(),
            [](const fs::path& a, const fs::path& b) { return step_of(a) < step_of(b); });
  return result;
}

}  // namespace braid::checkpoint
