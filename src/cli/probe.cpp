// SPDX-License-Identifier: BSD-3-Clause
#include "cli/probe.h"

#include <arpa/inet.h>
#include <hdf5.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <torch/headeronly/version.h>
#include <unistd.h>

#include <cstdio>

#include <fmt/format.h>

#include "braid/core/accelerator.h"
#include "braid/core/units.h"

namespace braid::cli {

std::string first_line_of(const std::string& command) {
  std::FILE* pipe = popen((command + " 2>/dev/null").c_str(), "r");
  if (pipe == nullptr) return "";
  char buffer[256] = "";
  const bool read = std::fgets(buffer, sizeof buffer, pipe) != nullptr;
  while (std::fgetc(pipe) != EOF) continue;  // let it finish writing
  const bool succeeded = pclose(pipe) == 0;
  std::string line = read && succeeded ? buffer : "";
  while (!line.empty() && (line.back() == '\n' || line.back() == ' ')) line.pop_back();
  return line;
}

int free_port() {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (listener < 0) return 0;
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  const bool open = bind(listener, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
                    listen(listener, 1) == 0 &&
                    getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size) == 0;
  close(listener);
  return open ? ntohs(address.sin_port) : 0;
}

int64_t memory_bytes() { return sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGE_SIZE); }

Disk disk_here() {
  struct statvfs info = {};
  const bool known = statvfs(".", &info) == 0;
  const auto blocks = static_cast<int64_t>(known ? info.f_bavail : 0);
  return {.free = blocks * static_cast<int64_t>(info.f_frsize), .writable = access(".", W_OK) == 0};
}

std::string list_gpus() {
  const Accelerator* device = accelerator();
  std::string list;
  for (int i = 0; device != nullptr && i < device->count(); ++i)
    list +=
        fmt::format("{}{} ({} free of {})", i > 0 ? "; " : "", device->name(i),
                    to_text(Bytes{device->free_bytes(i)}), to_text(Bytes{device->total_bytes(i)}));
  return list;
}

std::string compiler_version() { return "compiler " __VERSION__; }

std::string torch_version() { return TORCH_VERSION; }

std::string hdf5_version() {
  unsigned major = 0, minor = 0, release = 0;
  H5get_libversion(&major, &minor, &release);
  return fmt::format("{}.{}.{}", major, minor, release);
}

}  // namespace braid::cli
