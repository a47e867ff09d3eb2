// SPDX-License-Identifier: BSD-3-Clause
#include "comm/plugin.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <filesystem>

namespace braid::comm {
namespace {

namespace fs = std::filesystem;

fs::path plugin_folder() {
  Dl_info info;
  const auto* here = reinterpret_cast<const void*>(&plugin_symbol);
  if (dladdr(here, &info) == 0 || info.dli_fname == nullptr) return {};
  return fs::absolute(info.dli_fname).parent_path();
}

}  // namespace

PluginSymbol plugin_symbol(const std::string& library, const char* symbol) {
  const fs::path here = plugin_folder();
  for (const fs::path& dir : {here, here / "../lib"}) {
    const fs::path file = dir / library;
    if (!fs::exists(file)) continue;
    // Global: MPI opens parts of its own that look for its symbols.
    void* handle = dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL);
    if (handle == nullptr)
      return {.reason = fmt::format("{} does not open: {}", library, dlerror())};
    void* address = dlsym(handle, symbol);
    if (address == nullptr)
      return {.reason = fmt::format("{} has no {}: it has another version", library, symbol)};
    return {.address = address, .reason = {}};
  }
  return {.reason = fmt::format("{} is not there", library)};
}

void* open_symbol(const char* symbol) { return dlsym(RTLD_DEFAULT, symbol); }

}  // namespace braid::comm
