// SPDX-License-Identifier: BSD-3-Clause
// Small looks at the machine for `braid doctor`.
#pragma once
#include <cstdint>
#include <string>

namespace braid::cli {

struct Disk {
  int64_t free = 0;
  bool writable = false;
};

std::string first_line_of(const std::string& command);  // "" if the command is not there or fails
int free_port();                 // a port on which loopback listens now, 0: none
int64_t memory_bytes();          // of the machine
Disk disk_here();                // of the current folder
std::string list_gpus();         // names and memory, "; " between; "" without a GPU
std::string compiler_version();  // that braid was built with
std::string torch_version();
std::string hdf5_version();

}  // namespace braid::cli
