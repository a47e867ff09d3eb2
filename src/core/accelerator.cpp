// SPDX-License-Identifier: BSD-3-Clause
#include "braid/core/accelerator.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <filesystem>
#include <system_error>

namespace braid {
namespace {

namespace fs = std::filesystem;

bool gpu_is_visible() { return fs::exists("/dev/nvidiactl") || fs::exists("/dev/dxg"); }

fs::path folder_of(const void* symbol) {
  Dl_info info;
  if (dladdr(symbol, &info) == 0 || info.dli_fname == nullptr) return {};
  return fs::absolute(info.dli_fname).parent_path();
}

// A command found by PATH is known to the linker by its bare name.
fs::path folder_of_program() {
  std::error_code unknown;
  return fs::read_symlink("/proc/self/exe", unknown).parent_path();
}

// libbraid_cuda stands beside libbraid.so, or in ../lib of the command.
fs::path find_library() {
  const fs::path here = folder_of(reinterpret_cast<const void*>(&accelerator_status));
  for (const fs::path& dir : {here, here / "../lib", folder_of_program() / "../lib"})
    if (fs::exists(dir / "libbraid_cuda.so")) return dir / "libbraid_cuda.so";
  return {};
}

AcceleratorStatus open_accelerator() {
  if (!gpu_is_visible()) return {.reason = "no GPU is visible"};
  const fs::path library = find_library();
  if (library.empty()) return {.reason = "libbraid_cuda.so is not there; build it with: make cuda"};
  void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (handle == nullptr)
    return {.reason = fmt::format("libbraid_cuda.so does not open: {}", dlerror())};
  using Entry = Accelerator* (*)();
  const auto entry = reinterpret_cast<Entry>(dlsym(handle, "braid_cuda_accelerator"));
  Accelerator* device = entry == nullptr ? nullptr : entry();
  if (device == nullptr || device->count() == 0) return {.reason = "CUDA finds no usable GPU"};
  return {.device = device, .reason = {}};
}

}  // namespace

const AcceleratorStatus& accelerator_status() {
  static const AcceleratorStatus status = open_accelerator();
  return status;
}

}  // namespace braid
