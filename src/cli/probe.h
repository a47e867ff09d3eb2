// SPDX-License-Identifier: BSD-3-Clause
// Small looks at the machine for `braid doctor`.
#pragma once
#include <string>

namespace braid::cli {

std::string first_line_of(const std::string& command);  // "" if the command is not there or fails
int free_port();                 // a port on which loopback listens now, 0: none
std::string compiler_version();  // that braid was built with
std::string torch_version();
std::string hdf5_version();

}  // namespace braid::cli
